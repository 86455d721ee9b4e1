// Controls with which a person rates a member: a like, stars or levels, a list, or a number.

import { button, element } from "./dom.js";
import { plain } from "./words.js";

const MOST_RADIOS = 7; // more levels are a list

/** A control for the rating of a member, which is `now`; `rate` gets the new one, null for none. */
export function rater(table, label, text, now, rate) {
  if (table.positives) return likeButton(text, now, rate);
  if (table.levels.length < 2) return numberInput(text, now, rate);
  if (table.levels.length > MOST_RADIOS) return levelSelect(table.levels, text, now, rate);
  return radios(table.levels, label, text, now, rate);
}

function likeButton(text, now, rate) {
  const liked = now !== undefined;
  const made = button("", () => rate(liked ? null : 1), "like");
  made.append(element("span", { "aria-hidden": "true" }, liked ? "♥ " : "♡ "), "Like");
  made.setAttribute("aria-pressed", liked);
  made.setAttribute("aria-label", `Like ${text}`);
  return made;
}

function radios(levels, label, text, now, rate) {
  const stars = levels[0] === 1 && levels.every((level, at) => level === at + 1);
  const group = element("fieldset", { className: stars ? "stars" : "levels" });
  group.append(element("legend", { className: "skip" }, `Your rating of ${text}`));
  for (const level of levels) {
    const input = element("input", { type: "radio", name: `rating of ${label}`, value: level, checked: level === now, ariaLabel: plain(level) });
    input.addEventListener("change", () => rate(level));
    const filled = now !== undefined && level <= now;
    const shown = stars ? (filled ? "★" : "☆") : plain(level);
    group.append(element("label", {}, input, element("span", { "aria-hidden": "true" }, shown)));
  }
  return group;
}

function levelSelect(levels, text, now, rate) {
  const select = element("select", { ariaLabel: `Your rating of ${text}` },
    element("option", { value: "" }, "rate"),
    ...levels.map((level) => element("option", { value: level, selected: level === now }, plain(level))));
  select.addEventListener("change", () => rate(select.value === "" ? null : Number(select.value)));
  return select;
}

function numberInput(text, now, rate) {
  const input = element("input", { type: "number", step: "any", value: now ?? "", ariaLabel: `Your value of ${text}` });
  input.addEventListener("change", () => {
    if (input.value === "") rate(null);
    else if (Number.isFinite(input.valueAsNumber)) rate(input.valueAsNumber);
  });
  return input;
}
