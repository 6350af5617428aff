/** What the page shows of a frame. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { hexDump, summaryOf } from "../page/frames.js";

test("a message is summed up", () => {
  for (const [direction, message, expected] of [
    ["out", { id: 1, connect: { name: "playground" } }, "1 connect"],
    ["out", { id: 2, subscribe: { channel: "news", recover: true } }, "2 subscribe news"],
    ["in", { id: 2, subscribe: { recoverable: true } }, "reply 2 subscribe"],
    ["in", { id: 3, error: { code: 103, message: "permission denied" } }, "reply 3 error 103 permission denied"],
    ["in", { push: { channel: "news", pub: { data: 1 } } }, "push pub news"],
    ["in", { push: { pub: { data: 1 }, channel: "news" } }, "push pub news"],
    ["in", { push: { disconnect: { code: 3001 } } }, "push disconnect"],
    ["in", {}, "ping"],
    ["out", {}, "pong"],
  ]) {
    assert.equal(summaryOf(direction, message), expected);
  }
});

test("bytes are shown as positions, hex and ASCII", () => {
  const bytes = Uint8Array.from([...Array(16).keys()].map((number) => number + 0x38).concat([0xff]));
  assert.deepEqual(hexDump(bytes).split("\n"), [
    "0000  38 39 3a 3b 3c 3d 3e 3f 40 41 42 43 44 45 46 47  89:;<=>?@ABCDEFG",
    `0010  ff${" ".repeat(45)}  ·`,
  ]);
});
