// Pools and queries, live on a small table: what a cell reads, and what the model makes of it.

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
const PAUSE = 250; // milliseconds after the last change until the model is asked
const grid = document.querySelector("#grid");
const told = document.querySelector("#reads");
const said = document.querySelector("#pools-model");

const everyRow = NAMES.rows.map((_, at) => at);
const everyColumn = NAMES.columns.map((_, at) => at);
let order = { rows: everyRow, columns: everyColumn };
let at = [0, 0]; // where the table is pointed at
let answers = null; // of the model, by row and column
let waiting;
let underWay;

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
    const [row, column] = [order.rows[at[0]], order.columns[at[1]]];
    order = { rows: shuffled(order.rows), columns: shuffled(order.columns) };
    draw();
    read(order.rows.indexOf(row), order.columns.indexOf(column));
  });
}

/** Once somebody looks at it. */
export function showPools() {
  if (!answers && !underWay) ask();
}

function shuffled(list) {
  return list.map((one) => [Math.random(), one]).sort((a, b) => a[0] - b[0]).map(([, one]) => one);
}

const observed = (rows, columns) => rows.flatMap((r) => columns.map((c) => VALUES[r][c])).filter((v) => v !== null);

/** A pool as it is told: what was written to it on average, and how many wrote. */
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
  const lines = order.rows.map((r, row) => {
    const cells = order.columns.map((c, column) => {
      const cell = element("div", { role: "gridcell", className: VALUES[r][c] === null ? "asked" : "" }, text(r, c));
      cell.dataset.at = `${row} ${column}`;
      cell.addEventListener("pointerenter", () => read(row, column));
      cell.addEventListener("click", () => change(row, column));
      return cell;
    });
    return line(head("rowheader", NAMES.rows[r]), ...cells, drawn(observed([r], everyColumn), { row }));
  });
  const heads = order.columns.map((c) => head("columnheader", NAMES.columns[c]));
  const below = order.columns.map((c, column) => drawn(observed(everyRow, [c]), { column }));
  grid.replaceChildren(
    line(head("columnheader", ""), ...heads, head("columnheader", "row pool")),
    ...lines,
    line(head("rowheader", "column pool"), ...below, drawn(observed(everyRow, everyColumn), { all: "" })),
  );
}

function text(r, c) {
  if (VALUES[r][c] !== null) return String(VALUES[r][c]);
  return answers ? short(answers[r][c].mean, 1) : "?";
}

/** Show what a cell reads. */
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
  const [r, c] = [order.rows[row], order.columns[column]];
  const pools = [
    [`row ${NAMES.rows[r]}`, observed([r], everyColumn)],
    [`column ${NAMES.columns[c]}`, observed(everyRow, [c])],
    ["all", observed(everyRow, everyColumn)],
  ].map(([name, values]) => `${name} ${pool(values).mean}`).join(", ");
  const own = VALUES[r][c];
  const answer = answers && own === null
    ? ` The model says ${short(answers[r][c].mean)} (80 %: ${short(answers[r][c].low)} to ${short(answers[r][c].high)}).`
    : "";
  told.textContent = `${NAMES.rows[r]} and ${NAMES.columns[c]}, ${own === null ? "asked for" : `observed ${own}`}: reads the pools ${pools}${own === null ? "" : ", and its own value"}.${answer}`;
}

/** Another value for a cell, or none after the highest. */
function change(row, column) {
  const [r, c] = [order.rows[row], order.columns[column]];
  VALUES[r][c] = VALUES[r][c] === 5 ? null : (VALUES[r][c] ?? 0) + 1;
  answers = null;
  draw();
  read(row, column);
  clearTimeout(waiting);
  waiting = setTimeout(ask, PAUSE);
}

async function ask() {
  underWay?.abort();
  const mine = new AbortController();
  underWay = mine;
  said.textContent = "The model reads the table …";
  const lines = everyRow.flatMap((r) => everyColumn.map((c) => `${NAMES.rows[r]},${NAMES.columns[c]},${VALUES[r][c] ?? ""}`));
  try {
    const file = ["who,what,value", ...lines].join("\n");
    const found = await call("POST", "v1/look", { file, signal: mine.signal });
    const { rows, columns, mean, low, high } = found.picture;
    const place = (r, c) => [rows.indexOf(NAMES.rows[r]), columns.indexOf(NAMES.columns[c])];
    answers = everyRow.map((r) => everyColumn.map((c) => {
      const [i, j] = place(r, c);
      return { mean: mean[i][j], low: low[i][j], high: high[i][j] };
    }));
    said.textContent = `Grey numbers are answered by the model ${found.model}. Click a cell, or press Enter, to change it.`;
    draw();
    if (grid.matches(":focus, :hover")) read(...at);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    said.textContent = error.message;
  } finally {
    if (underWay === mine) underWay = null;
  }
}
