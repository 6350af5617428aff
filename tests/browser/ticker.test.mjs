/** The ticker page in a real browser against the server at DUNLIN_PAGE_URL, in both encodings. */

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { DESKTOP, launch, openPage, PHONE } from "./chromium.mjs";
import { SYMBOLS, TickerPage } from "./ticker_page.mjs";

const BASE = process.env.DUNLIN_PAGE_URL;
const SHOTS = new URL("./screenshots/", import.meta.url).pathname;
/** Publications that each symbol must have before a page is opened, to distinguish history from live publications. */
const HISTORY_LEAST = 30;
const HISTORY_SIZE = 120;
/** The largest layout shift that a visitor would not notice. */
const LAYOUT_SHIFT_MAX = 0.02;

let browser;

before(async () => {
  assert.ok(BASE, "DUNLIN_PAGE_URL names the page to check");
  await mkdir(SHOTS, { recursive: true });
  browser = await launch();
});

after(() => browser?.close());

for (const encoding of ["json", "protobuf"]) {
  const address = `${BASE}?encoding=${encoding}`;

  describe(`ticker page, ${encoding}`, () => {
    test("prices move", () =>
      withPage(address, async (page) => {
        assert.equal(await page.page.textContent("#encoding"), encoding === "json" ? "JSON" : "Protobuf");
        const before = new Map();
        for (const symbol of SYMBOLS) before.set(symbol, await page.offset(symbol));
        const prices = await page.page.locator(".card .price").allTextContents();
        for (const symbol of SYMBOLS) await page.untilOffset(symbol, before.get(symbol) + 5);
        await page.until(
          (old) => [...document.querySelectorAll(".card .price")].some((now, i) => now.textContent !== old[i]),
          prices,
        );
        await page.until(() => Number(document.querySelector("[data-stat=publications]").textContent) > 0);
      }));

    test("charts are filled from history", async () => {
      await withPage(address, (page) => page.untilOffset("OYST", HISTORY_LEAST));
      await withPage(address, async (page) => {
        const line = (await page.logLines()).find((text) => text.startsWith("History:"));
        const filled = Number(line?.match(/History: ([\d,]+) /)?.[1]?.replaceAll(",", ""));
        assert.ok(filled >= HISTORY_LEAST * SYMBOLS.length - SYMBOLS.length, `log says: ${line}`);
        for (const symbol of SYMBOLS) {
          const { points, offset } = await page.page.evaluate(
            (name) => ({ ...document.querySelector(`[data-symbol="${name}"]`).dataset }),
            symbol,
          );
          assert.equal(Number(points), Math.min(HISTORY_SIZE, Number(offset)), symbol);
          assert.ok((await page.sparkPixels(symbol)) > 100, `${symbol} has a line`);
        }
      });
    });

    test("presence follows a second page", () =>
      withPage(address, async (page) => {
        await page.untilHere(1);
        const second = await open(address);
        const client = await second.client();
        await page.untilFeedSays(client, "joined");
        await page.untilHere(2);
        await second.untilHere(2);
        await finish(second);
        await page.untilFeedSays(client, "left");
        await page.untilHere(1);
      }));

    test("ten more sessions connect and leave", () =>
      withPage(address, async (page) => {
        await page.untilHere(1);
        await page.page.click("#tabs-open");
        await page.until(() => document.querySelector("#tabs").dataset.connected === "10");
        await page.untilHere(11);
        await page.until(() =>
          [...document.querySelectorAll(".tab .price")].every((price) => /\d/.test(price.textContent)),
        );
        if (encoding === "json") await page.page.screenshot({ path: `${SHOTS}desktop.png`, fullPage: true });
        await page.page.click("#tabs-close");
        await page.untilHere(1);
      }));

    test("what a cut connection missed is recovered", () =>
      withPage(address, async (page) => {
        const witness = await open(address);
        const client = await page.client();
        await page.toggleCut();
        await page.untilPhase("away");
        await page.until(() => document.documentElement.dataset.connection === "cut");
        await witness.untilFeedSays(client, "left");
        await page.untilDrawn();
        const frozen = await page.offset("ACME");
        for (const symbol of SYMBOLS) await witness.untilOffset(symbol, frozen + 15);
        assert.equal(await page.offset("ACME"), frozen, "nothing arrives while cut");
        await page.page.screenshot({ path: `${SHOTS}cut-${encoding}.png` });

        const top = await witness.offset("ACME");
        await page.toggleCut();
        await page.untilPhase("recovered", "incomplete");
        const report = await page.report();
        assert.equal(report.phase, "recovered", report.text);
        assert.equal(report.channels, SYMBOLS.length);
        assert.equal(report.missing, 0);
        assert.ok(report.recovered >= SYMBOLS.length * 12, `recovered ${report.recovered}`);
        assert.match(report.title, /^Recovered [\d,]+, missed 0$/);
        assert.match(report.text, /^Publications of 12 channels: the page checked every number/);
        await page.untilOffset("ACME", Math.max(top, frozen + 15) + 3);
        assert.equal(await page.stat("missing"), 0);
        assert.equal(await page.stat("duplicates"), 0);
        assert.ok((await page.stat("checked")) > report.recovered);
        await page.page.screenshot({ path: `${SHOTS}recovered-${encoding}.png` });
        await finish(witness);
      }));

    test("fits a phone", async () => {
      for (const width of [PHONE.viewport.width, 360]) {
        const device = { ...PHONE, viewport: { ...PHONE.viewport, width }, colorScheme: "dark" };
        await withPage(
          address,
          async (page) => {
            const widest = await page.page.evaluate(() => document.documentElement.scrollWidth);
            assert.ok(widest <= width, `${widest} px on a screen of ${width}`);
            await page.page.screenshot({ path: `${SHOTS}phone-${encoding}-${width}.png` });
            await page.page.tap("#cut-switch");
            await page.untilPhase("away");
            await page.page.screenshot({ path: `${SHOTS}phone-cut-${encoding}-${width}.png` });
            await page.page.tap("#cut-float-restore");
            await page.untilPhase("recovered");
            const after = await page.page.evaluate(() => document.documentElement.scrollWidth);
            assert.ok(after <= width, `${after} px on a screen of ${width} after the recovery`);
          },
          device,
        );
      }
    });
  });
}

describe("the page is honest", () => {
  test("a publication lost on the way is shown as a gap", () =>
    withPage(`${BASE}?encoding=json`, async (page) => {
      await page.until(() => document.querySelector("[data-stat=missing]").textContent === "1");
    }, DESKTOP, loseOnePublication, { isWhole: false }));

  test("what is older than the history is said to be missing", () =>
    withPage(`${BASE}?encoding=json`, async (page) => {
      const witness = await open(`${BASE}?encoding=json`);
      await page.toggleCut();
      await page.untilPhase("away");
      const frozen = await page.offset("ACME");
      for (const symbol of SYMBOLS) await witness.untilOffset(symbol, frozen + HISTORY_SIZE + 10);
      await finish(witness);
      await page.toggleCut();
      await page.untilPhase("recovered", "incomplete");
      const report = await page.report();
      assert.equal(report.phase, "incomplete", report.text);
      assert.ok(report.missing >= SYMBOLS.length, `${report.missing} missing`);
      assert.equal(await page.stat("missing"), report.missing);
      await page.page.screenshot({ path: `${SHOTS}incomplete.png` });
    }, DESKTOP, undefined, { isWhole: false }));
});

async function open(address, device = DESKTOP, prepare = undefined) {
  const page = new TickerPage(await openPage(browser, address, device, prepare));
  await page.ready();
  return page;
}

/** Opens a page, runs the check, and then asserts what must hold for every page. */
async function withPage(address, check, device = DESKTOP, prepare = undefined, { isWhole = true } = {}) {
  const page = await open(address, device, prepare);
  try {
    await check(page);
    if (isWhole) assert.equal(await page.stat("missing"), 0);
  } finally {
    await finish(page);
  }
}

async function finish(page) {
  const shift = await page.layoutShift();
  await page.close();
  assert.deepEqual(page.faults, []);
  assert.ok(shift < LAYOUT_SHIFT_MAX, `layout shifted by ${shift}`);
}

function isKnot(reply) {
  return reply.push?.pub?.data?.symbol === "KNOT";
}

/** Removes one live publication of ticker:KNOT from the server's messages. */
async function loseOnePublication(page) {
  let seen = 0;
  await page.routeWebSocket(/\/connection\/websocket/, (socket) => {
    const server = socket.connectToServer();
    server.onMessage((message) => {
      const kept = String(message)
        .split("\n")
        .filter((line) => line === "" || !(isKnot(JSON.parse(line)) && ++seen === 20));
      if (kept.length > 0) socket.send(kept.join("\n"));
    });
  });
}
