// A table as a picture: squares were observed, dots are filled in, the smaller the less certain.

import { element } from "./dom.js";
import { uncertainty, valueOf } from "./cells.js";
import { percent, plain } from "./words.js";

const LOW = [43, 93, 138];
const MIDDLE = [242, 234, 214];
const HIGH = [188, 52, 44];
const DARK_EDGE = "rgba(20, 24, 30, .75)";
const WIDTH = 1200; // pixels of the picture
const WIDEST = 32; // pixels of a cell on the screen
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function colour(share) {
  const bounded = Math.min(Math.max(share, 0), 1);
  const [from, to] = bounded < 0.5 ? [LOW, MIDDLE] : [MIDDLE, HIGH];
  const part = bounded < 0.5 ? 2 * bounded : 2 * bounded - 1;
  return `rgb(${from.map((value, at) => Math.round(value + part * (to[at] - value))).join(",")})`;
}

const shareOf = (value, [low, high]) => (high > low ? (value - low) / (high - low) : 0.5);

/** Draw one cell into a square of some pixels. */
function drawCell(brush, x, y, size, one, scale, positives) {
  brush.fillStyle = colour(shareOf(valueOf(one, positives), scale));
  if (one.observed !== null) {
    brush.fillRect(x, y, size - 1, size - 1);
    return;
  }
  const range = positives ? 0.25 : scale[1] - scale[0] || 1;
  const doubt = Math.min(uncertainty(one, positives) / range, 1);
  const radius = Math.max((size * (0.9 - 0.6 * doubt)) / 2, 0.7);
  brush.beginPath();
  brush.arc(x + size / 2, y + size / 2, radius, 0, 2 * Math.PI);
  brush.fill();
  if (size >= 10) {
    brush.lineWidth = 1;
    brush.strokeStyle = DARK_EDGE;
    brush.stroke();
  }
}

/** Draw a picture of rows and columns in the given sequences. */
export function draw(canvas, picture, sequence, scale, positives) {
  const size = Math.min(Math.max(Math.floor(WIDTH / Math.max(sequence.columns.length, 1)), 4), 24);
  canvas.width = size * sequence.columns.length;
  canvas.height = size * sequence.rows.length;
  canvas.style.maxWidth = `${WIDEST * sequence.columns.length}px`;
  const brush = canvas.getContext("2d");
  for (const [y, r] of sequence.rows.entries()) {
    for (const [x, c] of sequence.columns.entries()) {
      const one = {
        observed: picture.observed[r][c], mean: picture.mean[r][c], low: picture.low[r][c], high: picture.high[r][c],
      };
      drawCell(brush, x * size, y * size, size, one, scale, positives);
    }
  }
}

/** What the picture's colours and shapes mean, over the whole scale. */
export function legend(scale, positives) {
  const strip = element("canvas", { width: 120, height: 1, className: "strip", "aria-hidden": "true" });
  const brush = strip.getContext("2d");
  for (let at = 0; at < 120; at++) {
    brush.fillStyle = colour(at / 119);
    brush.fillRect(at, 0, 1, 1);
  }
  const middle = (scale[0] + scale[1]) / 2;
  const high = scale[0] + 0.85 * (scale[1] - scale[0]);
  const written = [scale[0], middle, scale[1]].map((value) => element("span", {}, positives ? percent(value) : plain(value)));
  const sample = (one, text) => {
    const square = element("canvas", { width: 20, height: 20, className: "sample", "aria-hidden": "true" });
    drawCell(square.getContext("2d"), 0, 0, 20, one, scale, positives);
    return element("span", { className: "key" }, square, text);
  };
  const half = (scale[1] - scale[0]) / 2;
  const certain = positives ? { mean: 0.98 } : { mean: high, low: high, high };
  const unsure = positives ? { mean: 0.5 } : { mean: high, low: high - half, high: high + half };
  return element(
    "div", { className: "legend" },
    element("span", { className: "scale" }, strip, element("span", { className: "ticks" }, ...written)),
    sample({ observed: high }, "observed"),
    sample({ observed: null, ...certain }, "filled in, certain"),
    sample({ observed: null, ...unsure }, "filled in, uncertain"),
  );
}

/** Call back with the place under the pointer, or the place that the arrow keys move to. */
export function follow(canvas, shape, select) {
  let row = 0;
  let column = 0;
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    const [rows, columns] = shape();
    row = Math.min(Math.max(Math.floor(((event.clientY - box.top) / box.height) * rows), 0), rows - 1);
    column = Math.min(Math.max(Math.floor(((event.clientX - box.left) / box.width) * columns), 0), columns - 1);
    select(row, column);
  };
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const [rows, columns] = shape();
    row = Math.min(Math.max(row + step[0], 0), rows - 1);
    column = Math.min(Math.max(column + step[1], 0), columns - 1);
    select(row, column);
  });
}
