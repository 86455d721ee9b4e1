// An uploaded file: its summary, a picture of it completed, and the download.

import { call, element, Problem, short } from "./calls.js";
import { colour, draw, follow } from "./heat.js";

const drop = document.querySelector("#drop");
const input = document.querySelector("#file");
const status = document.querySelector("#table-status");
const look = document.querySelector("#look");
const hover = document.querySelector("#hover");
const duplicates = document.querySelector("#duplicates");
const download = document.querySelector("#download");
const canvases = { observed: document.querySelector("#observed"), completed: document.querySelector("#completed") };

let file;
let latest = 0; // only the latest of several uploads is shown
let picture;

export function startTable() {
  input.addEventListener("change", () => input.files[0] && take(input.files[0]));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
    });
  }
  duplicates.addEventListener("change", () => file && take(file));
  download.addEventListener("click", fetchCompleted);
  for (const canvas of Object.values(canvases)) follow(canvas, describe);
}

async function take(chosen) {
  file = chosen;
  const mine = ++latest;
  look.hidden = true;
  showStatus(`Reading ${chosen.name} …`);
  try {
    const found = await call("POST", `v1/look?duplicates=${duplicates.value}`, { file: chosen });
    if (mine !== latest) return;
    showStatus(`${chosen.name}: completed by the model ${found.model}.`);
    list("#found", [...found.found, ...(found.without_value ? [] : ["every row has a value; choose “predict every cell” to predict the missing combinations"])]);
    list("#notes", found.notes);
    document.querySelector("#every").checked = !found.without_value;
    show(found.picture);
    look.hidden = false;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (mine === latest) showStatus(error.message, true);
  }
}

function showStatus(text, bad = false) {
  status.textContent = text;
  status.classList.toggle("bad", bad);
}

function list(where, sentences) {
  document.querySelector(where).replaceChildren(...sentences.map((one) => element("li", {}, one)));
}

function show(found) {
  picture = found;
  document.querySelector("#pictures").hidden = found === null;
  if (found === null) return;
  const values = found.observed.flat().filter((value) => value !== null);
  const all = [...values, ...found.mean.flat()].sort((a, b) => a - b);
  // Without clipping, a few extreme values would leave no colours for the others.
  const [low, high] = [all[Math.floor(0.01 * all.length)], all[Math.ceil(0.99 * all.length) - 1]];
  draw(canvases.observed, found.observed, low, high);
  const completed = found.mean.map((row, r) => row.map((value, c) => found.observed[r][c] ?? value));
  draw(canvases.completed, completed, low, high);
  legend(low, high);
  hover.textContent = "Point at a cell, or move with the arrow keys.";
}

function legend(low, high) {
  const strip = element("canvas", { width: 64, height: 1, "aria-hidden": "true" });
  const brush = strip.getContext("2d");
  for (let at = 0; at < 64; at++) {
    brush.fillStyle = `rgb(${colour(at / 63).join(",")})`;
    brush.fillRect(at, 0, 1, 1);
  }
  document.querySelector("#legend").replaceChildren(short(low), strip, short(high));
}

function describe(row, column) {
  const where = `${picture.rows[row]}, ${picture.columns[column]}`;
  const observed = picture.observed[row][column];
  const ends = `${short(picture.low[row][column])} to ${short(picture.high[row][column])}`;
  hover.textContent = observed === null
    ? `${where}: ${short(picture.mean[row][column])} (80 %: ${ends})`
    : `${where}: observed ${short(observed)}`;
}

async function fetchCompleted() {
  download.disabled = true;
  try {
    const every = document.querySelector("#every").checked;
    const response = await call("POST", `v1/complete?all=${every}&duplicates=${duplicates.value}`, { file, raw: true });
    const link = element("a", { href: URL.createObjectURL(await response.blob()) });
    link.download = `${file.name.replace(/\.[^.]*$/, "")}.completed.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showStatus(error.message, true);
  } finally {
    download.disabled = false;
  }
}
