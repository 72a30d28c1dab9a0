import assert from "node:assert/strict";
import { test } from "node:test";
import { fragmentOf } from "../../gateway/console/static/call/copy.js";

const PASSWORD = { type: "string", format: "password" };
const VALUES = { open: "shown", given: "hunter2-hunter2" };
const DEFINED = { $defs: { login: { properties: { pass: PASSWORD } } } };
const SECRET = {
  "a password": [PASSWORD],
  "what is only written": [{ type: "string", writeOnly: true }],
  "a password in an object": [{ type: "object", properties: { pass: PASSWORD } }],
  "a password in an array": [{ type: "array", items: { anyOf: [{ type: "null" }, PASSWORD] } }],
  "a password behind a reference": [{ $ref: "#/$defs/login" }, DEFINED],
};

test("the page's URL contains no password arguments", () => {
  for (const [what, [given, more]] of Object.entries(SECRET)) {
    const shown = decodeURIComponent(fragmentOf(VALUES, { properties: { open: { type: "string" }, given }, ...more }));
    assert.equal(shown, '#{"open": "shown"}', what);
  }
});

test("the page's URL contains all other arguments", () => {
  for (const given of [{ type: "string" }, { $ref: "#/$defs/login" }, { description: 'no "format": "password"' }]) {
    const schema = { properties: { given }, $defs: { login: { type: "string" } } };
    assert.match(decodeURIComponent(fragmentOf(VALUES, schema)), /hunter2/);
  }
});
