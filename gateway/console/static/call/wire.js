/** Requests of stateless Streamable HTTP, and the event streams of responses. Pure. */

import { ExactNumber, isObject, member, stringify } from "./json.js";

/** The server replaces the placeholder with the newest revision. */
export const REVISION = "@LATEST_MODERN@";
export const TASKS = "io.modelcontextprotocol/tasks";
const META = "io.modelcontextprotocol/";
/** Methods that need `Mcp-Name`, and the parameter that the header repeats. */
const NAMED = {
  "tools/call": "name", "prompts/get": "name", "resources/read": "uri",
  "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
};
const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
const CLIENT = { name: "mcp-gateway-console", version: "1" };

/** Return a header field value for a text, in base64 if necessary (SEP-2243). */
export function fieldValue(text) {
  if (/^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !text.startsWith("=?base64?")) return text;
  return `=?base64?${btoa(String.fromCharCode(...new TextEncoder().encode(text)))}?=`;
}

/** Return the header fields and body of a request. `schema` is the tool's input schema, for `x-mcp-header` inputs. */
export function requestOf(method, params, { id = 1, meta = {}, asTask = false, schema = null, client = CLIENT } = {}) {
  const capabilities = { ...CAPABILITIES, ...(asTask && { extensions: { [TASKS]: {} } }) };
  const fields = {
    [`${META}protocolVersion`]: REVISION,
    [`${META}clientCapabilities`]: client ? capabilities : {},
    ...(client && { [`${META}clientInfo`]: client }),
    ...meta,
  };
  const headers = {
    "Content-Type": "application/json",
    Accept: "application/json, text/event-stream",
    "MCP-Protocol-Version": REVISION,
    "Mcp-Method": method,
    ...(NAMED[method] && { "Mcp-Name": fieldValue(params[NAMED[method]]) }),
    ...(schema && mirrored(schema, params.arguments ?? {})),
  };
  return { headers, body: stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta: fields } }) };
}

export const withProgress = (token) => ({ progressToken: token, [`${META}logLevel`]: "debug" });

function mirrored(schema, values) {
  const found = {};
  for (const [name, below] of Object.entries(schema.properties ?? {})) {
    const value = isObject(values) ? member(values, name) : undefined;
    if (!isObject(below) || value === undefined || value === null) continue;
    const header = below["x-mcp-header"];
    if (header) found[`Mcp-Param-${header}`] = fieldValue(typeof value === "string" ? value : stringify(value));
    else if (isObject(value) && !(value instanceof ExactNumber)) Object.assign(found, mirrored(below, value));
  }
  return found;
}

/** Parses an event stream (WHATWG HTML) in chunks. Lines end with CR, LF or both. */
export class EventParser {
  #rest = "";
  #data = [];

  /** Return the data of the events that a chunk completes. */
  feed(piece) {
    const text = this.#rest + piece;
    // A CR at the end can be the first half of CR LF, so it stays for the next chunk.
    const whole = text.endsWith("\r") ? text.slice(0, -1) : text;
    const lines = whole.split(/\r\n|\r|\n/);
    this.#rest = lines.pop() + text.slice(whole.length);
    const events = [];
    for (const line of lines) {
      if (line === "" && this.#data.length) events.push(this.#data.splice(0).join("\n"));
      else if (/^data(:|$)/.test(line)) this.#data.push(line.slice(5).replace(/^ /, ""));
    }
    return events;
  }
}

/** Return the variables of a URI template (RFC 6570), without duplicates. */
export function variablesOf(template) {
  const names = [...template.matchAll(/\{[+#./;?&]?([^{}]*)\}/g)].flatMap(([, list]) => list.split(","));
  return [...new Set(names.map((name) => name.replace(/(\*|:\d+)$/, "")))];
}

/** RFC 6570, appendix A: the first character, the separator, and whether values are named. */
const OPERATORS = {
  "": ["", ",", false], "+": ["", ",", false], "#": ["#", ",", false], ".": [".", ".", false],
  "/": ["/", "/", false], ";": [";", ";", true], "?": ["?", "&", true], "&": ["&", "&", true],
};

/** Expand a URI template with strings. Empty and missing values are omitted. */
export function expand(template, values) {
  return template.replace(/\{([+#./;?&]?)([^{}]*)\}/g, (_, operator, list) => {
    const [first, separator, isNamed] = OPERATORS[operator];
    const parts = list.split(",").flatMap((each) => {
      const [, name, length] = /^(.*?)(?:\*|:(\d+))?$/.exec(each);
      const value = Object.hasOwn(values, name) ? values[name] : "";
      if (value === "") return [];
      const text = encoded([...value].slice(0, length).join(""), "+#".includes(operator) && operator);
      return [isNamed ? `${name}=${text}` : text];
    });
    return parts.length ? first + parts.join(separator) : "";
  });
}

function encoded(text, keepsReserved) {
  const strict = (part) => encodeURIComponent(part).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
  if (!keepsReserved) return strict(text);
  return text.replace(/%[\da-fA-F]{2}|[^:/?#[\]@!$&'()*+,;=%]+|%/g, (part) => (/^%./.test(part) ? part : strict(part)));
}
