// The choice of what the columns of a file are.

import { element, selectElement } from "./dom.js";

const ROLES = [["", "not used"], ["label", "names"], ["value", "value"]];
const FORMS = [["", "as it looks"], ["false", "long: one cell in each row"], ["true", "wide: a column for each member"]];
const MEANINGS = [["false", "ratings or measurements"], ["true", "likes: something happened"]];
const DUPLICATES = [
  ["error", "are an error"], ["mean", "get the mean"], ["last", "keep the last value"], ["first", "keep the first value"],
  ["max", "keep the highest value"], ["sum", "get the sum"], ["count", "are counted"],
];
const ENCODINGS = [
  ["", "UTF-8, or as it is marked"], ["cp1252", "Windows, Western"], ["latin-1", "Latin-1"], ["cp1250", "Windows, Central European"],
  ["cp1251", "Windows, Cyrillic"], ["cp1253", "Windows, Greek"], ["cp1254", "Windows, Turkish"], ["shift_jis", "Shift JIS, Japanese"],
  ["gb18030", "GB 18030, Chinese"], ["euc_kr", "EUC-KR, Korean"], ["utf-16-le", "UTF-16, not marked"],
];
const HEADERS = [["", "as it looks"], ["true", "titles"], ["false", "a row"]];
const SEPARATORS = [["", "as it looks"], [",", "commas"], [";", "semicolons"], ["\t", "tabs"], ["|", "|"], ["::", "::"]];
const DECIMALS = [["", "as it looks"], [".", "point"], [",", "comma"]];
const OF_TEXT = ["encoding", "header", "separator", "decimal"]; // parameters that are sent if chosen
const MOST_SHOWN = 12; // columns of a wide table

/** The form for a file that was just chosen; `changed` is called after each choice. */
export function columnsForm(changed) {
  const options = document.querySelector("#options");
  const preview = document.querySelector("#preview");
  const chosen = { wide: "", likes: "false", duplicates: "error", label: null, roles: null, encoding: "", header: "", separator: "", decimal: "" };
  let titles = [];
  let names = null; // the column of names of a wide table

  const select = (text, choices, key) => {
    const made = selectElement(text, choices, (value) => {
      chosen[key] = value;
      if (["wide", "header", "separator", "encoding"].includes(key)) Object.assign(chosen, { roles: null, label: null });
      changed();
    });
    made.select.value = chosen[key];
    return made.field;
  };
  names = element("span");
  options.replaceChildren(
    select("The table is", FORMS, "wide"), names, select("Values are", MEANINGS, "likes"),
    select("Cells that occur more than once", DUPLICATES, "duplicates"),
    select("First line", HEADERS, "header"), select("Text encoding", ENCODINGS, "encoding"),
    select("Fields are separated by", SEPARATORS, "separator"), select("Decimal mark", DECIMALS, "decimal"),
  );

  /** A column as the service takes it: by its title, or by number where the title has a comma. */
  const reference = (at) => (titles[at].includes(",") || titles[at].length > 150 || !titles[at] ? String(at + 1) : titles[at]);

  /** The choices as the parameters of a call. */
  function query() {
    const parameters = new URLSearchParams({ likes: chosen.likes, duplicates: chosen.duplicates, wording: "fields" });
    for (const key of OF_TEXT) if (chosen[key]) parameters.set(key, chosen[key]);
    if (chosen.wide) parameters.set("wide", chosen.wide);
    if (chosen.label !== null) parameters.set("axes", reference(chosen.label));
    if (chosen.roles === null) return parameters;
    const places = (role) => chosen.roles.flatMap((one, at) => (one === role ? [at] : []));
    if (places("label").length) parameters.set("axes", places("label").map(reference).join(","));
    const [value] = places("value");
    if (value !== undefined) parameters.set("value", reference(value));
    else if (chosen.likes === "true") parameters.set("duplicates", "count"); // each row is one
    return parameters;
  }

  /** Show the first rows, and how their columns were read. */
  function show(found) {
    titles = found.columns;
    const { table } = found;
    const wide = table?.wide ?? chosen.wide === "true";
    names.replaceChildren(...(wide ? [nameSelect(table)] : []));
    const roles = chosen.roles ?? titles.map((title) => roleOf(title, table));
    const shown = wide ? titles.slice(0, MOST_SHOWN) : titles;
    const heads = shown.map((title, at) => element("th", { scope: "col" },
      element("bdi", { className: "name" }, title || `column ${at + 1}`), wide ? null : roleSelect(at, roles)));
    const rows = found.rows.map((row) => element("tr", {},
      ...shown.map((_, at) => element("td", {}, element("bdi", { className: "name" }, row[at] ?? "–")))));
    const hidden = titles.length - shown.length + found.further_columns;
    const caption = `First rows${hidden ? `, without ${hidden} further columns` : ""}`;
    preview.replaceChildren(element("table", {}, element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)));
  }

  function roleOf(title, table) {
    if (table?.axes.some((axis) => axis.name === title)) return "label";
    return table?.value === title ? "value" : "";
  }

  function roleSelect(at, roles) {
    const made = element("select", { ariaLabel: `Use of the column ${titles[at] || at + 1}` },
      ...ROLES.map(([value, text]) => element("option", { value, selected: roles[at] === value }, text)));
    made.addEventListener("change", () => {
      const other = made.value === "value" ? roles.map((role) => (role === "value" ? "" : role)) : roles;
      chosen.roles = other.map((role, place) => (place === at ? made.value : role));
      chosen.wide = "false";
      options.querySelector("select").value = "false";
      changed();
    });
    return made;
  }

  function nameSelect(table) {
    const now = chosen.label ?? titles.indexOf(table?.axes[0]?.name);
    const made = selectElement("Rows are named by", [...(now < 0 ? [[-1, "their number"]] : []), ...titles.map((title, at) => [at, title || `column ${at + 1}`])], (value) => {
      chosen.label = Number(value);
      chosen.wide = "true"; // the service looks for wide tables only where no columns are named
      options.querySelector("select").value = "true";
      changed();
    });
    made.select.value = now;
    return made.field;
  }

  /** Show that there are no columns to choose from; the file may be read in another way. */
  function clear() {
    titles = [];
    names.replaceChildren();
    preview.replaceChildren();
  }

  return { query, show, clear };
}
