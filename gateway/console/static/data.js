/** Documents of the API that a page shows: kept between pages, and fetched again when something happened. */
import { get } from "./api.js";
import { onEvent } from "./events.js";
import { useCallback, useEffect, useRef, useState } from "./vendor/htm-preact.js";

const MAX_KEPT = 20;
/** Many events within this time lead to one request. */
const SETTLE_MS = 300;
const kept = new Map();

/** Forgets all documents, as after a sign-out. */
export function forgetDocuments() {
  kept.clear();
}

function keep(path, data) {
  // Put in again, and so the newest: a Map keeps the order in which its keys came.
  kept.delete(path);
  kept.set(path, data);
  if (kept.size > MAX_KEPT) kept.delete(kept.keys().next().value);
}

/**
 * The document at a path of the API, as `{data, error, refresh}`: what was known is shown until the new one is here.
 * `on` names the events after which it is fetched again, `everyMs` a period; null as path fetches nothing.
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
    // A tab that nobody sees asks for nothing.
    const period = everyMs ? setInterval(() => document.hidden || refresh(), everyMs) : 0;
    const ends = ["hello", ...on].map((name) => onEvent(name, soon));
    return () => {
      running.current?.abort();
      clearTimeout(timer);
      clearInterval(period);
      for (const end of ends) end();
    };
  }, [path, refresh]);
  // After a change of the path, the state is the older document's until the effect has run.
  const shown = state.path === path ? state : { data: kept.get(path) ?? null, error: null };
  return { data: shown.data, error: shown.error, refresh };
}
