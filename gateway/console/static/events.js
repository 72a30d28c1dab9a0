/** The event stream of the gateway: one EventSource for all pages, with updates batched by animation frame. */
import { get, apiUrl } from "./api.js";
import { CallLog } from "./call-log.js";
import { useEffect, useState } from "./vendor/htm-preact.js";

const NAMES = ["call", "calls-skipped", "reload", "status", "session", "task", "upstream", "draining"];
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10_000;
/** Minimum milliseconds between updates for calls. More updates would be slow and not visible. */
const CALLS_MS = 150;

/** State from events. `connection` is "connecting", "open", "lost" or "closed". */
export const live = {
  connection: "closed",
  hello: null,
  status: null,

  draining: false,
  calls: new CallLog(),
};

const viewers = new Set();
const followers = new Map();
let source = null;
let wantsCalls = false;
let retryMs = FIRST_RETRY_MS;
let retryTimer = 0;
let drawPending = false;
let lastDraw = 0;

/** Call a function with the data of each event of a type. After "hello", earlier events can be missing. */
export function onEvent(name, follower) {
  if (!followers.has(name)) followers.set(name, new Set());
  followers.get(name).add(follower);
  return () => followers.get(name).delete(follower);
}

/** Return a part of the state, and render again when it changes. */
export function useLive(select) {
  const [value, setValue] = useState(() => select(live));
  useEffect(() => {
    const viewer = () => setValue(() => select(live));
    viewers.add(viewer);
    viewer();
    return () => viewers.delete(viewer);
  }, []);
  return value;
}

function draw() {
  if (drawPending) return;
  drawPending = true;
  const wait = Math.max(0, lastDraw + CALLS_MS - performance.now());
  setTimeout(() => {
    requestAnimationFrame(() => {
      drawPending = false;
      lastDraw = performance.now();
      for (const viewer of viewers) viewer();
    });
  }, wait);
}

function setConnection(connection) {
  live.connection = connection;
  draw();
}

function take(name, event) {
  let data;
  try {
    data = JSON.parse(event.data);
  } catch {
    return;
  }
  if (name === "call") live.calls.put(data);
  else if (name === "calls-skipped") live.calls.skip(data.count);
  else if (name === "status") live.status = data;
  else if (name === "reload" && live.hello) live.hello.generation = data.generation;
  else if (name === "draining") live.draining = true;
  for (const follower of followers.get(name) ?? []) follower(data);
  draw();
}

function greet(event) {
  const hello = JSON.parse(event.data);
  const known = live.hello;
  // Another process has other counters and records.
  if (known !== null && known.started !== hello.started) live.calls.clear();
  live.hello = hello;
  live.draining = false;
  retryMs = FIRST_RETRY_MS;
  setConnection("open");
  // A new stream does not contain earlier events.
  if (known !== null) for (const follower of followers.get("hello") ?? []) follower(hello);
}

/** Open the stream, or open it again. It reconnects until `disconnect`. */
export function connect() {
  disconnect();
  live.connection = live.hello ? live.connection : "connecting";
  const query = new URLSearchParams();
  if (!wantsCalls) query.set("calls", "0");
  const opened = new EventSource(apiUrl(`events?${query}`));
  source = opened;
  opened.addEventListener("hello", greet);
  for (const name of NAMES) opened.addEventListener(name, (event) => take(name, event));
  opened.onerror = () => {
    // The event belongs to an earlier EventSource that is already closed.
    if (source !== opened) return;
    setConnection("lost");
    // Browsers reconnect after a broken connection, but not after an error status.
    if (opened.readyState === EventSource.CLOSED) retry();
  };
}

function retry() {
  disconnect();
  retryTimer = setTimeout(async () => {
    retryMs = Math.min(retryMs * 2, LAST_RETRY_MS);
    try {
      // An EventSource does not expose the status. A plain request does, and a 401 opens the sign-in form.
      await get("");
      connect();
    } catch (error) {
      if (error.status !== 401) retry();
    }
  }, retryMs);
}

export function disconnect() {
  clearTimeout(retryTimer);
  source?.close();
  source = null;
}

/** Whether the stream contains calls, which are most of its events. */
export function wantCalls(wanted) {
  if (wanted === wantsCalls) return;
  wantsCalls = wanted;
  if (source) connect();
}

// Do not wait for the next attempt, which can be late.
addEventListener("online", () => live.connection === "lost" && connect());
