/** The URL that the dialog of a URL elicitation shows and opens. */

import assert from "node:assert/strict";
import test from "node:test";

import { webAddress } from "../../gateway/console/static/call/address.js";

test("the host of a URL is shown", () => {
  for (const [text, host] of [
    ["https://login.example.com/a?b=1", "login.example.com"],
    ["https://bank.example@evil.test/", "evil.test"],
    ["https://bank.example\\@evil.test/", "bank.example"],
    ["https://b\u0430nk.example/", "xn--bnk-6cd.example"],
    ["HTTP://EVIL.test:8080", "evil.test:8080"],
  ]) assert.equal(webAddress(text).host, host, text);
  assert.match(webAddress("https://evil.test/\u202emoc.knab").href, /^[\x21-\x7e]+$/);
});

test("URLs with other schemes are not opened", () => {
  for (const text of [
    "javascript:alert(1)", " java\nscript:alert(1)", "data:text/html,x", "file:///etc/passwd", "blob:https://evil.test/1",
    "//evil.test/", "/-/api/reload", "", "https://", undefined, null, 5, {},
  ]) assert.equal(webAddress(text), null, String(text));
});
