/** JSON of the Call page: parsing and writing preserve numbers, names and text. */

import assert from "node:assert/strict";
import test from "node:test";

import { ExactNumber, equal, numberOf, parse, stringify, withMember } from "../../gateway/console/static/call/json.js";

for (const text of [
  "9007199254740993", "-123456789012345678901234567890", "1.10", "1e400", "0.1", "-0", "1E5", "[1, 2.50, 3]", '{"a": {"b": [{}]}}', "{}", "[]",
  '"line\\nbreak \\"quoted\\" \\\\"', '{"__proto__": {"toString": 1}, "constructor": null}', '{"": true, "ü 😀": "\\u0000"}', '"\\\\"', '["\\\\", "a"]',
]) {
  test(`keeps ${text}`, () => assert.equal(stringify(parse(text)), text));
}

test("indented output parses to the same value", () => {
  const value = parse('{"a": [1, {"b": 12345678901234567890}], "c": {}, "d": []}');
  assert.equal(stringify(value, "  "), '{\n  "a": [\n    1,\n    {\n      "b": 12345678901234567890\n    }\n  ],\n  "c": {},\n  "d": []\n}');
  assert.ok(equal(parse(stringify(value, "  ")), value));
});

test("escapes invisible and directional characters", () => {
  assert.equal(stringify("a\u202eb\u200b\u007f"), '"a\\u202eb\\u200b\\u007f"');
  assert.equal(parse(stringify("a\u202eb")), "a\u202eb");
});

for (const [text, message] of [
  ["", /line 1, column 1: ends too early/], ['{"a": 1,}', /line 1, column 9: expected a name/], ["[1 2]", /column 4: expected , or \]/], ["01", /column 2: expected nothing more/],
  ['{\n "a": tru\n}', /line 2, column 7: expected a value/], ['"open', /column 1: this text does not end/], ['"a\nb"', /column 1: this text has a line break/], ["NaN", /expected a value/],
  ["[".repeat(5000), /nested too deeply/], ['{"a" 1}', /expected :/], ["- 1", /expected a value/], ['"\\x"', /an escape that JSON does not know/], ["[1,", /ends too early/],
]) {
  test(`reports the error in ${text.slice(0, 12)}`, () => assert.throws(() => parse(text), message));
}

test("agrees with JSON.parse on a long text of many escapes", () => {
  const value = { text: 'a\\"'.repeat(200_000), list: Array.from({ length: 2000 }, (_, index) => ({ index, name: `n${index}\\` })) };
  assert.deepEqual(parse(JSON.stringify(value)), value);
});

test("distinguishes numbers from text", () => {
  assert.equal(numberOf("12"), 12);
  assert.deepEqual(numberOf("12.0"), new ExactNumber("12.0"));
  for (const text of ["", "1,5", "0x1", " 1", "--1", "1e", ".5"]) assert.equal(numberOf(text), undefined);
});

test("sets, replaces and removes members without moving others", () => {
  assert.equal(stringify(withMember({ a: 1, b: 2, c: 3 }, "b", 9)), '{"a": 1, "b": 9, "c": 3}');
  assert.equal(stringify(withMember({ a: 1, b: 2 }, "a", undefined)), '{"b": 2}');
  const odd = withMember({}, "__proto__", "x");
  assert.equal(Object.getPrototypeOf(odd), Object.prototype);
  assert.equal(stringify(odd), '{"__proto__": "x"}');
});
