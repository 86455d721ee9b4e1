// Cells of a part of a table: as a list that can be sorted and filtered, and as rows of a CSV file.

import { titlesOf } from "./titles.js";

/** How little is known of a cell: 0 where it was observed. */
export function uncertainty(one, positives) {
  if (one.observed !== null) return 0;
  return positives ? one.mean * (1 - one.mean) : one.high - one.low;
}

/** The value of a cell; positives that were observed are certain, whatever their strength. */
export function valueOf(one, positives) {
  if (one.observed === null) return one.mean;
  return positives ? 1 : one.observed;
}

/** A picture as a list of cells. */
export function listCells(picture, positives) {
  return picture.rows.flatMap((row, r) => picture.columns.map((column, c) => {
    const one = {
      labels: [row, column], observed: picture.observed[r][c],
      mean: picture.mean[r][c], low: picture.low[r][c], high: picture.high[r][c],
    };
    return { ...one, value: valueOf(one, positives), uncertainty: uncertainty(one, positives) };
  }));
}

const byName = (a, b) => String(a).localeCompare(String(b), undefined, { numeric: true });
const SORTS = {
  uncertain: (a, b) => b.uncertainty - a.uncertainty,
  certain: (a, b) => a.uncertainty - b.uncertainty,
  high: (a, b) => b.value - a.value,
  low: (a, b) => a.value - b.value,
  name: (a, b) => byName(a.labels[0], b.labels[0]) || byName(a.labels[1], b.labels[1]),
};

export const SHOWN = {
  filled: (one) => one.observed === null,
  observed: (one) => one.observed !== null,
  all: () => true,
};

/** Cells of one kind, in a sequence: by uncertainty, value or name. */
export const sortCells = (cells, sort, shown) => cells.filter(SHOWN[shown]).sort(SORTS[sort]);

/** Cells as rows of fields: labels, their titles if there are any, value, interval, observed or not. */
export function cellRows(cells, table) {
  const titled = table.axes.map((axis) => titlesOf(table, axis.name));
  const value = table.value ?? (table.positives ? "chance" : "value");
  const heads = table.axes.flatMap((axis, at) => (titled[at].size ? [axis.name, `${axis.name} title`] : [axis.name]));
  const rows = cells.map((one) => {
    const labels = one.labels.flatMap((label, at) =>
      (titled[at].size ? [label, titled[at].get(String(label)) ?? ""] : [label]));
    const ends = one.observed === null ? [one.low, one.high] : ["", ""];
    return [...labels, one.value, ...ends, one.observed === null ? "no" : "yes"];
  });
  return [[...heads, value, "low", "high", "observed"], ...rows];
}

/** The values that a legend covers: the whole scale, or all that is there. */
export function scaleOf(table, cells) {
  if (table.positives) return [0, 1];
  if (table.levels.length > 1) return [table.levels[0], table.levels.at(-1)];
  const values = cells.map((one) => one.value);
  return [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
}

const ROUNDS = 12; // of the power method

/** Sequences of rows and columns along the strongest pattern, so that it can be seen. */
export function sortByPattern(mean) {
  const average = (list) => list.reduce((a, b) => a + b, 0) / (list.length || 1);
  const rows = mean.map(average);
  const columns = (mean[0] ?? []).map((_, c) => average(mean.map((row) => row[c])));
  const all = average(rows);
  const rest = mean.map((row, r) => row.map((value, c) => value - rows[r] - columns[c] + all));
  const unit = (list) => {
    const size = Math.hypot(...list) || 1;
    return list.map((value) => value / size);
  };
  let across = unit(columns.map((_, c) => 1 + (c % 7))); // a fixed start, so that pictures stay the same
  let down = rows;
  for (let round = 0; round < ROUNDS; round++) {
    down = unit(rest.map((row) => row.reduce((sum, value, c) => sum + value * across[c], 0)));
    across = unit(columns.map((_, c) => rest.reduce((sum, row, r) => sum + row[c] * down[r], 0)));
  }
  const sequence = (scores) => scores.map((_, at) => at).sort((a, b) => scores[a] - scores[b]);
  return { rows: sequence(down), columns: sequence(across) };
}
