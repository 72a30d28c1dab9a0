/** The calls of this browser session, newest first. Results are not kept. Arguments are kept without passwords. */

import { useEffect, useState } from "../components.js";

const KEY = "mcp-gateway-calls";
const MOST = 50;
const listeners = new Set();
let calls = stored();

function stored() {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY));
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

function change(next) {
  calls = next.slice(0, MOST);
  try {
    if (calls.length) sessionStorage.setItem(KEY, JSON.stringify(calls));
    else sessionStorage.removeItem(KEY);
  } catch {
    // Without storage, the list lasts until the page is loaded again.
  }
  for (const listener of listeners) listener(calls);
}

let prepared = null;

/** Keep arguments for the next form of a target. Not in the URL, because they can contain passwords. */
export function prepare(target, values) {
  prepared = { target, values };
}

/** Return the prepared arguments of a target once, or undefined. */
export function takePrepared(target) {
  const found = prepared;
  prepared = null;
  return found?.target === target ? found.values : undefined;
}

/** Add `{kind, name, href, at, ms, state}`. The link contains the arguments. */
export const remember = (call) => change([call, ...calls]);

/** Remove all calls, for example after a sign-out. */
export const forgetCalls = () => change([]);

export function useHistory() {
  const [shown, setShown] = useState(calls);
  useEffect(() => {
    listeners.add(setShown);
    return () => listeners.delete(setShown);
  }, []);
  return shown;
}
