/** The client of the JSON API at `../api/`: the cookie signs in, a header marks what the page sends. */
import { base } from "./router.js";

/** The header that a request of the page carries where it changes something. */
export const MARK = { "X-MCP-Gateway-Console": "1" };

/** An answer that is no success; `status` is 0 where there was none. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const signedOutListeners = new Set();

/** Calls back when a request was refused for want of a sign-in. */
export function onSignedOut(listener) {
  signedOutListeners.add(listener);
  return () => signedOutListeners.delete(listener);
}

/** Tells the page that the session is over. */
export function signedOut() {
  for (const listener of signedOutListeners) listener();
}

export const apiUrl = (path) => new URL(`../api/${path}`, base).href;

/** Sends a request and gives back its `Response`, whatever its status; a 401 leads to the sign-in form. */
export async function send(method, path, { body, headers, signal } = {}) {
  const sent = { Accept: "application/json", ...(method === "GET" ? {} : MARK), ...headers };
  if (body !== undefined) sent["Content-Type"] ??= "application/json";
  let response;
  try {
    response = await fetch(apiUrl(path), {
      method,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The gateway does not answer");
  }
  // A wrong key at the sign-in is also a 401, and the form itself shows it.
  if (response.status === 401 && path !== "session") signedOut();
  return response;
}

/** Sends a request and gives back the JSON of its answer (null for an empty one); other answers raise `ApiError`. */
export async function request(method, path, options) {
  const response = await send(method, path, options);
  const text = await response.text();
  let document = null;
  try {
    document = text ? JSON.parse(text) : null;
  } catch {
    if (response.ok) throw new ApiError(response.status, "The answer is not JSON");
  }
  if (!response.ok) {
    const message = typeof document?.error === "string" ? document.error : `The gateway answered ${response.status}`;
    throw new ApiError(response.status, message);
  }
  return document;
}

export const get = (path, options) => request("GET", path, options);
export const post = (path, body = {}, options) => request("POST", path, { ...options, body });
export const remove = (path, options) => request("DELETE", path, options);
