// Rate members of the second axis, and see the recommendations change.

import { call, element, Problem, short } from "./calls.js";

const SHOWN = 8;
const search = document.querySelector("#search");
const choices = document.querySelector("#choices");
const rated = document.querySelector("#ratings");
const clear = document.querySelector("#clear");
const timing = document.querySelector("#timing");
const list = document.querySelector("#recommended");

const ratings = new Map();
let about;
let pending;

export async function startRating(model) {
  about = model;
  if (about.axes.length !== 2 || about.cells === 0) {
    timing.textContent = "Rating needs a table with two axes and at least one cell.";
    search.disabled = true;
    return;
  }
  document.querySelector("#search-label").textContent = `Find a ${about.axes[1].name} to rate`;
  search.addEventListener("input", () => find(search.value));
  clear.addEventListener("click", () => {
    ratings.clear();
    drawRatings();
    recommend();
  });
  await find("");
}

async function find(text) {
  const query = new URLSearchParams({ axis: about.axes[1].name, holding: text, limit: 30 });
  let found;
  try {
    found = await call("GET", `v1/members?${query}`);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    choices.replaceChildren(element("li", { className: "soft" }, error.message));
    return;
  }
  if (search.value !== text) return;
  const free = found.members.filter((one) => !ratings.has(one.label)).slice(0, SHOWN);
  choices.replaceChildren(
    ...free.map(({ label }) => element("li", {}, element("span", {}, String(label)), rater(label))),
  );
  if (!free.length) choices.append(element("li", { className: "soft" }, "No matches."));
}

/** Stars if there are few levels, else a number field. */
function rater(label) {
  const now = ratings.get(label);
  const levels = about.levels;
  if (levels.length < 2 || levels.length > 11) return numberRater(label, now);
  const group = element("fieldset", { className: "stars" });
  group.append(element("legend", { className: "skip" }, `Your rating of ${label}`));
  const name = `stars ${label}`;
  for (const [at, level] of levels.entries()) {
    const input = element("input", { type: "radio", name, value: level, checked: level === now });
    input.setAttribute("aria-label", `${level}`);
    input.addEventListener("change", () => rate(label, level, at));
    const filled = now !== undefined && level <= now;
    group.append(element("label", {}, input, element("span", { "aria-hidden": "true" }, filled ? "★" : "☆")));
  }
  return group;
}

function numberRater(label, now) {
  const input = element("input", { type: "number", step: "any", value: now ?? "" });
  input.setAttribute("aria-label", `Your rating of ${label}`);
  input.addEventListener("change", () => {
    if (input.value !== "" && Number.isFinite(input.valueAsNumber)) rate(label, input.valueAsNumber);
  });
  return input;
}

function rate(label, value, at) {
  ratings.set(label, value);
  drawRatings();
  if (at !== undefined) {
    const row = [...rated.children].find((one) => one.dataset.label === String(label));
    row?.querySelectorAll("input")[at]?.focus();
  }
  find(search.value);
  recommend();
}

function drawRatings() {
  clear.hidden = ratings.size === 0;
  rated.replaceChildren(
    ...[...ratings.keys()].map((label) => {
      const remove = element("button", { type: "button", className: "quiet" }, "remove");
      remove.setAttribute("aria-label", `Remove the rating of ${label}`);
      remove.addEventListener("click", () => {
        ratings.delete(label);
        drawRatings();
        find(search.value);
        recommend();
      });
      const row = element("li", {}, element("span", {}, String(label)), rater(label), remove);
      row.dataset.label = String(label);
      return row;
    }),
  );
}

async function recommend() {
  pending?.abort();
  if (!ratings.size) {
    list.replaceChildren();
    timing.textContent = "Rate a few items to see recommendations.";
    return;
  }
  pending = new AbortController();
  const body = { ratings: [...ratings], n: 8, why: true };
  try {
    const found = await call("POST", "v1/recommend", { body, signal: pending.signal });
    const age = Math.round(found.pools.age_seconds);
    timing.textContent = `${short(found.milliseconds, 1)} ms; the whole table was last read ${age} s ago`;
    list.replaceChildren(...found.recommended.map(recommended));
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    timing.textContent = error.message;
  }
}

function recommended(one) {
  const title = Object.values(one.labels).join(", ");
  const head = element(
    "div", { className: "head" },
    element("strong", {}, title),
    element("span", {}, `${short(one.mean)}  (${short(one.low)} to ${short(one.high)})`),
  );
  return element("li", {}, head, bar(one), why(one));
}

function bar(one) {
  const [first, last] = [about.levels[0] ?? one.low, about.levels.at(-1) ?? one.high];
  const place = (value) => (100 * (value - first)) / (last - first || 1);
  const range = element("i");
  range.style.left = `${place(one.low)}%`;
  range.style.right = `${100 - place(one.high)}%`;
  const mean = element("b");
  mean.style.left = `${place(one.mean)}%`;
  return element("div", { className: "bar", "aria-hidden": "true" }, range, mean);
}

function why(one) {
  const largest = [...one.why].sort((a, b) => Math.abs(b.moved) - Math.abs(a.moved)).slice(0, 3);
  const parts = largest.flatMap(({ label, moved }, at) => [
    at ? ", " : "",
    element("span", { className: moved < 0 ? "down" : "up" }, `${moved < 0 ? "−" : "+"}${short(Math.abs(moved))}`),
    ` ${label}`,
  ]);
  return element("p", { className: "why" }, "effect of your ratings: ", ...parts);
}
