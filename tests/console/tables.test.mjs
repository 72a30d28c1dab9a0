/** Lists of objects in results, and text that repeats structured content. */

import assert from "node:assert/strict";
import test from "node:test";

import { parse } from "../../gateway/console/static/call/json.js";
import { columnsOf, repeats, tablesOf } from "../../gateway/console/static/call/tables.js";

test("columns are the members of all rows", () => {
  assert.deepEqual(columnsOf([{ a: 1 }, { b: 2, a: 3 }]), ["a", "b"]);
  for (const value of [[], [1], [{ a: 1 }, null], [{}], { a: 1 }, "x", null, [Object.fromEntries(Array.from({ length: 99 }, (_, at) => [at, at]))]]) {
    assert.equal(columnsOf(value), null);
  }
});

test("an object with lists of objects has a table for each", () => {
  const rows = [{ a: 1 }];
  assert.deepEqual(tablesOf({ total: 1, rows, tags: ["x"] }), { lists: [["rows", rows]], others: [["total", 1], ["tags", ["x"]]] });
  assert.deepEqual(tablesOf(rows), { lists: [["", rows]], others: [] });
  for (const value of [{ total: 1 }, { rows, deep: { a: 1 } }, [1], "x", undefined]) assert.equal(tablesOf(value), null);
});

test("text repeats structured content if it is the same JSON", () => {
  const block = (text) => ({ type: "text", text });
  for (const [text, structured] of [['{"a": 1}', { a: 1 }], ["[1]", [1]], ["[1]", { result: [1] }], ["plain", { result: "plain" }], ["5", 5]]) {
    assert.ok(repeats(block(text), structured), text);
  }
  for (const [text, structured] of [['{"a": 1}', { a: 2 }], ["plain", { a: "plain" }], ["x", undefined], ["{", {}]]) {
    assert.ok(!repeats(block(text), structured), text);
  }
  assert.ok(repeats(block('{"n": 1.10}'), parse('{"n": 1.10}')));
  assert.ok(!repeats({ type: "image" }, { a: 1 }));
});
