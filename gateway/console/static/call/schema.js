/** The fields of a form for a JSON Schema (2020-12). Computed one at a time, because schemas can be recursive. Pure. */

import { equal, isObject, member } from "./json.js";

const LOWEST = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
const HIGHEST = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];
const BY_KEYWORD = [
  ["object", ["properties", "additionalProperties", "patternProperties", "required"]],
  ["array", ["items", "prefixItems", "minItems", "maxItems", "uniqueItems"]],
  ["string", ["minLength", "maxLength", "pattern", "format", "contentEncoding"]],
  ["number", ["minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"]],
];
/** Maximum number of values shown as checkboxes. */
const MANY = 12;
const INPUT_TYPES = { date: "date", email: "email", uri: "url", "uri-reference": "text", password: "password" };

/** Return a schema with `$ref` and `allOf` merged into it, as far as possible. */
export function flat(schema, root, seen = []) {
  // Ignore a reference to itself.
  if (!isObject(schema) || seen.includes(schema)) return {};
  const { $ref, $dynamicRef, allOf, ...own } = schema;
  const chain = [...seen, schema];
  const reference = $ref ?? $dynamicRef;
  const others = [...(reference === undefined ? [] : [target(reference, root)]), ...(Array.isArray(allOf) ? allOf : [])];
  return others.reduce((whole, other) => merged(whole, flat(other, root, chain)), own);
}

/** Return the target of a local reference (RFC 6901 or `$anchor`), or an empty schema for other references. */
function target(reference, root) {
  if (typeof reference !== "string" || !reference.startsWith("#")) return {};
  let fragment = reference.slice(1);
  try {
    fragment = decodeURIComponent(fragment);
  } catch {
    return {};
  }
  if (fragment && !fragment.startsWith("/")) {
    const named = Object.values({ ...root.definitions, ...root.$defs });
    return named.find((each) => [each?.$anchor, each?.$dynamicAnchor].includes(fragment)) ?? {};
  }
  const steps = fragment.split("/").slice(1).map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  return steps.reduce((found, step) => (found && typeof found === "object" ? member(found, step) : undefined), root) ?? {};
}

function merged(one, other) {
  const both = { ...other, ...one };
  for (const name of Object.keys(one).filter((key) => key in other)) {
    const [a, b] = [one[name], other[name]];
    if (LOWEST.includes(name)) both[name] = Math.max(a, b);
    else if (HIGHEST.includes(name)) both[name] = Math.min(a, b);
    else if (name === "required") both[name] = [...new Set([...a, ...b])];
    else if (name === "enum") both[name] = a.filter((value) => b.some((each) => equal(value, each)));
    else if (name === "type") both[name] = commonTypes([a].flat(), [b].flat());
    else if (name === "properties") {
      both[name] = { ...a, ...b };
      for (const key of Object.keys(a).filter((each) => Object.hasOwn(b, each))) {
        both[name][key] = equal(a[key], b[key]) ? a[key] : { allOf: [a[key], b[key]] };
      }
    }
  }
  return both;
}

const commonTypes = (a, b) => {
  const fits = (type, types) => types.includes(type) || (type === "integer" && types.includes("number"));
  return [...new Set([...a.filter((type) => fits(type, b)), ...b.filter((type) => fits(type, a))])];
};

/** Return the values of a schema as `{value, title}`, or undefined. */
function choicesOf({ enum: values, enumNames, anyOf, oneOf }, root) {
  if (Array.isArray(values)) return values.map((value, index) => ({ value, title: enumNames?.[index] }));
  const branches = [anyOf, oneOf].find(Array.isArray)?.map((each) => flat(each, root)) ?? [];
  const consts = branches.map((each) => (each.type === "null" ? { const: null } : each));
  if (!branches.some((each) => "const" in each) || !consts.every((each) => "const" in each)) return undefined;
  return consts.map((each) => ({ value: each.const, title: each.title }));
}

/**
 * Return the field of a schema, `{kind, schema, nullable, …}`. The kind is object, array, several (of few values),
 * string, number, boolean, choices (of values), alternatives (of schemas), file, const or json.
 */
export function fieldOf(schema, root) {
  const whole = flat(schema, root);
  const { anyOf, oneOf, ...base } = whole;
  const branches = [anyOf, oneOf].find(Array.isArray)?.filter((each) => each !== false);
  const types = [whole.type ?? []].flat().filter((type) => type !== "null");
  const nullable = [whole.type].flat().includes("null") || (whole.enum ?? []).includes(null);
  const made = (kind, more) => ({ kind, schema: whole, nullable, title: whole.title, description: whole.description, ...more });
  if ("const" in whole) return made("const", { value: whole.const, nullable: false });
  const choices = choicesOf(whole, root);
  if (choices) {
    const some = choices.filter((each) => each.value !== null);
    return made("choices", { choices: some, nullable: some.length < choices.length });
  }
  if (branches) {
    const all = branches.map((each) => flat(each, root));
    const some = all.filter((each) => each.type !== "null");
    const orNull = nullable || some.length < all.length;
    const options = some.map((each) => ({ ...merged(base, each), title: each.title, description: each.description }));
    if (options.length === 1) {
      const only = { ...options[0], title: whole.title ?? some[0].title, description: whole.description ?? some[0].description };
      const field = fieldOf(only, root);
      return { ...field, nullable: orNull || field.nullable };
    }
    return made("alternatives", { options: options.map(optionNamed), nullable: orNull });
  }
  if (types.length > 1) {
    return made("alternatives", { options: types.map((type) => optionNamed({ ...whole, type, title: undefined })) });
  }
  const type = types[0] ?? (nullable ? "null" : undefined) ?? BY_KEYWORD.find(([, keywords]) => keywords.some((each) => each in whole))?.[0];
  return made(...(FIELDS[type] ?? (() => ["json"]))(whole, root));
}

const FIELDS = {
  object: (schema) => ["object", {
    members: Object.entries(schema.properties ?? {}).filter(([, each]) => each !== false),
    required: new Set(schema.required ?? []),
    isOpen: schema.additionalProperties !== false
      && ("additionalProperties" in schema || "patternProperties" in schema || !schema.properties),
  }],
  array: (schema, root) => {
    const choices = schema.prefixItems ? undefined : choicesOf(flat(schema.items, root), root);
    return choices?.length <= MANY ? ["several", { choices }] : ["array", {}];
  },
  string: (schema) => (isFile(schema)
    ? ["file", { accept: schema.contentMediaType ?? acceptedBy(schema.description) }]
    : ["string", { input: INPUT_TYPES[schema.format] ?? (schema.format || schema.maxLength <= 200 ? "text" : "lines") }]),
  integer: () => ["number", { isInteger: true }],
  number: () => ["number", { isInteger: false }],
  boolean: () => ["boolean", {}],
  null: () => ["const", { value: null, nullable: false }],
};

const isFile = (schema) => schema.contentEncoding === "base64" || /^(byte|binary|data-ur[il])$/.test(schema.format);

/** Return the media types in the description of a file, where `mcp-gateway` lists several. */
const acceptedBy = (description = "") =>
  [...(/A file \(([^)]*)/.exec(description)?.[1] ?? "").matchAll(/[\w.+-]+\/[\w.+*-]+/g)].map(([type]) => type).join(",");

const optionNamed = (schema, index) => {
  const telling = Object.entries(schema.properties ?? {}).find(([, each]) => "const" in (each ?? {}));
  const type = [schema.type ?? []].flat().join(" or ");
  return { schema, title: schema.title ?? (telling ? `${telling[0]}: ${telling[1].const}` : type || `${index + 1}`) };
};

/** Return the schema of a member without an entry in `properties`, or of an item. */
export function memberSchema(schema, name) {
  if (Object.hasOwn(schema.properties ?? {}, name)) return schema.properties[name];
  for (const [pattern, each] of Object.entries(schema.patternProperties ?? {})) {
    // No regular expression, because a backtracking engine could block the page.
    if (pattern === `^${name}` || pattern === name) return each;
  }
  return schema.additionalProperties ?? Object.values(schema.patternProperties ?? {})[0] ?? true;
}

export function itemSchema(schema, index) {
  const first = schema.prefixItems ?? (Array.isArray(schema.items) ? schema.items : []);
  return first[index] ?? (Array.isArray(schema.items) ? schema.additionalItems : schema.items) ?? true;
}

/** Return the type of a value in JSON Schema. */
export function typeOf(value) {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (isObject(value)) return "object";
  return typeof value === "object" ? "number" : typeof value;
}

/** Return the initial value: defaults, constants and required members only; undefined without any. */
export function initial(schema, root, isRequired = true, depth = 0) {
  const { kind, ...field } = fieldOf(schema, root);
  if ("default" in field.schema) return field.schema.default;
  if (kind === "const" && isRequired) return field.value;
  // Bounded, because a schema can require itself.
  if (kind === "alternatives" && isRequired && depth < 8) return initial(field.options[0].schema, root, true, depth + 1);
  if ((kind === "array" || kind === "several") && isRequired) return [];
  if (kind !== "object" || depth > 8) return undefined;
  const members = field.members
    .map(([name, each]) => [name, initial(each, root, field.required.has(name), depth + 1)])
    .filter(([, value]) => value !== undefined);
  return members.length || isRequired ? Object.fromEntries(members) : undefined;
}

const BLANKS = { string: "", boolean: false, object: {}, array: [] };

/** Return the value for an added part: the initial value, or an empty one of its kind; null without either. */
export function blank(schema, root) {
  const first = initial(schema, root);
  if (first !== undefined) return first;
  const { kind, choices, options } = fieldOf(schema, root);
  if (kind === "alternatives") return BLANKS[fieldOf(options[0].schema, root).kind] ?? null;
  return choices?.[0]?.value ?? BLANKS[kind] ?? null;
}
