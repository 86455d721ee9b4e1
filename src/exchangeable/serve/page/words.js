// Tables, members and values in plain words.

export const short = (value, digits = 2) => Number(value).toFixed(digits);

/** A number as it is, with at most two decimals. */
export const plain = (value) => String(Math.round(100 * value) / 100);

export const count = (number) => number.toLocaleString("en");

/** A share in percent; small ones with a decimal, or all chances of a long list would look alike. */
export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)}\u00a0%`;

/** user_id → user */
export const singular = (name) => name.replace(/[ _-]?(id|ID|Id)$/, "") || name;

export function plural(name) {
  const word = singular(name);
  if (/s$/i.test(word)) return word;
  if (/[^aeiou]y$/i.test(word)) return `${word.slice(0, -1)}ies`;
  return `${word}s`;
}

/** 200 members × 120 films */
export const sizes = (axes) =>
  axes.map((axis) => `${count(axis.members)} ${axis.members === 1 ? singular(axis.name) : plural(axis.name)}`).join(" × ");

/** ratings 1–5 */
export function values({ value, levels, positives }) {
  if (positives) return "likes: what happened, without a rating";
  const name = value ? plural(value) : "values";
  if (levels.length < 2) return `${name}: numbers`;
  if (levels.length === 2) return `${name} ${plain(levels[0])} or ${plain(levels[1])}`;
  const step = levels[1] - levels[0];
  const steps = step === 1 ? "" : ` in steps of ${plain(step)}`;
  return `${name} ${plain(levels[0])}–${plain(levels.at(-1))}${steps}`;
}

/** 200 members × 120 films, ratings 1–5 */
export const describe = (table) => `${sizes(table.axes)}, ${values(table)}`;

/** A prediction with its interval, or a chance. */
export function predicted(one, positives) {
  return positives ? percent(one.mean) : `${short(one.mean)} (${short(one.low)} to ${short(one.high)})`;
}
