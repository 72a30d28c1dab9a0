/** Requests, event streams and URI templates of the Call page. */

import assert from "node:assert/strict";
import test from "node:test";

import { parse } from "../../gateway/console/static/call/json.js";
import { EventParser, expand, fieldValue, requestOf, variablesOf } from "../../gateway/console/static/call/wire.js";

const STREAM = ': comment\r\nevent: message\r\ndata: {"a":\r\ndata: 1}\r\n\r\ndata:x\n\nid: 7\n\ndata\rdata: ü😀\r\rdata: left';

test("parses events from chunks of any size", () => {
  const expected = ['{"a":\n1}', "x", "\nü😀"];
  assert.deepEqual(new EventParser().feed(STREAM), expected);
  for (let size = 1; size < 9; size += 1) {
    const parser = new EventParser();
    const pieces = STREAM.match(new RegExp(`[^]{1,${size}}`, "g"));
    assert.deepEqual(pieces.flatMap((piece) => parser.feed(piece)), expected, `pieces of ${size}`);
  }
});

test("encodes any text in header fields (SEP-2243)", () => {
  assert.equal(fieldValue("disk usage"), "disk usage");
  assert.equal(fieldValue("ü"), "=?base64?w7w=?=");
  for (const text of ["", " a", "a\n", "=?base64?eA==?="]) assert.match(fieldValue(text), /^=\?base64\?[\w+/=]*\?=$/);
});

test("a request mirrors its method, its name and annotated inputs", () => {
  const schema = { properties: { region: { type: "string", "x-mcp-header": "Region" }, deep: { properties: { n: { "x-mcp-header": "N" } } }, gone: { "x-mcp-header": "Gone" } } };
  const { headers, body } = requestOf("tools/call", { name: "a", arguments: { region: "é", deep: { n: 7 }, gone: null } }, { schema, asTask: true });
  assert.deepEqual(
    [headers["Mcp-Method"], headers["Mcp-Name"], headers["Mcp-Param-Region"], headers["Mcp-Param-N"], headers["Mcp-Param-Gone"]],
    ["tools/call", "a", "=?base64?w6k=?=", "7", undefined],
  );
  const message = parse(body);
  assert.equal(message.params._meta["io.modelcontextprotocol/protocolVersion"], headers["MCP-Protocol-Version"]);
  assert.ok("io.modelcontextprotocol/tasks" in message.params._meta["io.modelcontextprotocol/clientCapabilities"].extensions);
});

for (const [template, values, uri] of [
  ["a://{x}/{y}", { x: "b c", y: "d/e!" }, "a://b%20c/d%2Fe%21"], ["a:{+x}", { x: "/p q/ü%20%z" }, "a:/p%20q/%C3%BC%20%25z"], ["a{?x,y}", { x: "1", y: "" }, "a?x=1"], ["a{&x}{#y}", { x: "é", y: "!k" }, "a&x=%C3%A9#!k"],
  ["a{/x*}{.y:2}{;z}", { x: "b", y: "cde", z: "1" }, "a/b.cd;z=1"], ["a{x}", {}, "a"], ["a{x}", { __proto__: { x: "1" } }, "a"],
]) {
  test(`expands ${template}`, () => assert.equal(expand(template, values), uri));
}

test("lists variables once", () => assert.deepEqual(variablesOf("a{x,y*}{?x:3,z.a}"), ["x", "y", "z.a"]));
