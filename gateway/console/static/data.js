/** Documents of the API: cached between pages, and fetched again after events. */
import { get } from "./api.js";
import { onEvent } from "./events.js";
import { useCallback, useEffect, useRef, useState } from "./vendor/htm-preact.js";

const MAX_KEPT = 20;
/** Events within this time cause only one request. */
const SETTLE_MS = 300;
const kept = new Map();

/** Remove all documents, for example after a sign-out. */
export function forgetDocuments() {
  kept.clear();
}

function keep(path, data) {
  // Insert again as the newest, because a Map keeps the order of insertion.
  kept.delete(path);
  kept.set(path, data);
  if (kept.size > MAX_KEPT) kept.delete(kept.keys().next().value);
}

/**
 * Return the document at a path of the API as `{data, error, refresh}`. The cached document is shown until the new one
 * arrives. It is fetched again after the events `on` and every `everyMs`. A null path fetches nothing.
 */
export function useDocument(path, { on = [], everyMs = 0 } = {}) {
  const [state, setState] = useState({ path, data: kept.get(path) ?? null, error: null });
  const running = useRef(null);
  const refresh = useCallback(async () => {
    if (path === null) return;
    running.current?.abort();
    const abort = new AbortController();
    running.current = abort;
    try {
      const data = await get(path, { signal: abort.signal });
      keep(path, data);
      setState({ path, data, error: null });
    } catch (error) {
      if (error.name !== "AbortError") setState({ path, data: kept.get(path) ?? null, error });
    }
  }, [path]);
  useEffect(() => {
    refresh();
    let timer = 0;
    const soon = () => {
      timer ||= setTimeout(() => {
        timer = 0;
        refresh();
      }, SETTLE_MS);
    };
    // Hidden tabs send no requests.
    const period = everyMs ? setInterval(() => document.hidden || refresh(), everyMs) : 0;
    const ends = ["hello", ...on].map((name) => onEvent(name, soon));
    return () => {
      running.current?.abort();
      clearTimeout(timer);
      clearInterval(period);
      for (const end of ends) end();
    };
  }, [path, refresh]);
  // After a change of the path, the state belongs to the previous path until the effect runs.
  const shown = state.path === path ? state : { data: kept.get(path) ?? null, error: null };
  return { data: shown.data, error: shown.error, refresh };
}
