/** JSON with exact numbers: parsing, formatting and changes of values. Pure. */

/** A number that JavaScript would change, such as 9007199254740993 or 1.10. */
export class ExactNumber {
  constructor(text) {
    this.text = text;
  }

  toString() {
    return this.text;
  }

  valueOf() {
    return Number(this.text);
  }
}

/** An error for invalid JSON. `at` is the position in UTF-16 units. */
export class JsonError extends Error {
  constructor(text, at, message) {
    const before = text.slice(0, at).split("\n");
    super(`line ${before.length}, column ${before.at(-1).length + 1}: ${message}`);
    this.at = at;
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/y;
const SPACE = /[ \t\r\n]*/y;
const WORDS = { t: ["true", true], f: ["false", false], n: ["null", null] };
const DEEPEST = 400;
/** Control, direction and separator characters are escaped, so that copied text is the visible text. */
const HIDDEN = /[\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]/g;

/** Return the number of a text, as a JavaScript number if it has the same text; undefined for other text. */
export function numberOf(text) {
  NUMBER.lastIndex = 0;
  if (NUMBER.exec(text)?.[0] !== text) return undefined;
  // Only without a loss: 9007199254740993 would become ...992, and 1.10 would be sent as 1.1.
  return String(Number(text)) === text ? Number(text) : new ExactNumber(text);
}

export function parse(text) {
  let at = 0;
  const fail = (message, where = at) => {
    throw new JsonError(text, where, message);
  };
  const skip = () => {
    SPACE.lastIndex = at;
    at += SPACE.exec(text)[0].length;
  };
  const string = () => {
    const start = at;
    do {
      at = text.indexOf('"', at + 1);
      if (at < 0) fail("this text does not end", (at = start));
    } while (/(?:^|[^\\])(?:\\\\)*\\$/.test(text.slice(Math.max(start, at - 64), at)));
    at += 1;
    try {
      return JSON.parse(text.slice(start, at));
    } catch {
      return fail("this text has a line break or an escape that JSON does not know", start);
    }
  };
  const members = (end, member, depth) => {
    if (depth > DEEPEST) fail("is nested too deeply");
    at += 1;
    skip();
    const found = [];
    while (text[at] !== end) {
      if (found.length) {
        if (text[at] !== ",") fail(`expected , or ${end}`);
        at += 1;
        skip();
      }
      found.push(member());
      skip();
    }
    at += 1;
    return found;
  };
  const value = (depth) => {
    skip();
    const first = text[at];
    if (first === '"') return string();
    if (first === "[") return members("]", () => value(depth + 1), depth);
    if (first === "{") {
      // Not by assignment, because `__proto__` would set the prototype.
      return Object.fromEntries(members("}", () => {
        if (text[at] !== '"') fail('expected a name in " "');
        const name = string();
        skip();
        if (text[at] !== ":") fail("expected :");
        at += 1;
        return [name, value(depth + 1)];
      }, depth));
    }
    const [word, meaning] = WORDS[first] ?? [];
    if (word && text.startsWith(word, at)) {
      at += word.length;
      return meaning;
    }
    NUMBER.lastIndex = at;
    const digits = NUMBER.exec(text)?.[0];
    if (digits === undefined) fail(at < text.length ? "expected a value" : "ends too early");
    at += digits.length;
    return numberOf(digits);
  };
  const whole = value(0);
  skip();
  if (at < text.length) fail("expected nothing more");
  return whole;
}

/** Format a value as JSON, on several lines with an indent. */
export function stringify(value, indent = "", lead = "\n") {
  if (value instanceof ExactNumber) return value.text;
  if (typeof value === "string") return quoted(value);
  if (value === null || typeof value !== "object") return String(JSON.stringify(value) ?? null);
  const inner = lead + indent;
  const parts = Array.isArray(value)
    ? value.map((item) => stringify(item, indent, inner))
    : Object.keys(value).filter((key) => value[key] !== undefined)
      .map((key) => `${quoted(key)}: ${stringify(value[key], indent, inner)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  if (!parts.length) return open + close;
  return indent ? open + inner + parts.join(`,${inner}`) + lead + close : open + parts.join(", ") + close;
}

const quoted = (text) =>
  JSON.stringify(text).replace(HIDDEN, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);

export const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);

export const equal = (one, other) => one === other || stringify(one) === stringify(other);

/** Return a copy of an object with one member set, or removed if the value is undefined. Supports `__proto__`. */
export function withMember(object, name, value) {
  const entries = Object.entries(object);
  const place = entries.findIndex(([key]) => key === name);
  entries.splice(place < 0 ? entries.length : place, place < 0 ? 0 : 1, ...(value === undefined ? [] : [[name, value]]));
  return Object.fromEntries(entries);
}

/** Return an own member of an object. */
export const member = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);
