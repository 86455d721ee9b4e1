// Search for members of a table, by label or title.

import { explain } from "./calls.js";
import { element } from "./dom.js";

const PAUSE = 150; // milliseconds between the last letter and the search
const SHOWN = 8;

/**
 * A search field with a list below. `find` returns members for a text; `row` makes the content of
 * a member's line. The list is searched anew by `refresh`, and emptied by `clear`.
 */
export function finder({ text, find, row, atOnce = false, listLabel }) {
  const input = element("input", { type: "search", autocomplete: "off", maxLength: 200 });
  const list = element("ul", { className: "plain found", ariaLabel: listLabel ?? text });
  const status = element("p", { role: "status", className: "soft" });
  const root = element("div", { className: "finder" },
    element("label", { className: "field" }, element("span", {}, text), input), status, list);
  let timer;
  let pending;

  async function refresh() {
    pending?.abort();
    const mine = new AbortController();
    pending = mine;
    try {
      const members = await find(input.value.trim(), mine.signal);
      if (pending !== mine) return;
      status.classList.remove("bad");
      status.textContent = members.length ? "" : "No matches.";
      list.replaceChildren(...members.slice(0, SHOWN).map((member) => {
        const line = element("li", {}, ...row(member));
        line.dataset.label = String(member.label);
        return line;
      }));
    } catch (error) {
      list.replaceChildren();
      explain(error, status);
    }
  }

  function clear() {
    clearTimeout(timer);
    pending?.abort();
    input.value = "";
    status.textContent = "";
    list.replaceChildren();
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    if (input.value.trim() === "" && !atOnce) return clear();
    timer = setTimeout(refresh, PAUSE);
  });
  if (atOnce) refresh();
  return { root, input, refresh, clear };
}
