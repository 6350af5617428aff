/** The demo's pages on phones, upright and on their side: links, buttons and the map are in reach. */

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { ArenaPage } from "./arena_page.mjs";
import { assertFits, launch, openPage, PHONE } from "./chromium.mjs";
import { TickerPage } from "./ticker_page.mjs";

const BASE = process.env.DUNLIN_PAGE_URL;
const SHOTS = new URL("./screenshots/", import.meta.url).pathname;
const DEVICES = {
  "390 × 844": { width: 390, height: 844 },
  "320 × 568": { width: 320, height: 568 },
  "844 × 390": { width: 844, height: 390 },
  "932 × 430": { width: 932, height: 430 },
  "568 × 320": { width: 568, height: 320 },
};
const joined = (opened) => new ArenaPage(opened).untilJoined();
const PAGES = {
  ticker: { path: "", ready: (opened) => new TickerPage(opened).ready(), buttons: [] },
  arena: { path: "arena/", ready: joined, buttons: ["dig", "wave", "toggle-grid", "cut", "minimap"] },
  tag: { path: "tag/?room=tag:phones", ready: joined, buttons: ["shoot", "to-lobby", "cut"] },
  lobby: { path: "lobby/", ready: (opened) => opened.page.waitForSelector("#play:enabled"), buttons: ["play"] },
};
/** A finger hits a link that is this high. */
const LINK_PX = 36;

let browser;

before(async () => {
  assert.ok(BASE, "DUNLIN_PAGE_URL names the server to check");
  await mkdir(SHOTS, { recursive: true });
  browser = await launch();
});

after(() => browser?.close());

for (const [size, viewport] of Object.entries(DEVICES)) {
  describe(size, () => {
    for (const [name, { path, ready, buttons }] of Object.entries(PAGES)) {
      test(`${name}: the links and buttons are in reach`, () =>
        withPage(path, viewport, ready, async ({ page }) => {
          await page.screenshot({ path: `${SHOTS}phone-${name}-${viewport.width}x${viewport.height}.png` });
          await assertFits(page);
          for (const other of ["Ticker", "Arena", "Tag"]) {
            const box = await page.locator(`nav[aria-label="Demos"] a:text("${other}")`).boundingBox();
            assert.ok(box !== null && box.height >= LINK_PX, `${other}: ${JSON.stringify(box)}`);
            assertInside(box, viewport, other);
          }
          for (const id of buttons) assertInside(await page.locator(`#${id}`).boundingBox(), viewport, id);
          await assertApart(page, buttons.filter((id) => id !== "play"));
        }));
    }
  });
}

test("tag can be reached from the ticker", () =>
  withPage("", DEVICES["390 × 844"], PAGES.ticker.ready, async ({ page }) => {
    await page.tap('nav[aria-label="Demos"] a:text("Tag")');
    await page.waitForURL(`${BASE}lobby/`);
    await page.waitForSelector("#play:enabled");
  }));

async function withPage(path, viewport, ready, body) {
  const opened = await openPage(browser, `${BASE}${path}`, { ...PHONE, viewport });
  try {
    await ready(opened);
    await body(opened);
    assert.deepEqual(opened.faults, []);
  } finally {
    await opened.close();
  }
}

function assertInside({ x, y, width, height }, viewport, what) {
  const isInside = x >= 0 && y >= 0 && x + width <= viewport.width && y + height <= viewport.height;
  assert.ok(isInside, `${what} is at ${x}, ${y} with ${width} × ${height}, on ${viewport.width} × ${viewport.height}`);
}

/** No button lies over another one. */
async function assertApart(page, ids) {
  const boxes = await Promise.all(ids.map((id) => page.locator(`#${id}`).boundingBox()));
  for (const [index, one] of boxes.entries()) {
    for (const [other, two] of boxes.entries()) {
      if (other <= index) continue;
      const isApart = one.x + one.width <= two.x || two.x + two.width <= one.x || one.y + one.height <= two.y || two.y + two.height <= one.y;
      assert.ok(isApart, `${ids[index]} and ${ids[other]}`);
    }
  }
}
