// A prediction and its interval as a bar over the whole scale.

import { element } from "./dom.js";

/** A bar: the range is the interval, the line the prediction; what was observed is a square. */
export function intervalBar(one, [first, last], positives = false) {
  const place = (value) => Math.min(Math.max((100 * (value - first)) / (last - first || 1), 0), 100);
  const bar = element("div", { className: "bar", "aria-hidden": "true" });
  if (positives) {
    const filled = element("i");
    filled.style.width = `${place(one.observed ?? one.mean)}%`;
    bar.append(filled);
    return bar;
  }
  const seen = one.observed !== null && one.observed !== undefined;
  if (!seen) {
    const range = element("i");
    range.style.left = `${place(one.low)}%`;
    range.style.right = `${100 - place(one.high)}%`;
    bar.append(range);
  }
  const mark = element("b", { className: seen ? "seen" : "" });
  mark.style.left = `${place(seen ? one.observed : one.mean)}%`;
  bar.append(mark);
  return bar;
}
