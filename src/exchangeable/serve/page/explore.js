// Explore a table: its cells as a list and as a picture, those of one member, two members compared.

import { explain } from "./calls.js";
import { cellRows, listCells, scaleOf, sortByPattern, sortCells } from "./cells.js";
import { comparison } from "./compare.js";
import { csvBlob } from "./csv.js";
import { busy, button, element, nameElement, save, selectElement, tableBox } from "./dom.js";
import { finder } from "./finder.js";
import { draw, follow, legend } from "./heat.js";
import { intervalBar } from "./interval.js";
import { named, titlesForm } from "./titles.js";
import { count, percent, plain, plural, predicted, singular, sizes } from "./words.js";

const STEP = 25; // lines that are shown at once, and added by each "Show more"
const MOST_DRAWN = 200; // members of an axis in the picture
const SORTS = [
  ["uncertain", "least certain first"], ["certain", "most certain first"], ["high", "highest first"],
  ["low", "lowest first"], ["name", "by name"],
];
const KINDS = [["filled", "filled in"], ["observed", "observed"], ["all", "all"]];

/** The explorer of a table: an element, and an end for what it still waits for. */
export function explorer(table) {
  const ended = new AbortController();
  const state = { sort: "uncertain", shown: "filled", member: null, lines: STEP };
  let cells = [];
  let picture;
  let sequence;
  let scale;

  const about = element("p", { role: "status", className: "about" });
  const chosen = element("div", { className: "row" });
  const list = tableBox("Cells");
  const more = button("Show more", () => { state.lines += STEP; showList(); }, "quiet");
  const pictureBox = element("div", { className: "picture" });
  const canvas = element("canvas", { tabIndex: 0, role: "img", ariaLabel: "The table as a picture" });
  const hover = element("p", { className: "soft hover", role: "status" });
  const search = finder({
    text: `Only the cells of (search ${table.axes.map((axis) => plural(axis.name)).join(" or ")})`,
    listLabel: "Members found",
    find: async (text, signal) => {
      const found = await Promise.all(table.axes.map((axis) => table.find(axis.name, text, signal)));
      return found.flatMap((members, at) => members.slice(0, 4).map((one) => ({ ...one, axis: at })));
    },
    row: (member) => {
      const axis = table.axes[member.axis].name;
      return [button("", () => filter(member), "choice"), element("span", { className: "soft" }, singular(axis))]
        .map((made, at) => (at === 0 ? withName(made, named(table, axis, member.label)) : made));
    },
  });
  const sort = selectElement("Sort", SORTS, (value) => { state.sort = value; state.lines = STEP; showList(); });
  const kind = selectElement("Show", KINDS, (value) => { state.shown = value; state.lines = STEP; showList(); });

  function withName(made, name) {
    made.append(nameElement(name));
    return made;
  }

  function filter(member) {
    state.member = member;
    state.lines = STEP;
    search.clear();
    load();
  }

  async function load() {
    const { member } = state;
    const wanted = member === null ? {} : { [member.axis === 0 ? "rows" : "columns"]: [member.label] };
    about.classList.remove("bad");
    try {
      picture = await busy(about, "Reading cells …", table.part(wanted, ended.signal));
    } catch (error) {
      explain(error, about);
      return;
    }
    cells = listCells(picture, table.positives);
    scale = scaleOf(table, cells);
    show();
  }

  function show() {
    if (!picture) return;
    const complete = picture.rows.length === table.axes[0].members && picture.columns.length === table.axes[1].members;
    const part = table.axes.map((axis, at) => ({ ...axis, members: [picture.rows, picture.columns][at].length }));
    about.textContent = state.member !== null || complete
      ? ""
      : `Here are ${sizes(part)}, those with the most cells, of ${sizes(table.axes)}. Search for others.`;
    const { member } = state;
    chosen.replaceChildren();
    if (member !== null) {
      const axis = table.axes[member.axis].name;
      chosen.append(
        element("span", {}, `${singular(axis)}: `, nameElement(named(table, axis, member.label))),
        button("Show the whole table", () => filter(null), "quiet"),
      );
    }
    showPicture();
    showList();
  }

  function showList() {
    const sorted = sortCells(cells, state.sort, state.shown);
    const heads = [...table.axes.map((axis) => singular(axis.name)), table.positives ? "chance" : singular(table.value ?? "value")];
    const body = sorted.slice(0, state.lines).map((one) => element("tr", {},
      ...one.labels.map((label, at) => element("td", {}, nameElement(named(table, table.axes[at].name, label)))),
      element("td", { className: "number" }, ...shownValue(one))));
    const caption = `${count(sorted.length)} ${sorted.length === 1 ? "cell" : "cells"}`;
    list.replaceChildren(element("table", {}, element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...body)));
    more.hidden = sorted.length <= state.lines;
  }

  function shownValue(one) {
    const seen = one.observed !== null;
    const text = seen ? (table.positives ? "liked" : plain(one.observed)) : predicted(one, table.positives);
    const mark = element("span", { className: seen ? "mark seen" : "mark", "aria-hidden": "true" }, seen ? "■" : "○");
    return [element("span", { className: "whole" }, mark, ` ${text}`), " ", element("small", {}, seen ? "observed" : "filled in"), intervalBar(one, scale, table.positives)];
  }

  function showPicture() {
    pictureBox.hidden = state.member !== null || !cells.length;
    if (pictureBox.hidden) return;
    const { rows, columns } = sortByPattern(picture.mean);
    sequence = { rows: rows.slice(0, MOST_DRAWN), columns: columns.slice(0, MOST_DRAWN) };
    draw(canvas, picture, sequence, scale, table.positives);
    canvas.setAttribute("aria-label", `${sizes(table.axes)} as a picture: move with the arrow keys`);
    pictureBox.replaceChildren(
      element("h3", {}, "Picture of the table"),
      element("p", { className: "soft" }, "Members that are alike are beside each other."),
      legend(scale, table.positives), canvas, hover,
    );
    hover.textContent = "Point at a cell, or move with the arrow keys.";
  }

  follow(canvas, () => [sequence.rows.length, sequence.columns.length], (row, column) => {
    const [r, c] = [sequence.rows[row], sequence.columns[column]];
    const names = [picture.rows[r], picture.columns[c]].map((label, at) => nameElement(named(table, table.axes[at].name, label)));
    const observed = picture.observed[r][c];
    const one = { mean: picture.mean[r][c], low: picture.low[r][c], high: picture.high[r][c] };
    const text = observed === null ? `filled in ${predicted(one, table.positives)}` : `observed ${plain(observed)}`;
    hover.replaceChildren(names[0], ", ", names[1], `: ${text}`);
  });

  const exported = () => save(csvBlob(cellRows(sortCells(cells, state.sort, state.shown), table)), "cells.csv");
  document.addEventListener("titles", show, { signal: ended.signal });
  const root = element("div", { className: "explorer" });
  if (table.axes.length !== 2) {
    root.append(element("p", {}, "A table is explored here if it has two axes; this one has others."));
    return { root, end: () => ended.abort() };
  }
  const note = table.positives
    ? "A chance says how likely a cell is to come next."
    : `The range in brackets holds the value in ${percent(0.8)} of cases.`;
  root.append(
    element("div", { className: "two" },
      element("div", {}, search.root, chosen, about,
        element("div", { className: "row" }, kind.field, sort.field, button("Download these cells (CSV)", exported)),
        element("p", { className: "soft" }, note), list, more),
      element("div", {}, pictureBox)),
    comparison(table, ended.signal), titlesForm(table),
  );
  load();
  return { root, end: () => ended.abort() };
}
