// Elements of the page. Texts become text, never markup.

/** Create an element with properties and children. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** A name of a member: cut by the style sheet if it is long, in its own direction of writing. */
export function nameElement(text) {
  return element("bdi", { className: "name", title: text }, text);
}

/** A place for a table that may be wider than the screen: the keyboard can move it, too. */
export const tableBox = (ariaLabel) => element("div", { className: "cells", role: "region", tabIndex: 0, ariaLabel });

export function button(text, onClick, className = "") {
  const made = element("button", { type: "button", className }, text);
  made.addEventListener("click", onClick);
  return made;
}

let selects = 0;

/** A select in a field with its label: options are pairs of value and text. */
export function selectElement(text, options, onChange) {
  const id = `select-${++selects}`;
  const select = element("select", { id }, ...options.map(([value, shown]) => element("option", { value }, shown)));
  select.addEventListener("change", () => onChange(select.value));
  return { select, field: element("div", { className: "field" }, element("label", { htmlFor: id }, text), select) };
}

const PATIENCE = 300; // milliseconds without a word

/** Wait for some work, and show how long it has taken if it is not done at once. */
export async function busy(status, text, work) {
  const started = Date.now();
  const seconds = element("span", { "aria-hidden": "true" });
  const show = () => {
    if (!seconds.isConnected) status.replaceChildren(text, element("progress", { ariaLabel: text }), seconds);
    const passed = Math.floor((Date.now() - started) / 1000);
    seconds.textContent = passed ? `${passed} s` : "";
  };
  let ticking;
  const first = setTimeout(() => {
    show();
    ticking = setInterval(show, 1000);
  }, PATIENCE);
  try {
    return await work;
  } finally {
    clearTimeout(first);
    clearInterval(ticking);
    if (seconds.isConnected) status.replaceChildren();
  }
}

/** Save text as a file of the person's. */
export function save(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000); // some browsers read it later
}

/** What is kept in this tab, until it is closed; null if nothing is. */
export function remembered(key) {
  try {
    return JSON.parse(sessionStorage.getItem(key));
  } catch {
    return null;
  }
}

/** Keep something in this tab; false if it is too much. */
export function remember(key, value) {
  try {
    sessionStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
