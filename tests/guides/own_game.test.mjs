/** docs/own-game.md, as it is written, in a real browser. */

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { test } from "node:test";
import { withGuide } from "./terminals.mjs";

const PLACES = { addresses: ["http://localhost:8000/health", "http://localhost:3000/"], page: "http://localhost:3000/" };
const SHOTS = new URL("../browser/screenshots/", import.meta.url).pathname;

test("a game of one's own ends with a page in which a player runs", () =>
  withGuide(process.env.GUIDE_OWN_GAME, PLACES, async ({ open }) => {
    const page = await open();
    const start = await placeOf(page);
    // Away from the nearer edge of the field, which is 4,096 units wide.
    const [key, sign] = start.x < 2_048 ? ["ArrowRight", 1] : ["ArrowLeft", -1];
    await page.keyboard.down(key);
    await page.waitForFunction(
      ([from, sign]) => (Number(/at (\d+),/.exec(document.querySelector("#state").textContent)?.[1]) - from) * sign > 200,
      [start.x, sign],
    );
    await page.keyboard.up(key);
    await mkdir(SHOTS, { recursive: true });
    await page.screenshot({ path: `${SHOTS}own-game.png` });

    const other = await open();
    assert.notEqual((await placeOf(other)).id, start.id);
    for (const { faults } of [page, other]) assert.deepEqual(faults, []);
  }));

async function placeOf(page) {
  const text = await page.waitForFunction(() => /^You are player \d+ at \d+, \d+$/.exec(document.querySelector("#state").textContent)?.[0]);
  const [id, x, y] = (await text.jsonValue()).match(/\d+/g).map(Number);
  return { id, x, y };
}
