/** Sends requests to `../api/mcp`, and handles input requests, retries and tasks. */

import { MARK, apiUrl, signedOut } from "../api.js";
import { parse } from "./json.js";
import { EventParser, TASKS, requestOf, withProgress } from "./wire.js";

const MISSING_CAPABILITY = -32021;
const MOST_ROUNDS = 50;
const [SHORTEST_PAUSE, LONGEST_PAUSE] = [200, 2000];

/** A JSON-RPC error. */
export class McpError extends Error {
  constructor({ message, code, data }) {
    super(message);
    Object.assign(this, { code, data });
  }
}

let ids = 0;

const NO_ANSWER = "The connection was closed before the response arrived";

/** The message for a failed fetch, which differs between browsers. */
const unanswered = (error) => {
  throw error.name === "AbortError" ? error : new Error(NO_ANSWER);
};

/** Send one request, and return `{result, bytes}`. Throws `McpError` for a JSON-RPC error, `Error` without a response. */
export async function send(method, params, { signal, onNotification, view, ...options } = {}) {
  const id = `console-${(ids += 1)}`;
  const meta = onNotification && withProgress(id);
  const { headers, body } = requestOf(method, params, { id, meta, ...options });
  const response = await fetch(apiUrl(view ? `mcp?view=${encodeURIComponent(view)}` : "mcp"), {
    method: "POST", headers: { ...headers, ...MARK }, body, signal, cache: "no-store", credentials: "same-origin",
  }).catch(unanswered);
  if (response.status === 401) signedOut();
  const isStream = response.headers.get("Content-Type")?.startsWith("text/event-stream");
  const answer = isStream ? await lastOf(response.body, onNotification) : answerOf(await response.text().catch(unanswered), response.status);
  if (answer.message.error) throw new McpError(answer.message.error);
  return { result: answer.message.result, bytes: answer.bytes };
}

async function lastOf(body, onNotification) {
  const [parser, decoder, reader] = [new EventParser(), new TextDecoder(), body.getReader()];
  for (;;) {
    const { done, value } = await reader.read().catch(unanswered);
    if (done) throw new Error(NO_ANSWER);
    for (const data of parser.feed(decoder.decode(value, { stream: true }))) {
      const message = parse(data);
      if (!message.method) return { message, bytes: data.length };
      onNotification?.(message);
    }
  }
}

function answerOf(text, status) {
  let message;
  try {
    message = parse(text);
  } catch {
    throw new Error(`The gateway returned ${status}`);
  }
  if (typeof message.error === "string" || (!message.error && !message.result)) throw new Error(message.error ?? `The gateway returned ${status}`);
  return { message, bytes: text.length };
}

/** POST to the console API with exact numbers. */
export async function post(path, text, signal) {
  const headers = { "Content-Type": "application/json", ...MARK };
  const response = await fetch(apiUrl(path), { method: "POST", headers, body: text, signal, credentials: "same-origin" });
  if (response.status === 401) signedOut();
  const answer = parse(await response.text());
  if (!response.ok) throw new Error(typeof answer.error === "string" ? answer.error : `The gateway returned ${response.status}`);
  return answer;
}

/**
 * Send a request until it has a result. `ask` responds to input requests, and `onTask` receives a task's state. A tool that
 * requires a task is called again as a task.
 */
export async function perform(method, params, { ask, onTask, asTask, ...options }) {
  let more = {};
  let isTask = asTask;
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    let answer;
    try {
      answer = await send(method, { ...params, ...more }, { ...options, asTask: isTask });
    } catch (error) {
      // The tool requires a task: try once more with that capability.
      if (isTask || error.code !== MISSING_CAPABILITY || !error.data?.requiredCapabilities?.extensions?.[TASKS]) throw error;
      isTask = true;
      continue;
    }
    const { result } = answer;
    if (result.resultType === "task") return follow(result, { ...options, ask, onTask });
    if (result.resultType !== "input_required") return answer;
    // Without input requests, the server only asks for a retry. Wait longer each time.
    const given = result.inputRequests ? await ask(result.inputRequests) : await pause(SHORTEST_PAUSE * (round + 1), options.signal);
    more = {
      inputResponses: { ...more.inputResponses, ...given },
      ...(result.requestState !== undefined && { requestState: result.requestState }),
    };
  }
  throw new Error(`The server requested input ${MOST_ROUNDS} times`);
}

// Repeated arguments and progress belong to the call, not to the requests about its task.
async function follow(task, { ask, onTask, signal, view, schema: _, onNotification: __, ...options }) {
  const { taskId } = task;
  const asked = new Set();
  const update = (method, params) => send(method, { taskId, ...params }, { ...options, view, asTask: true });
  try {
    for (;;) {
      signal.throwIfAborted();
      const { result, bytes } = await send("tasks/get", { taskId }, { ...options, view, signal, asTask: true });
      onTask({ ...result, taskId });
      if (result.status === "completed") return { result: result.result, bytes };
      if (result.status === "failed") throw new McpError(result.error);
      if (result.status === "cancelled") throw new Error("The task was cancelled");
      const open = Object.entries(result.inputRequests ?? {}).filter(([key]) => !asked.has(key));
      if (open.length) {
        const inputResponses = await ask(Object.fromEntries(open));
        for (const [key] of open) asked.add(key);
        await update("tasks/update", { inputResponses });
      }
      await pause(Math.min(LONGEST_PAUSE, Math.max(SHORTEST_PAUSE, result.pollIntervalMs ?? 0)), signal);
    }
  } catch (error) {
    // A task continues without its caller, so it must be cancelled too.
    if (signal.aborted) await update("tasks/cancel", {}).catch(() => {});
    throw error;
  }
}

const pause = (ms, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, ms);
  signal?.addEventListener("abort", () => {
    clearTimeout(timer);
    reject(signal.reason);
  }, { once: true });
});
