// A file of the person's own: read, its columns chosen, completed, explored and downloaded.

import { call, explain, Problem } from "./calls.js";
import { columnsForm } from "./columns.js";
import { busy, element, save } from "./dom.js";
import { explorer } from "./explore.js";
import { FileTable } from "./tables.js";
import { count, describe } from "./words.js";

const TRIES = 30; // while the service is busy with the files of others
const PAUSE = 1500; // milliseconds between them

const drop = document.querySelector("#drop");
const input = document.querySelector("#file");
const status = document.querySelector("#file-status");
const reading = document.querySelector("#reading");
const completeButton = document.querySelector("#complete");
const result = document.querySelector("#result");
const place = document.querySelector("#file-explorer");
const download = document.querySelector("#download");
const every = document.querySelector("#every");
const downloadStatus = document.querySelector("#download-status");

let file;
let form; // the choice of columns
let pending = new AbortController(); // what is in progress for the file that is chosen
let exploring = null;

export function startUpload() {
  input.addEventListener("change", () => input.files[0] && take(input.files[0]));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
    });
  }
  reading.addEventListener("submit", (event) => {
    event.preventDefault();
    complete();
  });
  download.addEventListener("click", fetchCompleted);
}

function take(chosen) {
  file = chosen;
  form = columnsForm(read);
  reading.hidden = true;
  read();
}

/** Give up what was in progress for other choices, and start anew. */
function restart() {
  pending.abort();
  pending = new AbortController();
  exploring?.end();
  exploring = null;
  result.hidden = true;
  place.replaceChildren();
  status.textContent = "";
  status.classList.remove("bad");
  downloadStatus.textContent = "";
  return pending.signal;
}

/** Send the file; while the service is busy with those of others, try again. */
async function send(path, options, signal) {
  for (let tries = 1; ; tries++) {
    try {
      return await call("POST", path, { file, signal, ...options });
    } catch (error) {
      const wait = error instanceof Problem && [429, 503].includes(error.status) && tries < TRIES;
      if (!wait) throw error;
      await new Promise((resolve) => { setTimeout(resolve, PAUSE); });
      signal.throwIfAborted();
    }
  }
}

async function read() {
  const signal = restart();
  try {
    const found = await busy(status, `Reading ${file.name} …`, send(`v1/columns?${form.query()}`, {}, signal));
    form.show(found);
    showRead(found);
  } catch (error) {
    reading.hidden = true;
    explain(error, status);
    if (error.status !== 422) return;
    form.clear(); // another encoding, for one, may read it
    showRead({ table: null, problem: error.message });
  }
}

function showRead({ table, problem }) {
  reading.hidden = false;
  completeButton.disabled = table === null;
  const summary = document.querySelector("#read-summary");
  const found = document.querySelector("#found");
  if (table === null) {
    summary.textContent = "Choose columns, or another way of reading the file.";
    found.replaceChildren();
    status.textContent = problem;
    status.classList.add("bad");
    return;
  }
  const all = table.axes.reduce((product, axis) => product * axis.members, 1);
  summary.textContent = `${describe(table)}. ${count(table.cells)} of ${count(all)} cells have a value.`;
  found.replaceChildren(...table.found.map((one) => element("li", {}, one)));
}

async function complete() {
  const signal = restart();
  completeButton.disabled = true;
  const query = form.query();
  try {
    const look = await busy(status, `Completing ${file.name} …`, send(`v1/look?${query}`, {}, signal));
    status.textContent = `Completed by the model ${look.model}.`;
    document.querySelector("#notes").replaceChildren(...look.notes.map((one) => element("li", {}, one)));
    every.checked = !look.without_value;
    result.hidden = false;
    if (look.picture) {
      exploring = explorer(new FileTable(file, look));
      place.replaceChildren(exploring.root);
    } else {
      place.replaceChildren(element("p", { className: "soft" }, "Tables of two axes can be explored here; this one can be downloaded."));
    }
    result.scrollIntoView({ block: "start" });
  } catch (error) {
    explain(error, status);
  } finally {
    completeButton.disabled = false;
  }
}

async function fetchCompleted() {
  const { signal } = pending;
  download.disabled = true;
  downloadStatus.classList.remove("bad");
  try {
    const query = form.query();
    query.set("all", every.checked);
    const sent = send(`v1/complete?${query}`, { raw: true }, signal).then((response) => response.blob());
    save(await busy(downloadStatus, "Completing the file …", sent), `${file.name.replace(/\.[^.]*$/, "")}.completed.csv`);
  } catch (error) {
    explain(error, downloadStatus);
  } finally {
    download.disabled = false;
  }
}
