// Calls to the service, with a token if it requires one.

import { askForToken, currentToken, tokenHeaders } from "./token.js";

export class Problem extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

// Browsers round whole numbers of more than 15 digits, which labels may have: they stay texts, and
// the service takes both. Texts and other numbers are matched too, so that nothing in them is.
const WORDS = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;

/** Parse JSON without a loss of digits. */
export const parseExactly = (text) =>
  JSON.parse(text.replace(WORDS, (word) => (/^-?\d{16,}$/.test(word) ? `"${word}"` : word)));

/** Send a request; return the response as JSON, or itself if raw. Throws a Problem with the reason. */
export async function call(method, path, { body, file, raw = false, signal } = {}) {
  const used = currentToken();
  const headers = tokenHeaders();
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
    // Another request may have brought a new token in the meantime.
    if (used === currentToken()) {
      await askForToken(used ? "This token was not accepted. Paste it again." : "This service needs a token.");
    }
    signal?.throwIfAborted();
    return call(method, path, { body, file, raw, signal });
  }
  if (!response.ok) {
    const { error } = await response.json().catch(() => ({}));
    throw new Problem(error ?? `the service responded with status ${response.status}`, response.status);
  }
  return raw ? response : parseExactly(await response.text());
}

/** Show the reason of a Problem; whatever else went wrong is thrown on, but not what was given up. */
export function explain(error, status) {
  if (error.name === "AbortError") return;
  if (!(error instanceof Problem)) throw error;
  status.textContent = error.message;
  status.classList.add("bad");
}
