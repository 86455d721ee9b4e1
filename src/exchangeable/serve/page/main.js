// The tabs of the page, and a line about the table.

import { call, Problem } from "./calls.js";
import { showPools, startPools } from "./pools.js";
import { startRating } from "./rate.js";
import { startTable } from "./table.js";

const tabs = [...document.querySelectorAll("[role=tab]")];

function show(tab) {
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", chosen);
    one.tabIndex = chosen ? 0 : -1;
    document.getElementById(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
  if (tab.id === "tab-pools") showPools();
}

for (const [at, tab] of tabs.entries()) {
  tab.addEventListener("click", () => show(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(at + step + tabs.length) % tabs.length];
    show(next);
    next.focus();
  });
}

startPools();
startTable();
show(tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash) ?? tabs[0]);
try {
  const about = await call("GET", "v1/model");
  const sizes = about.axes.map((axis) => `${axis.members.toLocaleString("en")} ${axis.name}`).join(" × ");
  document.querySelector("#about").textContent =
    `${about.source}: ${about.cells.toLocaleString("en")} cells of ${sizes}, ${about.scale}`;
  document.querySelector("#standing").textContent =
    `exchangeable ${about.exchangeable}, model ${about.model ?? "none"}`;
  await startRating(about);
} catch (error) {
  if (!(error instanceof Problem)) throw error;
  document.querySelector("#about").textContent = error.message;
}
