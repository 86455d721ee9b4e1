// The tabs of the page, the choice of a served table, and a line about it.

import { Problem } from "./calls.js";
import { explorer } from "./explore.js";
import { startPools } from "./pools.js";
import { startRating } from "./rate.js";
import { listTables, ServedTable } from "./tables.js";
import { startToken } from "./token.js";
import { startUpload } from "./upload.js";
import { describe } from "./words.js";

const tabs = [...document.querySelectorAll("[role=tab]")];
const about = document.querySelector("#about");
const picker = document.querySelector("#tables");
const explored = document.querySelector("#explored");

let table = null;
let wanted = null; // the name of the table that was chosen last
let ends = []; // of what the parts of the page do for the table
let exploring = false;

function show(tab) {
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", chosen);
    one.tabIndex = chosen ? 0 : -1;
    document.getElementById(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  explore();
}

/** Show a part that was chosen; its address can be shared. */
function open(tab) {
  show(tab);
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
}

/** Read cells when the tab is first shown: others may never look at them. */
function explore() {
  if (exploring || table === null || document.querySelector("#explore").hidden) return;
  exploring = true;
  const made = explorer(table);
  ends.push(made.end);
  explored.replaceChildren(made.root);
}

async function choose(name) {
  for (const end of ends) end();
  [ends, exploring, table, wanted] = [[], false, null, name];
  explored.replaceChildren();
  try {
    const read = await ServedTable.read(name);
    if (wanted !== name) return; // another one was chosen meanwhile
    table = read;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (wanted === name) about.textContent = error.message;
    return;
  }
  about.textContent = `${table.name}: ${describe(table)}`;
  document.querySelector("#standing").textContent =
    `exchangeable ${table.about.exchangeable}, model ${table.about.model ?? "none"}`;
  ends.push(startRating(table));
  explore();
}

async function start() {
  let names;
  try {
    names = await listTables();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    about.textContent = error.message;
    return;
  }
  if (!names.length) {
    about.textContent = "No table is served: upload one of your own.";
    return;
  }
  if (names.length > 1) {
    const select = picker.querySelector("select");
    select.replaceChildren(...names.map((name) => new Option(name, name)));
    select.addEventListener("change", () => choose(select.value));
    picker.hidden = false;
  }
  await choose(names[0]);
}

for (const [at, tab] of tabs.entries()) {
  tab.addEventListener("click", () => open(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(at + step + tabs.length) % tabs.length];
    open(next);
    next.focus();
  });
}

startToken();
startPools();
startUpload();
show(tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash) ?? tabs[0]);
await start();
