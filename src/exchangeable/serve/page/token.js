// The token of the service: asked for when it is needed, changed at will, kept in this tab only.

import { remember, remembered } from "./dom.js";

const form = document.querySelector("#token");
const input = form.querySelector("input[type=password], input[type=text]");
const reason = form.querySelector("#token-reason");
const show = form.querySelector("#token-show");
const change = document.querySelector("#token-change");

let token = remembered("token");
let asking = null; // a promise, while the form is open
let answered;

export function startToken() {
  change.hidden = !token;
  change.addEventListener("click", () => askForToken("The next request uses the new token."));
  show.addEventListener("change", () => { input.type = show.checked ? "text" : "password"; });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    take(input.value);
  });
}

/** Headers that carry the token. */
export const tokenHeaders = () => (token ? { authorization: `Bearer ${token}` } : {});

export const currentToken = () => token;

/** Ask the person for a token; all requests that need one wait for the same answer. */
export function askForToken(text) {
  reason.textContent = text;
  form.hidden = false;
  input.focus();
  asking ??= new Promise((resolve) => { answered = resolve; });
  return asking;
}

function take(text) {
  // What is copied along with a token: blanks around it, quotes, and the word before it.
  const cleaned = text.trim().replace(/^authorization:\s*/i, "").replace(/^bearer\s+/i, "").replace(/^["']|["']$/g, "");
  if (!/^[\x21-\x7e]+$/.test(cleaned)) {
    reason.textContent = "A token has letters, digits and signs, without blanks or accents: paste it again.";
    input.focus();
    return;
  }
  token = cleaned;
  remember("token", token);
  input.value = "";
  form.hidden = true;
  change.hidden = false;
  asking = null;
  answered?.();
}
