// The three parts, one at a time, and what is served.

import { call } from "./calls.js";
import { startPools } from "./pools.js";
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
show(tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash) ?? tabs[0]);

startPools();
startTable();
const about = await call("GET", "v1/model");
const sizes = about.axes.map((axis) => `${axis.members.toLocaleString("en")} ${axis.name}`).join(" × ");
document.querySelector("#about").textContent =
  `${about.source}: ${about.cells.toLocaleString("en")} cells of ${sizes}, ${about.scale}`;
document.querySelector("#standing").textContent =
  `exchangeable ${about.exchangeable}, model ${about.model ?? "none"}`;
await startRating(about);
