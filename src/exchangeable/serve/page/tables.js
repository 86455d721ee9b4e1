// Tables to explore: those that the service serves, and a file of the person's own.
//
// Both have: key, name, axes (name and members), value, levels, positives, `find` for members of an
// axis, and `part` for the cells of some of them.

import { call } from "./calls.js";
import { idsOf } from "./titles.js";

const FOUND = 20; // members that a search returns

/** Names of the served tables that the token may read. */
export async function listTables() {
  return (await call("GET", "v1/tables")).tables.map((table) => table.name);
}

export class ServedTable {
  /** Read what a table is. */
  static async read(name) {
    const path = `v1/tables/${encodeURIComponent(name)}/`;
    const about = await call("GET", `${path}model`);
    return new ServedTable(path, about, name);
  }

  constructor(path, about, name) {
    this.path = path;
    this.about = about;
    this.key = `${name}:${about.source}`;
    this.name = name;
    this.axes = about.axes;
    this.value = about.value;
    this.levels = about.levels;
    this.positives = about.scale.startsWith("positives");
  }

  /** Members whose label or title contains a text: label and number of cells. */
  async find(axis, text, signal) {
    const search = async (holding, limit) => {
      const query = new URLSearchParams({ axis, holding: holding.slice(0, 200), limit });
      return (await call("GET", `${this.path}members?${query}`, { signal })).members;
    };
    const ids = text ? idsOf(this, axis, text, 8) : [];
    const titled = await Promise.all(ids.map(async (id) =>
      (await search(id, FOUND)).find((one) => String(one.label) === id)));
    const matches = await search(text, FOUND);
    const known = titled.filter((one) => one !== undefined);
    return [...known, ...matches.filter((one) => !known.some((other) => other.label === one.label))];
  }

  /** Cells of some members of both axes; of those with the most cells where none are named. */
  async part({ rows = null, columns = null, given = {} }, signal) {
    const body = { rows, columns, given };
    return (await call("POST", `${this.path}explore`, { body, signal })).picture;
  }

  recommend(body, signal) {
    return call("POST", `${this.path}recommend`, { body, signal });
  }
}

export class FileTable {
  constructor(file, look) {
    this.key = `file:${file.name}`;
    this.name = file.name;
    this.axes = look.axes;
    this.value = look.value;
    this.levels = look.levels;
    this.positives = look.positives;
    this.picture = look.picture;
  }

  async find(axis, text) {
    const place = this.axes.findIndex((one) => one.name === axis);
    const labels = place === 0 ? this.picture.rows : this.picture.columns;
    const ids = new Set(text ? idsOf(this, axis, text, FOUND) : []);
    const wanted = text.toLowerCase();
    const fits = (label) => String(label).toLowerCase().includes(wanted) || ids.has(String(label));
    return labels.flatMap((label, at) => (fits(label) ? [{ label, cells: this.observed(place, at) }] : [])).slice(0, FOUND);
  }

  observed(place, at) {
    const line = place === 0 ? this.picture.observed[at] : this.picture.observed.map((row) => row[at]);
    return line.filter((value) => value !== null).length;
  }

  async part({ rows = null, columns = null }) {
    const { picture } = this;
    const places = (labels, chosen) => (chosen ?? labels).map((label) => labels.indexOf(label));
    const down = places(picture.rows, rows);
    const across = places(picture.columns, columns);
    const take = (values) => down.map((r) => across.map((c) => values[r][c]));
    const parts = ["observed", "mean", "low", "high"].map((name) => [name, take(picture[name])]);
    return {
      rows: down.map((r) => picture.rows[r]), columns: across.map((c) => picture.columns[c]), ...Object.fromEntries(parts),
    };
  }
}
