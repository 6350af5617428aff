/** docs/own-game.md, as it is written, in a real browser. */

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { test } from "node:test";
import { assertFits } from "../browser/chromium.mjs";
import { withGuide } from "./terminals.mjs";

const PLACES = { addresses: ["http://localhost:3000/", "http://localhost:8000/health"], page: "http://localhost:3000/" };
const SHOTS = new URL("../browser/screenshots/", import.meta.url).pathname;

/** Builds of the game, on a machine that does other things as well. */
const BUILD_MS = 300_000;

test("a game of one's own is played, and changed while it is played", () =>
  withGuide(process.env.GUIDE_OWN_GAME, PLACES, async ({ open, commands }) => {
    const [enlarge, spoil, correct] = commands;
    const page = await open();
    const start = await placeOf(page);
    await rename(page, "Ada");
    const ada = await placeOf(page);
    assert.notEqual(ada.id, start.id, "another name is another player");
    for (const way of ["x", "y"]) assert.ok(Math.abs(ada[way] - start[way]) <= 400, "players begin where they see each other");
    // Away from the nearer edge of the field, which is 4,096 units wide.
    const [key, sign] = ada.x < 2_048 ? ["ArrowRight", 1] : ["ArrowLeft", -1];
    await page.keyboard.down(key);
    await page.waitForFunction(
      ([from, sign]) => (Number(/at (\d+),/.exec(document.querySelector("#state").textContent)?.[1]) - from) * sign > 200,
      [ada.x, sign],
    );
    await page.keyboard.up(key);
    const other = await open();
    assert.notEqual((await placeOf(other)).id, ada.id);
    for (const each of [page, other]) {
      await each.waitForFunction(() => /Ada: \d+.*Guest \d+: \d+/s.test([...document.querySelectorAll("#points li")].map((item) => item.textContent).sort().join("\n")));
    }
    await mkdir(SHOTS, { recursive: true });
    await page.screenshot({ path: `${SHOTS}own-game.png` });
    await fitsSmallScreens(page);

    // A tab in the background draws nothing.
    await page.bringToFront();
    const stood = await standing(page);
    await noteLosses(page);
    enlarge();
    await replaced(page);
    assert.deepEqual(await standing(page), stood, "the same player, where it stood");
    await untilThePageSays(page, "running", "");

    spoil();
    await untilThePageSays(page, "failed", "cannot find value `barn` in this scope");
    await page.screenshot({ path: `${SHOTS}own-game-error.png` });
    assert.deepEqual(await standing(page), stood, "the last build goes on");
    correct();
    await replaced(page);
    await untilThePageSays(page, "running", "");
    assert.deepEqual(await standing(page), stood);
    for (const { faults } of [page, other]) assert.deepEqual(faults, []);
  }));

/** On a small phone, upright and on its side, the texts are on the screen, and none lies over another one. */
async function fitsSmallScreens(page) {
  const before = page.viewportSize();
  for (const [width, height] of [[320, 568], [844, 390]]) {
    await page.setViewportSize({ width, height });
    await assertFits(page);
    const [title, points, footer] = await Promise.all(["header", "#points", "footer"].map((part) => page.locator(part).boundingBox()));
    for (const box of [title, points, footer]) {
      assert.ok(box.x >= 0 && box.y >= 0 && box.x + box.width <= width && box.y + box.height <= height, JSON.stringify(box));
    }
    assert.ok(title.x + title.width <= points.x && Math.max(title.y + title.height, points.y + points.height) <= footer.y, `${width} × ${height}`);
  }
  await page.setViewportSize(before);
}

async function placeOf(page) {
  const text = await page.waitForFunction(() => /^You are player \d+ at \d+, \d+$/.exec(document.querySelector("#state").textContent)?.[0]);
  const [id, x, y] = (await text.jsonValue()).match(/\d+/g).map(Number);
  return { id, x, y };
}

/** The place of a player whose keys are up: the same in 30 frames. */
async function standing(page) {
  await page.waitForFunction(() => {
    const place = document.querySelector("#state").textContent;
    const { stood } = window;
    window.stood = { place, frames: stood?.place === place ? stood.frames + 1 : 0 };
    return place.startsWith("You are player") && window.stood.frames >= 30;
  });
  return placeOf(page);
}

async function rename(page, name) {
  await page.fill("#name", name);
  await page.press("#name", "Enter");
  await page.waitForFunction((name) => document.querySelector("#points .me")?.textContent.startsWith(`${name}: `), name);
}

/** Has the page note when it loses its server, which may be over before anyone looks. */
async function noteLosses(page) {
  await page.evaluate(() => {
    const state = document.querySelector("#state");
    window.hasLost = false;
    new MutationObserver(() => {
      window.hasLost ||= /^The connection is lost|^Joining/.test(state.textContent);
    }).observe(state, { childList: true, characterData: true, subtree: true });
  });
}

/** Waits until the page has lost its server, and has a place again. */
async function replaced(page) {
  await page.waitForFunction(() => window.hasLost, null, { timeout: BUILD_MS });
  await placeOf(page);
  await page.evaluate(() => { window.hasLost = false; });
}

async function untilThePageSays(page, phase, text) {
  const says = ([phase, text]) => {
    const panel = document.querySelector("#dunlin-dev");
    return panel?.dataset.phase === phase && panel.textContent.includes(text) && panel.hidden === (phase === "running");
  };
  await page.waitForFunction(says, [phase, text], { timeout: BUILD_MS });
}
