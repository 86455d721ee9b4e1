// Rate or like members of the second axis, and see the recommendations change.

import { explain, Problem } from "./calls.js";
import { scaleOf } from "./cells.js";
import { busy, button, element, nameElement, remember, remembered } from "./dom.js";
import { finder } from "./finder.js";
import { intervalBar } from "./interval.js";
import { rater } from "./rater.js";
import { named } from "./titles.js";
import { percent, plural, predicted, short } from "./words.js";

const RECOMMENDED = 10;
const REASONS = 3;
const MOST_RATINGS = 200; // of a request

const timing = document.querySelector("#timing");
const list = document.querySelector("#recommended");
const search = document.querySelector("#rate-search");
const rated = document.querySelector("#ratings");
const clear = document.querySelector("#clear");
const showAll = document.querySelector("#all-recommended");
const title = document.querySelector("#rate-title");

/** Show the part of the page for rating members of a table; returns its end. */
export function startRating(table) {
  const ended = new AbortController();
  const { signal } = ended;
  for (const part of [list, search, rated]) part.replaceChildren();
  clear.hidden = true;
  if (table.axes.length !== 2 || table.about.cells === 0) {
    timing.textContent = "Recommendations need a table with two axes and at least one cell.";
    return () => ended.abort();
  }
  const axis = table.axes[1].name;
  const key = `ratings:${table.key}`;
  const ratings = new Map(remembered(key) ?? []);
  const name = (label) => named(table, axis, label);
  const verb = table.positives ? "like" : "rate";
  const ask = `${table.positives ? "Like" : "Rate"} a few ${plural(axis)} to see recommendations.`;
  let pending;
  title.textContent = table.positives ? "Your likes" : "Your ratings";

  const found = finder({
    text: `Find ${plural(axis)} to ${verb}`,
    listLabel: table.positives ? "Not liked yet" : "Not rated yet",
    atOnce: true,
    find: async (text, stop) => (await table.find(axis, text, stop)).filter((one) => !ratings.has(one.label)),
    row: ({ label }) => [nameElement(name(label)), control(label)],
  });
  found.root.querySelector("ul").id = "choices";
  found.input.id = "search";
  search.replaceChildren(found.root);

  function control(label) {
    return rater(table, label, name(label), ratings.get(label), (value) => rate(label, value));
  }

  function rate(label, value) {
    if (value !== null && !ratings.has(label) && ratings.size >= MOST_RATINGS) {
      timing.textContent = `At most ${MOST_RATINGS} ratings are taken: remove some first.`;
      return;
    }
    const inside = rated.contains(document.activeElement) || search.contains(document.activeElement);
    if (value === null) ratings.delete(label);
    else ratings.set(label, value);
    lineOf(search, label)?.remove(); // at once: the next click must not meet it again
    changed();
    if (inside) focusOn(label);
  }

  const lineOf = (part, label) => [...part.querySelectorAll("li")].find((line) => line.dataset.label === String(label));

  /** Whoever uses the keyboard stays at what was rated, or goes on from the search. */
  function focusOn(label) {
    const target = lineOf(rated, label)?.querySelector("input:checked, select, input, button") ?? found.input;
    target.focus({ preventScroll: true });
  }

  function changed() {
    remember(key, [...ratings]);
    showRated();
    found.refresh();
    recommend();
  }

  function showRated() {
    clear.hidden = ratings.size === 0;
    rated.replaceChildren(...[...ratings.keys()].reverse().map((label) => {
      const row = element("li", {}, nameElement(name(label)), control(label));
      if (!table.positives) {
        const remove = button("remove", () => rate(label, null), "quiet");
        remove.setAttribute("aria-label", `Remove the rating of ${name(label)}`);
        row.append(remove);
      }
      row.dataset.label = String(label);
      return row;
    }));
  }

  async function recommend() {
    pending?.abort();
    timing.classList.remove("bad");
    if (!ratings.size) {
      list.replaceChildren();
      showAll.hidden = true;
      timing.textContent = ask;
      return;
    }
    const mine = new AbortController();
    const stop = mine.signal;
    pending = mine;
    const body = { ratings: [...ratings], n: RECOMMENDED };
    try {
      const best = await busy(timing, "Computing recommendations …", table.recommend(body, stop));
      if (stop.aborted) return;
      const chances = table.positives ? ", with the chance that you like it next" : "";
      timing.textContent = `Best first${chances}. Computed in ${short(best.milliseconds, 0)} ms.`;
      show(best.recommended);
      if (table.positives && ratings.size < 2) return;
      // Reasons take longer than the list, which does not wait for them.
      const explained = await table.recommend({ ...body, why: true }, stop);
      if (!stop.aborted) show(explained.recommended);
    } catch (error) {
      if (stop.aborted) return;
      if (error instanceof Problem) list.replaceChildren();
      explain(error, timing);
    }
  }

  function show(best) {
    const scale = scaleOf(table, best.flatMap((one) => [{ value: one.low }, { value: one.high }]));
    const reasons = table.positives ? likesBehind(best) : best.map(effects);
    list.replaceChildren(...best.map((one, at) => recommended(one, scale, reasons[at])));
    showAll.hidden = list.classList.contains("all");
  }

  function recommended(one, scale, reason) {
    const [label] = Object.values(one.labels);
    const head = element("div", { className: "head" }, nameElement(name(label)),
      element("span", { className: "number" }, table.positives ? `chance ${percent(one.mean)}` : predicted(one)));
    return element("li", {}, head, intervalBar(one, scale, table.positives), reason);
  }

  /** The largest effects of ratings on a prediction. */
  function effects(one) {
    const largest = [...one.why].sort((a, b) => Math.abs(b.moved) - Math.abs(a.moved)).slice(0, REASONS);
    if (!largest.length) return null;
    const parts = largest.flatMap(({ label, moved }, at) => [
      at ? ", " : "", element("span", { className: moved < 0 ? "down" : "up" }, `${moved < 0 ? "−" : "+"}${short(Math.abs(moved))}`), " ", nameElement(name(label)),
    ]);
    return element("p", { className: "why" }, "effect of your ratings: ", ...parts);
  }

  /** The likes that raise an item more than the others; each like moves all chances, too. */
  function likesBehind(best) {
    const shares = best.map((one) => new Map(one.why.map(({ label, moved }) => [label, moved / one.mean])));
    const usual = (label) => shares.reduce((sum, own) => sum + own.get(label), 0) / shares.length;
    return best.map((one, at) => {
      const above = [...shares[at]].map(([label, share]) => ({ label, more: share - usual(label) }))
        .filter(({ more }) => more > 0).sort((a, b) => b.more - a.more).slice(0, REASONS - 1);
      const names = above.flatMap(({ label }, at) => [at ? " and " : "", nameElement(name(label))]);
      return names.length ? element("p", { className: "why" }, "goes with ", ...names) : null;
    });
  }

  // On a phone the first ones are shown, so that what to rate stays in sight.
  showAll.onclick = () => {
    list.classList.add("all");
    showAll.hidden = true;
  };
  clear.textContent = table.positives ? "Remove all likes" : "Remove all ratings";
  clear.onclick = () => {
    ratings.clear();
    changed();
    found.input.focus();
  };
  document.addEventListener("titles", () => { showRated(); found.refresh(); if (ratings.size) recommend(); }, { signal });
  showRated();
  recommend();
  return () => {
    ended.abort();
    pending?.abort();
  };
}
