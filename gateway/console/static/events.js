/** The events of the gateway: one EventSource feeds what the pages show, batched by animation frame. */
import { get, apiUrl } from "./api.js";
import { CallLog } from "./call-log.js";
import { useEffect, useState } from "./vendor/htm-preact.js";

const NAMES = ["call", "calls-skipped", "reload", "status", "session", "task", "upstream", "draining"];
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10_000;
/** Calls are drawn this often at most; a frame in between would cost more than an eye can see. */
const CALLS_MS = 150;

/** What the events have told: `connection` is "connecting", "open", "lost" or "closed". */
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
let lastId = "";
let retryMs = FIRST_RETRY_MS;
let retryTimer = 0;
let drawPending = false;
let lastDraw = 0;

/** Calls back with the data of each event of a name; "hello" comes where some may have been missed. */
export function onEvent(name, follower) {
  if (!followers.has(name)) followers.set(name, new Set());
  followers.get(name).add(follower);
  return () => followers.get(name).delete(follower);
}

/** Draws again when what `select` takes from the store has changed. */
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
  if (event.lastEventId) lastId = event.lastEventId;
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
  const mayHaveMissed = known !== null && (live.connection === "lost" || known.generation !== hello.generation);
  // Another process counts its calls anew, and does not have those of the one before.
  if (known !== null && known.started !== hello.started) {
    live.calls.clear();
    lastId = "";
  }
  live.hello = hello;
  live.draining = false;
  retryMs = FIRST_RETRY_MS;
  setConnection("open");
  if (mayHaveMissed) for (const follower of followers.get("hello") ?? []) follower(hello);
}

/** Opens the stream, or opens it anew; it mends itself until `disconnect`. */
export function connect() {
  disconnect();
  live.connection = live.hello ? live.connection : "connecting";
  const query = new URLSearchParams();
  if (!wantsCalls) query.set("calls", "0");
  // A new EventSource sends no Last-Event-ID.
  if (lastId) query.set("since", lastId);
  const opened = new EventSource(apiUrl(`events?${query}`));
  source = opened;
  opened.addEventListener("hello", greet);
  for (const name of NAMES) opened.addEventListener(name, (event) => take(name, event));
  opened.onerror = () => {
    // An older one, which was closed to open this one.
    if (source !== opened) return;
    setConnection("lost");
    // A browser retries by itself after a broken connection, and never after a refusal or another status.
    if (opened.readyState === EventSource.CLOSED) retry();
  };
}

function retry() {
  disconnect();
  retryTimer = setTimeout(async () => {
    retryMs = Math.min(retryMs * 2, LAST_RETRY_MS);
    try {
      // An EventSource does not tell a refusal's status: a plain request does, and a 401 leads to the sign-in.
      await get("");
      connect();
    } catch (error) {
      if (error.status !== 401) retry();
    }
  }, retryMs);
}

/** Closes the stream. */
export function disconnect() {
  clearTimeout(retryTimer);
  source?.close();
  source = null;
}

/** Whether the stream brings calls, which cost most. */
export function wantCalls(wanted) {
  if (wanted === wantsCalls) return;
  wantsCalls = wanted;
  if (source) connect();
}

// Sooner than the pause between two attempts, which may be long by then.
addEventListener("online", () => live.connection === "lost" && connect());
