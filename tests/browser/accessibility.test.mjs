/** For all pages: axe reports no violation. Every label has an explanation. The arena shows how to play. */

import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { ArenaPage } from "./arena_page.mjs";
import { DESKTOP, launch, openPage, PHONE } from "./chromium.mjs";
import { TickerPage } from "./ticker_page.mjs";

const BASE = process.env.DUNLIN_PAGE_URL;
const SHOTS = new URL("./screenshots/", import.meta.url).pathname;
const SMALL_PHONE = { ...PHONE, viewport: { width: 360, height: 740 } };
const DEVICES = {
  "desktop, light": { ...DESKTOP, colorScheme: "light" },
  "desktop, dark": { ...DESKTOP, colorScheme: "dark" },
  "phone, light": { ...SMALL_PHONE, colorScheme: "light" },
  "phone, dark": { ...SMALL_PHONE, colorScheme: "dark" },
};

let axe;
let browser;

before(async () => {
  axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  await mkdir(SHOTS, { recursive: true });
  browser = await launch();
});

after(() => browser?.close());

const PAGES = {
  ticker: { path: "", ready: (opened) => new TickerPage(opened).ready() },
  arena: { path: "arena/", ready: untilUnveiled },
  tag: { path: "tag/?room=tag:axe", ready: untilUnveiled },
  lobby: { path: "lobby/", ready: (opened) => opened.page.waitForSelector("#play:enabled") },
};
/** The pages with figures, whose labels are explained. */
const EXPLAINED = ["ticker", "arena"];

/** Axe measures the contrast of the painted page, so text that is fading out would be a violation. */
async function untilUnveiled(opened) {
  await new ArenaPage(opened).untilJoined();
  await opened.page.waitForSelector("#veil", { state: "hidden" });
}

for (const [name, { path, ready }] of Object.entries(PAGES)) {
  describe(`${name} page`, () => {
    for (const [title, device] of Object.entries(DEVICES)) {
      test(`axe finds nothing: ${title}`, () =>
        withPage(path, device, ready, async (page) => {
          await page.screenshot({ path: `${SHOTS}${name}-${title.replace(", ", "-")}.png`, fullPage: true });
          await page.evaluate(axe);
          const violations = await page.evaluate(async () => (await window.axe.run(document)).violations);
          const found = violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target}: ${failureSummary}`));
          assert.deepEqual(found, []);
        }));
    }

    if (!EXPLAINED.includes(name)) return;

    test("a label that has the focus is explained", () =>
      withPage(path, DESKTOP, ready, async (page) => {
        const labels = await page.locator("[data-help]").all();
        assert.ok(labels.length >= 9);
        for (const label of labels) {
          await label.focus();
          assert.equal(await page.textContent("#explanation"), await label.getAttribute("data-help"));
        }
      }));

    test("a label that is touched is explained", () =>
      withPage(path, SMALL_PHONE, ready, async (page) => {
        const label = page.locator("[data-help]").nth(1);
        await label.tap();
        assert.equal(await page.textContent("#explanation"), await label.getAttribute("data-help"));
        assert.ok(await page.locator("#explanation").isVisible());
      }));
  });
}

describe("how to play", () => {
  test("is said on the first visit, until the first dig", () =>
    withPage("arena/", DESKTOP, PAGES.arena.ready, async (page) => {
      assert.match(await page.locator("#hint").innerText(), /arrow keys/);
      await page.focus("#field");
      await page.keyboard.press("Space");
      await page.waitForSelector("#hint", { state: "hidden" });
      await page.reload();
      await page.waitForFunction(() => document.querySelector("#stage").dataset.state === "joined");
      assert.equal(await page.locator("#hint").isVisible(), false);
    }));

  test("is for fingers on a phone, in nobody's way, and can be closed", () =>
    withPage("arena/", SMALL_PHONE, PAGES.arena.ready, async (page) => {
      assert.match(await page.locator("#hint").innerText(), /Press on the map/);
      const hint = await page.locator("#hint").boundingBox();
      for (const id of ["dig", "wave", "toggle-grid", "toggle-view", "cut", "minimap"]) {
        const other = await page.locator(`#${id}`).boundingBox();
        const isApart = hint.y + hint.height <= other.y || other.y + other.height <= hint.y || other.x + other.width <= hint.x;
        assert.ok(isApart, `#${id} is under the hint`);
      }
      assert.ok(hint.x >= 0 && hint.x + hint.width <= 360);
      await page.tap("#hint-close");
      await page.waitForSelector("#hint", { state: "hidden" });
    }));
});

async function withPage(path, device, ready, check) {
  const opened = await openPage(browser, `${BASE}${path}`, device);
  try {
    await ready(opened);
    await check(opened.page);
    assert.deepEqual(opened.faults, []);
  } finally {
    await opened.close();
  }
}
