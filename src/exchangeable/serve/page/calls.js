// Calls to the service, with a token if it requires one.

const form = document.querySelector("#token");
let token = sessionStorage.getItem("token");

export class Problem extends Error {}

/** Send a request; return the response as JSON, or itself if raw. Throws a Problem with the reason. */
export async function call(method, path, { body, file, raw = false, signal } = {}) {
  const headers = {};
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  if (file !== undefined) headers["content-type"] = "application/octet-stream";
  const content = body === undefined ? file : JSON.stringify(body);
  let response;
  try {
    response = await fetch(path, { method, headers, body: content, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("the service cannot be reached");
  }
  if (response.status === 401) {
    await askForToken();
    return call(method, path, { body, file, raw, signal });
  }
  if (!response.ok) {
    const { error } = await response.json().catch(() => ({}));
    throw new Problem(error ?? `the service responded with status ${response.status}`);
  }
  return raw ? response : response.json();
}

function askForToken() {
  form.hidden = false;
  form.querySelector("input").focus();
  return new Promise((resolve) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      token = form.querySelector("input").value;
      sessionStorage.setItem("token", token);
      form.hidden = true;
      resolve();
    }, { once: true });
  });
}

/** Create an element with properties and children; strings become text, never markup. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

export const short = (value, digits = 2) => Number(value).toFixed(digits);
