// Calls to the service, with a token where one is needed.

const form = document.querySelector("#token");
let token = sessionStorage.getItem("token");

export class Problem extends Error {}

/** What the service answers: JSON, or the response itself. Throws with the reason, in one line. */
export async function call(method, path, { body, file, raw = false, signal } = {}) {
  const headers = {};
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  if (file !== undefined) headers["content-type"] = "application/octet-stream";
  const content = body === undefined ? file : JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: content, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("the service cannot be reached");
  }
  if (answer.status === 401) {
    await askForToken();
    return call(method, path, { body, file, raw, signal });
  }
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw new Problem(told.error ?? `the service answered ${answer.status}`);
  }
  return raw ? answer : answer.json();
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

/** An element with properties and children; texts are texts, whatever stands in them. */
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
