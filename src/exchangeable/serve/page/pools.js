// Pools and queries on a small table: the pools that a cell reads, and the prediction of the model.

import { call, element, Problem, short } from "./calls.js";

const NAMES = { rows: ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn"], columns: ["A", "B", "C", "D", "E", "F", "G"] };
const VALUES = [
  [5, 4, null, null, 1, null, 2],
  [null, 5, 4, null, null, 1, null],
  [4, null, 5, 2, null, null, 1],
  [1, null, null, 5, 4, null, null],
  [null, 1, null, 4, null, 5, null],
  [null, null, 2, null, 5, 4, null],
];
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const PAUSE = 250; // milliseconds between the last change and the request
const grid = document.querySelector("#grid");
const reads = document.querySelector("#reads");
const modelStatus = document.querySelector("#pools-model");

const everyRow = NAMES.rows.map((_, at) => at);
const everyColumn = NAMES.columns.map((_, at) => at);
let permutation = { rows: everyRow, columns: everyColumn };
let at = [0, 0]; // the selected cell
let predictions = null; // of the model, by row and column
let timer;
let pending;

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

/** Fetch predictions when the tab is first shown. */
export function showPools() {
  if (!predictions && !pending) predict();
}

function shuffled(list) {
  return list.map((one) => [Math.random(), one]).sort((a, b) => a[0] - b[0]).map(([, one]) => one);
}

const observed = (rows, columns) => rows.flatMap((r) => columns.map((c) => VALUES[r][c])).filter((v) => v !== null);

/** Content of a pool: the mean of the values written to it, and their number. */
function pool(values) {
  const mean = values.length ? short(values.reduce((a, b) => a + b, 0) / values.length) : "–";
  return { mean, number: values.length };
}

function draw() {
  const line = (...cells) => element("div", { role: "row" }, ...cells);
  const head = (role, text) => element("div", { role }, text);
  const drawn = (values, kind) => {
    const { mean, number } = pool(values);
    const made = element("div", { role: "gridcell", className: "pool" }, mean, element("small", {}, ` of ${number}`));
    Object.assign(made.dataset, kind);
    return made;
  };
  const lines = permutation.rows.map((r, row) => {
    const cells = permutation.columns.map((c, column) => {
      const cell = element("div", { role: "gridcell", className: VALUES[r][c] === null ? "asked" : "" }, text(r, c));
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
    line(head("columnheader", ""), ...heads, head("columnheader", "row pool")),
    ...lines,
    line(head("rowheader", "column pool"), ...below, drawn(observed(everyRow, everyColumn), { all: "" })),
  );
}

function text(r, c) {
  if (VALUES[r][c] !== null) return String(VALUES[r][c]);
  return predictions ? short(predictions[r][c].mean, 1) : "?";
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
  const pools = [
    [`row ${NAMES.rows[r]}`, observed([r], everyColumn)],
    [`column ${NAMES.columns[c]}`, observed(everyRow, [c])],
    ["all", observed(everyRow, everyColumn)],
  ].map(([name, values]) => `${name} ${pool(values).mean}`).join(", ");
  const value = VALUES[r][c];
  const prediction = predictions && value === null
    ? ` The model predicts ${short(predictions[r][c].mean)} (80 %: ${short(predictions[r][c].low)} to ${short(predictions[r][c].high)}).`
    : "";
  reads.textContent = `${NAMES.rows[r]} and ${NAMES.columns[c]}, ${value === null ? "not observed" : `observed ${value}`}: reads the pools ${pools}${value === null ? "" : ", and its own value"}.${prediction}`;
}

/** Set the next value of a cell; after the highest it becomes empty. */
function change(row, column) {
  const [r, c] = [permutation.rows[row], permutation.columns[column]];
  VALUES[r][c] = VALUES[r][c] === 5 ? null : (VALUES[r][c] ?? 0) + 1;
  predictions = null;
  draw();
  read(row, column);
  clearTimeout(timer);
  timer = setTimeout(predict, PAUSE);
}

async function predict() {
  pending?.abort();
  const mine = new AbortController();
  pending = mine;
  modelStatus.textContent = "The model is reading the table …";
  const lines = everyRow.flatMap((r) => everyColumn.map((c) => `${NAMES.rows[r]},${NAMES.columns[c]},${VALUES[r][c] ?? ""}`));
  try {
    const file = ["who,what,value", ...lines].join("\n");
    const found = await call("POST", "v1/look", { file, signal: mine.signal });
    const { rows, columns, mean, low, high } = found.picture;
    const place = (r, c) => [rows.indexOf(NAMES.rows[r]), columns.indexOf(NAMES.columns[c])];
    predictions = everyRow.map((r) => everyColumn.map((c) => {
      const [i, j] = place(r, c);
      return { mean: mean[i][j], low: low[i][j], high: high[i][j] };
    }));
    modelStatus.textContent = `Grey numbers are predicted by the model ${found.model}. Click a cell, or press Enter, to change its value.`;
    draw();
    if (grid.matches(":focus, :hover")) read(...at);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    modelStatus.textContent = error.message;
  } finally {
    if (pending === mine) pending = null;
  }
}
