// What a cell reads, live on a small table: the mean of its row, of its column and of all.

import { element, short } from "./calls.js";

const NAMES = { rows: ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn"], columns: ["A", "B", "C", "D", "E", "F", "G"] };
const VALUES = [
  [5, 4, null, null, 1, null, 2],
  [null, 5, 4, null, null, 1, null],
  [4, null, 5, 2, null, null, 1],
  [1, null, null, 5, 4, null, null],
  [null, 1, null, 4, null, 5, null],
  [null, null, 2, null, 5, 4, null],
];
const grid = document.querySelector("#grid");
const told = document.querySelector("#reads");
let order = { rows: NAMES.rows.map((_, at) => at), columns: NAMES.columns.map((_, at) => at) };
let at = [0, 0];

const mean = (values) => {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
};

export function startPools() {
  drawGrid();
  grid.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const sizes = [NAMES.rows.length, NAMES.columns.length];
    at = at.map((place, axis) => Math.min(Math.max(place + step[axis], 0), sizes[axis] - 1));
    read(...at);
  });
  document.querySelector("#shuffle").addEventListener("click", () => {
    const cell = [order.rows[at[0]], order.columns[at[1]]];
    order = { rows: shuffled(order.rows), columns: shuffled(order.columns) };
    drawGrid();
    at = [order.rows.indexOf(cell[0]), order.columns.indexOf(cell[1])];
    read(...at);
  });
}

function shuffled(list) {
  return list.map((one) => [Math.random(), one]).sort((a, b) => a[0] - b[0]).map(([, one]) => one);
}

function drawGrid() {
  const heads = order.columns.map((c) => element("div", { role: "columnheader" }, NAMES.columns[c]));
  const lines = [element("div", { role: "row" }, element("div", { role: "presentation" }), ...heads)];
  order.rows.forEach((r, row) => {
    const cells = order.columns.map((c, column) => {
      const value = VALUES[r][c];
      const cell = element("div", { role: "gridcell", className: value === null ? "asked" : "" }, value === null ? "?" : String(value));
      cell.dataset.at = `${row} ${column}`;
      cell.addEventListener("pointerenter", () => read(row, column));
      return cell;
    });
    lines.push(element("div", { role: "row" }, element("div", { role: "rowheader" }, NAMES.rows[r]), ...cells));
  });
  grid.replaceChildren(...lines);
}

function read(row, column) {
  at = [row, column];
  const [r, c] = [order.rows[row], order.columns[column]];
  for (const cell of grid.querySelectorAll("[role=gridcell]")) {
    const [i, j] = cell.dataset.at.split(" ").map(Number);
    const observed = !cell.classList.contains("asked");
    cell.classList.toggle("in-row", observed && i === row);
    cell.classList.toggle("in-column", observed && j === column && i !== row);
    cell.classList.toggle("reading", i === row && j === column);
  }
  const pools = [
    [`row ${NAMES.rows[r]}`, mean(VALUES[r])],
    [`column ${NAMES.columns[c]}`, mean(VALUES.map((line) => line[c]))],
    ["all", mean(VALUES.flat())],
  ];
  const own = VALUES[r][c];
  const said = pools.map(([name, value]) => `${name} ${value === null ? "(empty)" : short(value)}`).join(", ");
  told.textContent = `${NAMES.rows[r]} and ${NAMES.columns[c]}, ${own === null ? "asked for" : `observed ${own}`}: reads the pools ${said}${own === null ? "" : ", and its own value"}.`;
}
