/** The pages without storage: a browser that keeps no data throws when a page asks for it. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ArenaPage } from "./arena_page.mjs";
import { DESKTOP, launch, openPage } from "./chromium.mjs";
import { TagPage } from "./tag_page.mjs";
import { TickerPage } from "./ticker_page.mjs";

const BASE = process.env.DUNLIN_PAGE_URL;

let browser;

before(async () => {
  assert.ok(BASE, "DUNLIN_PAGE_URL names the server to check");
  browser = await launch();
});

after(() => browser?.close());

const PAGES = {
  ticker: { path: "", check: (opened) => new TickerPage(opened).ready() },
  arena: { path: "arena/", check: checkHint },
  tag: { path: "tag/?room=tag:stored", check: checkReload },
  lobby: { path: "lobby/", check: (opened) => new TagPage(opened).play() },
};

for (const [name, { path, check }] of Object.entries(PAGES)) {
  test(`the ${name} page does without storage`, async () => {
    const opened = await openPage(browser, `${BASE}${path}`, DESKTOP, denyStorage);
    try {
      await check(opened);
      assert.ok(await opened.page.evaluate(() => window.denied > 0) || name === "ticker", "the page has asked for storage");
      assert.deepEqual(opened.faults, []);
    } finally {
      await opened.close();
    }
  });
}

/** The hint can be closed, and comes back with the next visit. */
async function checkHint(opened) {
  const arena = new ArenaPage(opened);
  await arena.untilJoined();
  await opened.page.click("#hint-close");
  await opened.page.waitForSelector("#hint", { state: "hidden" });
  await opened.page.reload();
  await arena.untilJoined();
  assert.ok(await opened.page.locator("#hint").isVisible());
}

/** A reload is another player, because nothing was stored. */
async function checkReload(opened) {
  const tag = new TagPage(opened);
  const before = await tag.untilJoined();
  await opened.page.reload();
  assert.notEqual((await tag.untilJoined()).avatar, before.avatar);
}

function denyStorage(page) {
  return page.addInitScript(() => {
    window.denied = 0;
    for (const name of ["sessionStorage", "localStorage"]) {
      Object.defineProperty(window, name, {
        get() {
          window.denied += 1;
          throw new DOMException("denied", "SecurityError");
        },
      });
    }
  });
}
