// Pools and queries on a small table, all computed in the browser.

import { element } from "./dom.js";
import { short } from "./words.js";

const NAMES = { rows: ["Ada", "Ben", "Cleo", "Dan", "Eve"], columns: ["A", "B", "C", "D", "E"] };
const VALUES = [
  [5, 4, null, null, 3],
  [null, 3, 2, null, 1],
  [5, null, 4, 3, null],
  [3, null, null, 1, 1],
  [null, 5, 3, null, 2],
];
const LEVELS = [1, 5];
const TRUST = 1; // cells that a pool must have to be believed by half
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const grid = document.querySelector("#grid");
const reads = document.querySelector("#reads");

const everyRow = NAMES.rows.map((_, at) => at);
const everyColumn = NAMES.columns.map((_, at) => at);
let permutation = { rows: everyRow, columns: everyColumn };
let at = [0, 0]; // the selected cell

export function startPools() {
  draw();
  grid.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    if (!step) return change(...at);
    const sizes = [everyRow.length, everyColumn.length];
    read(...at.map((place, axis) => Math.min(Math.max(place + step[axis], 0), sizes[axis] - 1)));
  });
  document.querySelector("#shuffle").addEventListener("click", () => {
    const [row, column] = [permutation.rows[at[0]], permutation.columns[at[1]]];
    permutation = { rows: shuffled(permutation.rows), columns: shuffled(permutation.columns) };
    draw();
    read(permutation.rows.indexOf(row), permutation.columns.indexOf(column));
  });
}

function shuffled(list) {
  return list.map((one) => [Math.random(), one]).sort((a, b) => a[0] - b[0]).map(([, one]) => one);
}

const observed = (rows, columns) => rows.flatMap((r) => columns.map((c) => VALUES[r][c])).filter((v) => v !== null);

/** Content of a pool: the mean of the values written to it, and their number. */
function pool(values) {
  return { mean: values.length ? values.reduce((a, b) => a + b, 0) / values.length : null, number: values.length };
}

const pools = (r, c) => ({ row: pool(observed([r], everyColumn)), column: pool(observed(everyRow, [c])), all: pool(observed(everyRow, everyColumn)) });

/** What a cell without a value reads: the mean of all, moved by what its row and column differ. */
function predict(r, c) {
  const { row, column, all } = pools(r, c);
  const start = all.mean ?? (LEVELS[0] + LEVELS[1]) / 2;
  const moved = (one) => (one.number ? (one.number / (one.number + TRUST)) * (one.mean - start) : 0);
  return Math.min(Math.max(start + moved(row) + moved(column), LEVELS[0]), LEVELS[1]);
}

const written = ({ mean }) => (mean === null ? "–" : short(mean));

function draw() {
  const line = (...cells) => element("div", { role: "row" }, ...cells);
  const head = (role, text) => element("div", { role }, text);
  const drawn = (values, kind) => {
    const one = pool(values);
    const made = element("div", { role: "gridcell", className: "pool" }, written(one), element("small", {}, ` of ${one.number}`));
    Object.assign(made.dataset, kind);
    return made;
  };
  const lines = permutation.rows.map((r, row) => {
    const cells = permutation.columns.map((c, column) => {
      const value = VALUES[r][c];
      const cell = element("div", { role: "gridcell", className: value === null ? "asked" : "" },
        value === null ? short(predict(r, c), 1) : String(value));
      cell.dataset.at = `${row} ${column}`;
      cell.addEventListener("pointerenter", () => read(row, column));
      cell.addEventListener("click", () => change(row, column));
      return cell;
    });
    return line(head("rowheader", NAMES.rows[r]), ...cells, drawn(observed([r], everyColumn), { row }));
  });
  const heads = permutation.columns.map((c) => head("columnheader", NAMES.columns[c]));
  const below = permutation.columns.map((c, column) => drawn(observed(everyRow, [c]), { column }));
  grid.replaceChildren(
    line(head("columnheader", "row"), ...heads, head("columnheader", "row pool")),
    ...lines,
    line(head("rowheader", "column pool"), ...below, drawn(observed(everyRow, everyColumn), { all: "" })),
  );
}

/** Show the pools that a cell reads. */
function read(row, column) {
  at = [row, column];
  for (const cell of grid.querySelectorAll("[data-at]")) {
    const [i, j] = cell.dataset.at.split(" ").map(Number);
    const wrote = !cell.classList.contains("asked");
    cell.classList.toggle("in-row", wrote && i === row);
    cell.classList.toggle("in-column", wrote && j === column && i !== row);
    cell.classList.toggle("reading", i === row && j === column);
  }
  for (const one of grid.querySelectorAll(".pool")) {
    one.classList.toggle("in-row", one.dataset.row === String(row));
    one.classList.toggle("in-column", one.dataset.column === String(column));
    one.classList.toggle("in-all", one.dataset.all !== undefined);
  }
  const [r, c] = [permutation.rows[row], permutation.columns[column]];
  const { row: rowPool, column: columnPool, all } = pools(r, c);
  const parts = `row ${NAMES.rows[r]} ${written(rowPool)}, column ${NAMES.columns[c]} ${written(columnPool)}, all ${written(all)}`;
  const value = VALUES[r][c];
  reads.textContent = value === null
    ? `${NAMES.rows[r]} and ${NAMES.columns[c]}, not observed: reads the pools ${parts}. Predicted: ${short(predict(r, c))}.`
    : `${NAMES.rows[r]} and ${NAMES.columns[c]}, observed ${value}: reads the pools ${parts}, and its own value.`;
}

/** Set the next value of a cell; after the highest it becomes empty. */
function change(row, column) {
  const [r, c] = [permutation.rows[row], permutation.columns[column]];
  VALUES[r][c] = VALUES[r][c] === LEVELS[1] ? null : (VALUES[r][c] ?? 0) + 1;
  draw();
  read(row, column);
}
