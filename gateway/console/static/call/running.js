/** The state of a running call, and its view. */

import { Badge, html, useEffect, useRef, useState } from "../components.js";
import { duration } from "../format.js";
import { link } from "../router.js";
import { stringify } from "./json.js";
import { perform } from "./run.js";

const MOST_LINES = 500;

/** Return `begin`, `cancel` and the state of a call. */
export function useRun() {
  const [state, setState] = useState({});
  const abort = useRef(null);
  useEffect(() => () => abort.current?.abort(), []);
  const begin = async (method, params, { onEnd, ...options }) => {
    abort.current?.abort();
    const controller = (abort.current = new AbortController());
    const { signal } = controller;
    const since = performance.now();
    const update = (change) => {
      const next = (old) => ({ ...old, ...(typeof change === "function" ? change(old) : change) });
      // A replaced call must not overwrite the state of its successor.
      if (abort.current === controller) setState(next);
    };
    const onNotification = ({ method: kind, params: told }) => {
      if (kind === "notifications/progress") update({ progress: told });
      else if (kind === "notifications/message") update(({ lines }) => ({ lines: [...lines, told].slice(-MOST_LINES) }));
    };
    const ask = (requests) => new Promise((resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      update({ questions: { requests, done: (answers) => { update({ questions: null }); resolve(answers); } } });
    });
    setState({ isRunning: true, since, lines: [] });
    const ended = (how) => {
      const outcome = { ...how, ms: performance.now() - since };
      onEnd(outcome);
      update({ isRunning: false, questions: null, outcome });
    };
    try {
      ended(await perform(method, params, { ...options, signal, onNotification, ask, onTask: (task) => update({ task }) }));
    } catch (error) {
      ended({ error });
    }
  };
  return { ...state, begin, cancel: () => abort.current?.abort(), reset: () => setState({}) };
}

export function Running({ run }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = run.isRunning && setInterval(() => tick(performance.now()), 100);
    return () => clearInterval(timer);
  }, [run.isRunning]);
  const { progress, task, lines = [] } = run;
  return html`<div class="running">
    ${run.isRunning && html`<p><span role="status">Running…</span> <span aria-hidden="true">${duration(performance.now() - run.since)}</span></p>`}
    ${task && html`<p>Task <a href=${link("tasks")}><code>${task.taskId}</code></a> <${Badge} state=${task.status} /> ${task.statusMessage}</p>`}
    ${progress && html`<p>
      <progress aria-label="Progress" value=${progress.total ? Number(progress.progress) : undefined} max=${progress.total ?? undefined}></progress>
      ${" "}${String(progress.progress)}${progress.total ? ` of ${progress.total}` : ""} ${progress.message}</p>`}
    ${lines.length > 0 && html`<div class="log code" role="log" aria-label="Log lines" tabindex="0">
      ${lines.map((line, index) => html`<div key=${index}>
      <b>${line.level}</b> ${typeof line.data === "string" ? line.data : stringify(line.data)}</div>`)}</div>`}</div>`;
}
