/** Fast checks of a value against its schema while the user types. Pure.
 *
 * Patterns are checked by the server, whose engine runs in linear time.
 */

import { ExactNumber, equal, isObject, numberOf } from "./json.js";
import { fieldOf, flat, itemSchema, memberSchema, typeOf } from "./schema.js";

const DEEPEST = 40;
/** Maximum nesting of alternatives, which can be recursive. */
const MOST_NESTED = 3;
const TYPES = {
  integer: "an integer", number: "a number", string: "a string", boolean: "true or false", object: "an object", array: "an array",
};
const FORMATS = {
  date: [/^\d{4}-(0\d|1[0-2])-([0-2]\d|3[01])$/, "a date such as 2026-07-28"],
  "date-time": [/^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[-+]\d\d:\d\d)$/, "a moment such as 2026-07-28T12:00:00Z"],
  email: [/^[^\s@]+@[^\s@]+$/, "an email address"],
  uri: [/^[a-zA-Z][a-zA-Z0-9+.-]*:\S*$/, "a URI such as https://example.com/"],
  uuid: [/^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i, "a UUID"],
};
const isOnce = (item, index, items) => !items.slice(0, index).some((each) => equal(each, item));
// JSON Schema counts Unicode characters (Validation §6.3.1), not UTF-16 units.
const characters = (text) => [...text].length;

/** [keyword, types, predicate, message] */
const LIMITS = [
  ["minimum", "number", (value, limit) => Number(value) >= limit, (limit) => `must be at least ${limit}`],
  ["maximum", "number", (value, limit) => Number(value) <= limit, (limit) => `must be at most ${limit}`],
  ["exclusiveMinimum", "number", (value, limit) => Number(value) > limit, (limit) => `must be more than ${limit}`],
  ["exclusiveMaximum", "number", (value, limit) => Number(value) < limit, (limit) => `must be less than ${limit}`],
  ["minLength", "string", (value, limit) => characters(value) >= limit, (limit) => `must have at least ${limit} characters`],
  ["maxLength", "string", (value, limit) => value.length <= limit || characters(value) <= limit, (limit) => `must have at most ${limit} characters`],
  ["minItems", "array", (value, limit) => value.length >= limit, (limit) => `must have at least ${limit} items`],
  ["maxItems", "array", (value, limit) => value.length <= limit, (limit) => `must have at most ${limit} items`],
  ["uniqueItems", "array", (value, is) => !is || value.every(isOnce), () => "must not have an item twice"],
  ["format", "string", (value, name) => !FORMATS[name] || FORMATS[name][0].test(value), (name) => `must be ${FORMATS[name][1]}`],
];

export const step = (path, key) => `${path}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;

/** Return the problems as `{path, message}`. The path is a JSON Pointer (RFC 6901). */
export function problemsOf(schema, value, root, path = "", depth = 0, nested = 0) {
  if (value === undefined || schema === true || depth > DEEPEST || nested > MOST_NESTED) return [];
  const whole = flat(schema, root);
  const said = (message) => [{ path, message }];
  const type = typeOf(value);
  const field = fieldOf(whole, root);
  if (type === "null" && field.nullable) return [];
  if (field.kind === "const" && !equal(value, field.value)) return said(`must be ${JSON.stringify(field.value)}`);
  if (field.kind === "choices") {
    return field.choices.some((each) => equal(each.value, value)) ? [] : said("must be one of the choices");
  }
  if (field.kind === "alternatives") return ofAlternatives(field.options, value, root, path, depth, nested + 1);
  const types = [whole.type ?? []].flat();
  if (types.length && !types.some((each) => isOf(each, value, type))) return said(`must be ${TYPES[types[0]] ?? types[0]}`);
  const found = LIMITS.filter(([name, kind, holds]) => kind === type && name in whole && !holds(value, whole[name]))
    .flatMap(([name, , , say]) => said(say(whole[name])));
  return [...found, ...ofParts(whole, value, root, path, depth)];
}

function ofParts(schema, value, root, path, depth) {
  if (Array.isArray(value)) {
    return value.flatMap((item, index) => problemsOf(itemSchema(schema, index), item, root, step(path, index), depth + 1));
  }
  if (!isObject(value)) return [];
  const missing = (schema.required ?? []).filter((name) => !Object.hasOwn(value, name));
  return [
    ...missing.map((name) => ({ path: step(path, name), message: "is required" })),
    ...Object.keys(value).flatMap((name) => {
      const below = memberSchema(schema, name);
      if (below === false) return [{ path: step(path, name), message: "is not known here" }];
      return problemsOf(below, value[name], root, step(path, name), depth + 1);
    }),
  ];
}

function ofAlternatives(options, value, root, path, depth, nested) {
  const each = options.map((option) => problemsOf(option.schema, value, root, path, depth + 1, nested));
  // The alternative with the fewest problems is probably the intended one.
  return each.reduce((best, next) => (next.length < best.length ? next : best));
}

/** Return the index of the alternative that fits a value best. */
export function bestOption(options, value, root) {
  if (value === undefined) return 0;
  const badness = options.map((option) => {
    const found = problemsOf(option.schema, value, root);
    return found.length + (found.some((each) => each.path === "") ? 1000 : 0);
  });
  return badness.indexOf(Math.min(...badness));
}

function isOf(type, value, actual) {
  if (type !== "integer") return type === actual;
  return actual === "number" && (value instanceof ExactNumber ? /^-?\d+(\.0+)?$/.test(value.text) : Number.isInteger(value));
}

/** Convert the text of a number field. Other text is returned unchanged, and is a problem of the field. */
export const typedNumber = (text) => (text.trim() === "" ? undefined : numberOf(text.trim()) ?? text);
