/** Fields and checks of the Call page according to JSON Schema 2020-12. */

import assert from "node:assert/strict";
import test from "node:test";

import { bestOption, problemsOf, typedNumber } from "../../gateway/console/static/call/check.js";
import { parse, stringify } from "../../gateway/console/static/call/json.js";
import { fieldOf, flat, initial, itemSchema, memberSchema } from "../../gateway/console/static/call/schema.js";

const kindOf = (schema, root = schema) => fieldOf(schema, root).kind;

for (const [kind, schema] of [
  ["string", { type: "string" }], ["string", { pattern: "a" }], ["number", { type: "integer" }], ["number", { minimum: 1 }], ["boolean", { type: "boolean" }],
  ["object", { properties: {} }], ["array", { items: {} }], ["choices", { enum: ["a", 1, null] }], ["const", { const: 1 }], ["json", {}], ["json", true], ["json", { not: {} }],
  ["alternatives", { type: ["string", "integer"] }], ["string", { type: ["string", "null"] }], ["alternatives", { anyOf: [{ type: "string" }, { type: "object" }] }],
  ["string", { anyOf: [{ type: "string" }, { type: "null" }] }], ["choices", { oneOf: [{ const: "a", title: "A" }, { const: "b" }] }], ["file", { type: "string", contentEncoding: "base64" }],
  ["json", { $ref: "https://example.com/other.json" }], ["json", { $ref: "#/nowhere" }], ["json", { $ref: "#" }], ["const", { type: "null" }], ["string", { allOf: [{ type: "string" }, { minLength: 1 }] }],
  ["json", { type: "nonsense" }],
]) {
  test(`${JSON.stringify(schema)} is a field of ${kind}`, () => assert.equal(kindOf(schema), kind));
}

test("offers null if the schema allows it", () => {
  for (const schema of [{ type: ["string", "null"] }, { anyOf: [{ type: "string" }, { type: "null" }] }, { enum: ["a", null] }, { oneOf: [{ const: "a" }, { const: null }] }]) {
    assert.equal(fieldOf(schema, schema).nullable, true);
  }
  assert.deepEqual(fieldOf({ enum: ["a", null] }, {}).choices.map((each) => each.value), ["a"]);
});

test("follows references with sibling keywords and anchors", () => {
  const root = { $defs: { "a/b": { type: "string", description: "far", minLength: 2 }, c: { $anchor: "here", type: "integer" } } };
  assert.deepEqual(flat({ $ref: "#/$defs/a~1b", description: "near" }, root), { description: "near", type: "string", minLength: 2 });
  assert.equal(kindOf({ $ref: "#here" }, root), "number");
});

test("recursive schemas terminate", () => {
  const root = { type: "object", properties: { name: { type: "string" }, child: { $ref: "#" }, must: { $ref: "#/$defs/loop" } }, required: ["must"], $defs: { loop: { allOf: [{ $ref: "#/$defs/loop" }] } } };
  assert.equal(kindOf(root.properties.child, root), "object");
  assert.deepEqual(initial(root, root), {});
  const endless = { type: "object", properties: { a: { $ref: "#" } }, required: ["a"] };
  assert.match(stringify(initial(endless, endless)), /^(\{"a": )+/);
  const both = { anyOf: [{ $ref: "#" }, { $ref: "#" }] };
  assert.ok(Array.isArray(problemsOf(both, 1, both)));
});

test("merges allOf: the narrower limit, all members, common types", () => {
  const schema = { allOf: [{ type: ["number", "string"], minimum: 1, maximum: 9 }, { type: "integer", minimum: 3, maximum: 20 }] };
  assert.deepEqual(flat(schema, schema), { type: ["integer"], minimum: 3, maximum: 9 });
  const objects = { allOf: [{ properties: { a: { type: "string" } }, required: ["a"] }, { properties: { a: { maxLength: 3 }, b: {} }, required: ["b"] }] };
  const whole = flat(objects, objects);
  assert.deepEqual([...fieldOf(objects, objects).required], ["a", "b"]);
  assert.deepEqual(flat(whole.properties.a, objects), { type: "string", maxLength: 3 });
});

test("names alternatives by title, constant member, or type", () => {
  const schema = { oneOf: [{ title: "A circle" }, { properties: { kind: { const: "square" } } }, { type: "integer" }, {}] };
  assert.deepEqual(fieldOf(schema, schema).options.map((each) => each.title), ["A circle", "kind: square", "integer", "4"]);
});

test("alternatives include sibling keywords, and the best one is chosen", () => {
  const schema = { type: "object", properties: { id: { type: "string" } }, oneOf: [{ properties: { kind: { const: "a" } }, required: ["kind"] }, { properties: { kind: { const: "b" }, n: { type: "integer" } }, required: ["kind"] }] };
  const { options } = fieldOf(schema, schema);
  assert.ok("id" in options[1].schema.properties);
  assert.equal(bestOption(options, { kind: "b", n: 1 }, schema), 1);
  assert.equal(bestOption(options, { kind: "a" }, schema), 0);
});

test("starts with defaults, constants and required members", () => {
  const schema = { type: "object", properties: { a: { type: "integer", default: 3 }, b: { const: "x" }, c: { type: "string" }, d: { type: "object", properties: { e: { default: [1] } } }, f: { type: "array" } }, required: ["b", "f"] };
  assert.deepEqual(initial(schema, schema), { a: 3, b: "x", d: { e: [1] }, f: [] });
});

test("finds the schema of items and of members without a name", () => {
  assert.equal(itemSchema({ prefixItems: [1], items: 2 }, 0), 1);
  assert.equal(itemSchema({ prefixItems: [1], items: 2 }, 1), 2);
  assert.equal(itemSchema({ items: [1], additionalItems: 3 }, 1), 3);
  assert.equal(memberSchema({ additionalProperties: 2, properties: { a: 1 } }, "b"), 2);
  assert.equal(memberSchema({ properties: {} }, "constructor"), true);
});

for (const [schema, value, expected] of [
  [{ type: "integer" }, 1.5, ["", "an integer"]], [{ type: "integer" }, "x", ["", "an integer"]], [{ type: "integer" }, parse("9007199254740993"), null], [{ type: "integer" }, parse("2.0"), null],
  [{ type: "number", maximum: 3 }, 4, ["", "at most 3"]], [{ type: "string", minLength: 2 }, "😀", ["", "at least 2 characters"]], [{ type: "string", format: "date" }, "2026-13-01", ["", "a date"]],
  [{ enum: ["a"] }, "b", ["", "one of the choices"]], [{ type: ["string", "null"] }, null, null], [{ type: "object", required: ["a/b"] }, {}, ["/a~1b", "is required"]],
  [{ type: "object", properties: { a: { type: "array", items: { type: "boolean" } } } }, { a: [true, 1] }, ["/a/1", "true or false"]], [{ type: "object", properties: {}, additionalProperties: false }, { x: 1 }, ["/x", "not known"]],
  [{ uniqueItems: true, type: "array" }, [{ a: 1 }, { a: 1 }], ["", "twice"]], [{ anyOf: [{ type: "string" }, { type: "integer" }] }, "a", null], [{ type: "string", pattern: "^(a+)+$" }, "a".repeat(60) + "!", null],
]) {
  test(`checks ${stringify(value).slice(0, 30)} by ${JSON.stringify(schema)}`, () => {
    const found = problemsOf(schema, value, schema);
    if (expected === null) assert.deepEqual(found, []);
    else assert.ok(found.length === 1 && found[0].path === expected[0] && found[0].message.includes(expected[1]), stringify(found));
  });
}

test("keeps typed text that is not a number", () => {
  assert.equal(typedNumber("-"), "-");
  assert.equal(typedNumber(" 12 "), 12);
  assert.equal(typedNumber(""), undefined);
  assert.equal(typedNumber("12345678901234567890").text, "12345678901234567890");
});
