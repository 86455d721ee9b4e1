// A table as colours: low values are blue, high values red, missing ones transparent.

const LOW = [43, 93, 138];
const MIDDLE = [242, 234, 214];
const HIGH = [188, 52, 44];

export function colour(share) {
  const [from, to] = share < 0.5 ? [LOW, MIDDLE] : [MIDDLE, HIGH];
  const part = share < 0.5 ? 2 * share : 2 * share - 1;
  return from.map((value, at) => Math.round(value + part * (to[at] - value)));
}

/** Draw values (rows of numbers or null), one pixel per cell; the page scales them up. */
export function draw(canvas, values, low, high) {
  canvas.height = values.length;
  canvas.width = values[0].length;
  const brush = canvas.getContext("2d");
  const image = brush.createImageData(canvas.width, canvas.height);
  values.flat().forEach((value, at) => {
    if (value === null) return; // transparent
    const share = high > low ? (value - low) / (high - low) : 0.5;
    image.data.set([...colour(Math.min(Math.max(share, 0), 1)), 255], 4 * at);
  });
  brush.putImageData(image, 0, 0);
}

/** Call back with the cell under the pointer, or the cell that the arrow keys move to. */
export function follow(canvas, select) {
  let row = 0;
  let column = 0;
  const selectCell = () => select(row, column);
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    row = Math.floor(((event.clientY - box.top) / box.height) * canvas.height);
    column = Math.floor(((event.clientX - box.left) / box.width) * canvas.width);
    if (row >= 0 && column >= 0 && row < canvas.height && column < canvas.width) selectCell();
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    row = Math.min(Math.max(row + step[0], 0), canvas.height - 1);
    column = Math.min(Math.max(column + step[1], 0), canvas.width - 1);
    selectCell();
  });
}
