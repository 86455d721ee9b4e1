// Two members beside each other: what they have in common, and where they differ.

import { explain } from "./calls.js";
import { valueOf } from "./cells.js";
import { busy, button, element, nameElement, selectElement, tableBox } from "./dom.js";
import { finder } from "./finder.js";
import { named } from "./titles.js";
import { count, percent, plain, plural, short, singular } from "./words.js";

const LINES = 15;

/** The form that compares two members of a table. */
export function comparison(table, signal) {
  let axis = 0;
  let pair = [null, null];
  const status = element("p", { role: "status" });
  const result = tableBox("Both members");
  const finders = element("div", { className: "two" });

  function choose() {
    pair = [null, null];
    result.replaceChildren();
    status.textContent = "";
    finders.replaceChildren(...[0, 1].map((place) => {
      const name = table.axes[axis].name;
      const chosen = element("p", { className: "soft" }, "None is chosen yet.");
      const search = finder({
        text: `${place === 0 ? "One" : "Another"} ${singular(name)}`,
        find: (text, stop) => table.find(name, text, stop),
        row: ({ label }) => {
          const pick = button("", () => {
            pair[place] = label;
            chosen.replaceChildren("Chosen: ", nameElement(named(table, name, label)));
            search.clear();
            compare();
          }, "choice");
          pick.append(nameElement(named(table, name, label)));
          return [pick];
        },
      });
      return element("div", {}, search.root, chosen);
    }));
  }

  async function compare() {
    const [one, other] = pair;
    if (one === null || other === null) return;
    status.classList.remove("bad");
    result.replaceChildren();
    if (one === other) {
      status.textContent = "Choose two that differ.";
      return;
    }
    const wanted = { [axis === 0 ? "rows" : "columns"]: pair };
    try {
      const picture = await busy(status, "Comparing …", table.part(wanted, signal));
      if (pair[0] === one && pair[1] === other) show(picture);
    } catch (error) {
      explain(error, status);
    }
  }

  function show(picture) {
    const others = axis === 0 ? picture.columns : picture.rows;
    const cell = (place, at) => {
      const [r, c] = axis === 0 ? [place, at] : [at, place];
      const observed = picture.observed[r][c];
      const one = { observed, mean: picture.mean[r][c], low: picture.low[r][c], high: picture.high[r][c] };
      return { ...one, value: valueOf(one, table.positives) };
    };
    const lines = others.map((label, at) => ({ label, cells: [cell(0, at), cell(1, at)] }));
    for (const line of lines) line.gap = line.cells[0].value - line.cells[1].value;
    lines.sort((a, b) => Math.abs(b.gap) - Math.abs(a.gap));
    status.textContent = summary(lines);
    const name = table.axes[1 - axis].name;
    const heads = [element("th", { scope: "col" }, singular(name)),
      ...pair.map((label) => element("th", { scope: "col" }, nameElement(named(table, table.axes[axis].name, label)))),
      element("th", { scope: "col" }, "difference")];
    const body = lines.slice(0, LINES).map((line) => element("tr", {},
      element("td", {}, nameElement(named(table, name, line.label))), ...line.cells.map(written),
      element("td", { className: "number" }, gapText(line.gap))));
    result.replaceChildren(element("table", {}, element("caption", {}, "Where they differ most"),
      element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body)));
  }

  function written(one) {
    const seen = one.observed !== null;
    const liked = table.positives ? "liked" : plain(one.observed);
    const text = seen ? liked : table.positives ? percent(one.mean) : short(one.mean);
    const ends = table.positives ? "" : `, ${short(one.low)} to ${short(one.high)}`;
    return element("td", { className: "number" }, `${seen ? "■" : "○"} ${text} `,
      element("small", {}, seen ? "observed" : `filled in${ends}`));
  }

  const gapText = (gap) =>
    `${gap < 0 ? "−" : "+"}${table.positives ? `${Math.round(100 * Math.abs(gap))} points` : short(Math.abs(gap))}`;

  function summary(lines) {
    const name = plural(table.axes[1 - axis].name);
    const both = lines.filter((line) => line.cells.every((one) => one.observed !== null));
    const alike = correlation(lines.map((line) => line.cells.map((one) => one.value)));
    const words = alike === null ? "" : ` Over all ${count(lines.length)} ${name}, filled in too, they are ${degree(alike)} (correlation ${short(alike)}).`;
    const one = both.length === 1;
    const common = `${both.length} ${one ? singular(table.axes[1 - axis].name) : name}`;
    if (table.positives) return `${common} ${one ? "is" : "are"} liked by both.${words}`;
    if (!both.length) return `No ${name} have a value of both.${words}`;
    const mean = both.reduce((sum, line) => sum + Math.abs(line.gap), 0) / both.length;
    return `${common} ${one ? "has" : "have"} a value of both; there they differ by ${short(mean)} on average.${words}`;
  }

  const kind = selectElement("Compare", table.axes.map((one, at) => [at, plural(one.name)]), (value) => {
    axis = Number(value);
    choose();
  });
  choose();
  document.addEventListener("titles", () => { choose(); }, { signal });
  return element("section", { className: "compare" }, element("h3", {}, "Compare two"), kind.field, finders, status, result);
}

const degree = (alike) => (alike > 0.6 ? "much alike" : alike > 0.2 ? "somewhat alike" : alike > -0.2 ? "unrelated" : "opposite");

/** Correlation of pairs of numbers; null where one of both does not vary. */
function correlation(pairs) {
  const mean = (at) => pairs.reduce((sum, pair) => sum + pair[at], 0) / pairs.length;
  const [first, second] = [mean(0), mean(1)];
  const sums = pairs.reduce(([both, one, other], [a, b]) => [
    both + (a - first) * (b - second), one + (a - first) ** 2, other + (b - second) ** 2,
  ], [0, 0, 0]);
  return sums[1] > 1e-12 && sums[2] > 1e-12 ? sums[0] / Math.sqrt(sums[1] * sums[2]) : null;
}
