// Titles for ids: read from a second file or from pasted lines, and kept in this tab.

import { decode, parse } from "./csv.js";
import { button, element, remember, remembered, selectElement } from "./dom.js";
import { count, plural, singular } from "./words.js";

const MOST = 200_000; // titles
const kept = new Map(); // maps from ids to titles, by table and axis

const keyOf = (table, axis) => `titles:${table.key}:${axis}`;

/** Titles of the members of an axis, by id. */
export function titlesOf(table, axis) {
  const key = keyOf(table, axis);
  if (!kept.has(key)) kept.set(key, new Map(remembered(key) ?? []));
  return kept.get(key);
}

/** A member as people call it: its title, and its id in brackets. */
export function named(table, axis, label) {
  const title = titlesOf(table, axis).get(String(label));
  return title === undefined ? String(label) : `${title} (${label})`;
}

/** Ids whose titles contain a text. */
export function idsOf(table, axis, text, most) {
  const ids = [];
  for (const [id, title] of titlesOf(table, axis)) {
    if (title.toLowerCase().includes(text.toLowerCase())) ids.push(id);
    if (ids.length === most) break;
  }
  return ids;
}

/** The form that reads titles; all that shows members is told of new ones by an event. */
export function titlesForm(table) {
  const status = element("p", { role: "status", className: "soft" });
  const { select, field } = selectElement(
    "Titles for", table.axes.map((axis) => [axis.name, plural(axis.name)]), () => { status.textContent = ""; },
  );
  select.value = table.axes.at(-1).name;
  const file = element("input", { type: "file", accept: ".csv,.tsv,.txt,.dat,.item,text/*" });
  const pasted = element("textarea", { rows: 3, placeholder: "17,Heat", spellcheck: false });
  const use = (text) => { status.textContent = take(table, select.value, text); };
  file.addEventListener("change", async () => {
    if (file.files[0]) use(decode(await file.files[0].arrayBuffer()));
  });
  const remove = () => {
    sessionStorage.removeItem(keyOf(table, select.value));
    kept.delete(keyOf(table, select.value));
    status.textContent = "The titles were removed.";
    document.dispatchEvent(new Event("titles"));
  };
  return element(
    "details", { className: "titles" },
    element("summary", {}, "Titles for ids"),
    element("p", { className: "soft" }, "A file of two columns, the id and its title. It stays in this tab."),
    element("div", { className: "row" }, field, element("label", { className: "field" }, element("span", {}, "File"), file)),
    element("label", { className: "field" }, element("span", {}, "or lines pasted here"), pasted),
    element("div", { className: "row" }, button("Use the pasted titles", () => use(pasted.value)), button("Remove titles", remove, "quiet")),
    status,
  );
}

function take(table, axis, text) {
  const pairs = parse(text).filter((row) => row.length > 1 && row[1].trim() !== "").slice(0, MOST)
    .map(([id, title]) => [id.trim(), title.trim()]);
  if (!pairs.length) return "Two columns are needed, the id and its title, but there are none.";
  const key = keyOf(table, axis);
  kept.set(key, new Map(pairs));
  const stays = remember(key, pairs);
  document.dispatchEvent(new Event("titles"));
  const rest = stays ? "" : " They are too many to keep when the page is loaded again.";
  return `${count(pairs.length)} titles for ${pairs.length === 1 ? singular(axis) : plural(axis)}.${rest}`;
}
