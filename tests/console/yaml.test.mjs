/** Colours of YAML. */

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";

import { colouredLines } from "../../gateway/console/static/yaml.js";

const kindsOf = (text) => colouredLines(text).flat().filter(([kind, part]) => kind && part.trim());
const CONFIG = new URL("../../config/", import.meta.url);

for (const name of readdirSync(CONFIG).filter((each) => /\.(yaml|json)$/.test(each))) {
  test(`keeps the text of ${name}`, () => {
    const text = readFileSync(new URL(name, CONFIG), "utf8");
    assert.equal(colouredLines(text).map((parts) => parts.map(([, part]) => part).join("")).join("\n"), text);
  });
}

for (const [line, expected] of [
  ["name: ops  # the name", [["key", "name"], ["mark", ":"], ["comment", "# the name"]]],
  ["- a b: 'it''s'", [["mark", "-"], ["key", "a b"], ["mark", ":"], ["string", "'it''s'"]]],
  ["port: 8000", [["key", "port"], ["mark", ":"], ["number", "8000"]]],
  ["text: 8 of 10 true", [["key", "text"], ["mark", ":"]]],
  ["url: http://a/#b", [["key", "url"], ["mark", ":"]]],
  ['t: "a: {b} # c"', [["key", "t"], ["mark", ":"], ["string", '"a: {b} # c"']]],
  ["{a: true, b: [x, ~]}", [["mark", "{"], ["key", "a"], ["mark", ":"], ["word", "true"], ["mark", ","], ["key", "b"], ["mark", ":"], ["mark", "["], ["mark", ","], ["word", "~"], ["mark", "]"], ["mark", "}"]]],
  ["a: &x !tag", [["key", "a"], ["mark", ":"], ["tag", "&x"], ["tag", "!tag"]]],
  ['{"a":1}', [["mark", "{"], ["key", '"a"'], ["mark", ":"], ["number", "1"], ["mark", "}"]]],
]) {
  test(`colours ${line}`, () => assert.deepEqual(kindsOf(line), expected));
}

test("a block scalar ends with its indentation", () => {
  const kinds = colouredLines("a:\n  b: |-  # text\n    c: 1\n\n      d\n  e: 2\n- >\n  f: g\nh: i").map((parts) => parts.map(([kind]) => kind).filter(Boolean).join());
  assert.deepEqual(kinds, ["key,mark", "key,mark,block,comment", "string", "string", "string", "key,mark,number", "mark,block", "string", "key,mark"]);
});

test("a flow collection can span several lines", () => {
  assert.deepEqual(kindsOf("a: {b: x,\n  c: true, d: 5}").filter(([kind]) => !["mark", "key"].includes(kind)), [["word", "true"], ["number", "5"]]);
});

test("long and unusual lines are handled quickly", () => {
  for (const text of ["a: ".repeat(50_000), '"'.repeat(100_000), "x".repeat(400_000), " ".repeat(100_000), "{".repeat(100_000), "a ".repeat(100_000)]) {
    assert.equal(colouredLines(text)[0].map(([, part]) => part).join(""), text);
  }
});

test("very long text has no colours", () => assert.deepEqual(colouredLines(`a: ${"x".repeat(600_000)}`).flat().length, 1));
