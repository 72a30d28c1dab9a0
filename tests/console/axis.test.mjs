/** Ticks of the axes of a plot. */

import assert from "node:assert/strict";
import test from "node:test";

import { intervalsSince, timeTicks, valueTicks } from "../../gateway/console/static/axis.js";

for (const [highest, top] of [[0, 1], [0.3, 0.4], [1, 1], [1.4, 2], [7, 10], [10, 10], [11, 20], [999, 1000], [12_400, 20_000], [NaN, 1]]) {
  test(`an axis up to ${highest} ends at ${top}`, () => {
    const ticks = valueTicks(highest);
    assert.equal(ticks.length, 3);
    assert.ok(Math.abs(ticks[2] - top) < 1e-9, String(ticks));
    assert.equal(ticks[1] * 2, ticks[2]);
  });
}

test("time ticks are round and not at the ends", () => {
  const first = Date.parse("2026-07-28T10:02:20Z");
  for (const minutes of [0.5, 2, 5, 20, 60]) {
    const last = first + minutes * 60_000;
    const ticks = timeTicks(first, last);
    assert.ok(ticks.length >= 1 && ticks.length <= 7, `${minutes}: ${ticks.length}`);
    assert.ok(ticks.every((each) => each > first && each < last && each % 10_000 === 0));
  }
});

test("a plot starts at the start of the daemon, and covers at most an hour", () => {
  assert.equal(intervalsSince(0, 10, 360), 2);
  assert.equal(intervalsSince(95, 10, 360), 11);
  assert.equal(intervalsSince(86_400, 10, 360), 360);
});
