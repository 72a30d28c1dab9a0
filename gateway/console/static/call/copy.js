/** A call as text: `mcp-gateway call`, curl, and an entry of `tests`. Pure. */

import { member, stringify } from "./json.js";
import { requestOf } from "./wire.js";

/** Control characters that a terminal would interpret when pasted, except line breaks. */
const CONTROLS = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
const COMMANDS = { "tools/call": "call", "prompts/get": "prompt", "resources/read": "read" };
/** Names that `key=value` would not parse as names: `a=b`, `a:`, `a@`, `-a`. */
const ODD_NAME = /^$|^-|=|[:@]$/;

/** Quote a word for a POSIX shell. */
export const shellWord = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** Return the `mcp-gateway` command of a request. */
export function commandOf({ method, params, url, view }) {
  const name = params.name ?? params.uri;
  const entries = Object.entries(params.arguments ?? {});
  const isOdd = ([key]) => ODD_NAME.test(key) || CONTROLS.test(key);
  const odd = entries.filter(isOdd);
  const words = ["mcp-gateway", COMMANDS[method], "--url", url, ...(view ? ["--view", view] : [])];
  if (odd.length) words.push("--json", stringify(Object.fromEntries(odd)));
  const pairs = entries.filter((entry) => !isOdd(entry)).map(([key, value]) => (
    typeof value === "string" && !CONTROLS.test(value) ? `${key}=${value}` : `${key}:=${stringify(value)}`
  ));
  // POSIX, Utility Syntax Guideline 10: a name that starts with a dash would be parsed as a flag.
  if (/^-/.test(name)) words.push("--");
  return [...words, name, ...pairs].map(shellWord).join(" ");
}

/** Return the curl command of a request, with `MCP_GATEWAY_TOKEN` if a token is needed. */
export function curlOf({ method, params, url, view, schema, needsToken }) {
  const { headers, body } = requestOf(method, params, { schema, client: null });
  const target = view ? `${url.replace(/\/$/, "")}/${encodeURIComponent(view)}` : url;
  const lines = Object.entries(headers).map(([name, value]) => `-H ${shellWord(`${name}: ${value}`)}`);
  if (needsToken) lines.push('-H "Authorization: Bearer $MCP_GATEWAY_TOKEN"');
  // Not --data, which reads a file if the body starts with @.
  return [`curl -sS ${shellWord(target)}`, ...lines, `--data-raw ${shellWord(body)}`].join(" \\\n  ");
}

/** Return an entry of `tests` for the file. JSON is valid YAML, but `${` would be interpolated. */
export function testOf({ arguments: values, result }) {
  // A function, because `$$` in a replacement string means `$`.
  const json = (value) => stringify(value).replaceAll("${", () => "$${");
  const members = Object.entries(values).map(([name, value]) => `          ${json(name)}: ${json(value)}`);
  const expected = result && expectation(result);
  return [
    "    tests:",
    "      - name: as called in the console",
    members.length ? `        with:\n${members.join("\n")}` : "        with: {}",
    ...(expected ? [`        expect: ${json(expected)}`] : []),
    "",
  ].join("\n");
}

function expectation({ isError, content, structuredContent }) {
  const texts = (content ?? []).filter((block) => block.type === "text").map((block) => block.text);
  if (isError) return { error: texts[0]?.split("\n")[0] || true };
  if (structuredContent !== undefined) return { json: structuredContent };
  return texts.length && texts.length === content.length ? { text: texts.join("\n") } : null;
}

const SECRET = /"format": "password"|"writeOnly": true/;

/** Return the arguments for a link, without passwords and within the maximum length of a URL. */
export function fragmentOf(values, schema) {
  const isSecret = (each) => {
    const text = stringify(each ?? null);
    return SECRET.test(text) || (/"\$(dynamicR|r)ef"/.test(text) && SECRET.test(stringify(schema)));
  };
  const open = Object.entries(values).filter(([name]) => !isSecret(member(schema?.properties ?? {}, name)));
  const text = open.length ? stringify(Object.fromEntries(open)) : "";
  return text && text.length <= 8000 ? `#${encodeURIComponent(text)}` : "";
}
