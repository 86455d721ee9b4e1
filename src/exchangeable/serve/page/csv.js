// Text files of rows and fields, read and written in the browser.

/** Decode bytes as UTF-8, or else as the encoding of old files. */
export function decode(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

/** Split text into rows of fields; the separator is the one that comes first. */
export function parse(text) {
  const separator = text.match(/::|\t|;|\||,/)?.[0] ?? ",";
  const rows = [];
  let row = [];
  let field = "";
  let quoted = false;
  for (let at = 0; at < text.length; at++) {
    const letter = text[at];
    if (quoted) {
      if (letter !== '"') field += letter;
      else if (text[at + 1] === '"') field += text[++at];
      else quoted = false;
    } else if (letter === '"' && field === "") {
      quoted = true;
    } else if (text.startsWith(separator, at)) {
      row.push(field);
      field = "";
      at += separator.length - 1;
    } else if (letter === "\n" || letter === "\r") {
      if (letter === "\r" && text[at + 1] === "\n") at++;
      rows.push([...row, field]);
      [row, field] = [[], ""];
    } else {
      field += letter;
    }
  }
  if (field !== "" || row.length) rows.push([...row, field]);
  return rows.filter((one) => one.length > 1 || one[0].trim() !== "");
}

const quote = (field) => {
  const text = field === null || field === undefined ? "" : String(field);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

/** Rows of fields as a file. */
export function csvBlob(rows) {
  const lines = rows.map((row) => row.map(quote).join(","));
  return new Blob([`${lines.join("\n")}\n`], { type: "text/csv;charset=utf-8" });
}
