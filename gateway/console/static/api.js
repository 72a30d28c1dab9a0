/** Client of the JSON API at `../api/`. The cookie authenticates, and a header marks requests of the page. */
import { base } from "./router.js";

/** Header of requests that change state. */
export const MARK = { "X-MCP-Gateway-Console": "1" };

/** An error response. `status` is 0 without a response. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const signedOutListeners = new Set();

/** Call a function when a request needs a sign-in. */
export function onSignedOut(listener) {
  signedOutListeners.add(listener);
  return () => signedOutListeners.delete(listener);
}

/** Show the sign-in form. */
export function signedOut() {
  for (const listener of signedOutListeners) listener();
}

export const apiUrl = (path) => new URL(`../api/${path}`, base).href;

/** Send a request, and return its `Response` with any status. A 401 opens the sign-in form. */
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
    throw new ApiError(0, "The gateway does not respond");
  }
  // The sign-in form itself shows the 401 for a wrong key.
  if (response.status === 401 && path !== "session") signedOut();
  return response;
}

/** Send a request, and return the JSON of the response, or null without a body. Error statuses throw `ApiError`. */
export async function request(method, path, options) {
  const response = await send(method, path, options);
  const text = await response.text();
  let document = null;
  try {
    document = text ? JSON.parse(text) : null;
  } catch {
    if (response.ok) throw new ApiError(response.status, "The response is not JSON");
  }
  if (!response.ok) {
    const message = typeof document?.error === "string" ? document.error : `The gateway returned ${response.status}`;
    throw new ApiError(response.status, message);
  }
  return document;
}

export const get = (path, options) => request("GET", path, options);
export const post = (path, body = {}, options) => request("POST", path, { ...options, body });
export const remove = (path, options) => request("DELETE", path, options);
