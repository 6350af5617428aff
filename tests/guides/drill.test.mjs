/** The backup drill of docs/operating.md, as it is written. */

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Reader, stepsOf } from "./guide.mjs";

const FOLDER = process.env.GUIDE_DRILL;
const PAGE = new URL("../../docs/operating.md", import.meta.url).pathname;

test("a node that is killed and restored elsewhere has everything", { timeout: 120_000 }, () => {
  const reader = new Reader(FOLDER);
  try {
    const outputs = stepsOf(readFileSync(PAGE, "utf8"), "Backup drill").map((step) => reader.follow(step));
    const [, published, killed, backedUp, restored, elsewhere] = outputs;
    const { offset, epoch } = JSON.parse(published.trimEnd().split("\n").at(-1)).result;
    assert.equal(offset, 100);
    assert.equal(killed.trim(), "100");
    assert.match(backedUp, /^backups: backup 1: /m);
    assert.match(backedUp, /all files have the right size and checksum/);
    assert.match(restored, /1 channels, 100 publications/);
    const after = JSON.parse(elsewhere.trimEnd().split("\n").at(-1)).result;
    assert.equal(after.offset, 101);
    assert.notEqual(after.epoch, epoch);
  } finally {
    for (const name of ["node.pid", "restored.pid"]) endProcess(join(FOLDER, name));
  }
});

/** Ends the process whose id is in this file, if the file exists. */
function endProcess(path) {
  if (!existsSync(path)) return;
  try {
    process.kill(Number(readFileSync(path, "utf8")), "SIGTERM");
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}
