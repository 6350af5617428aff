/** The arena page in a real browser against the server at DUNLIN_PAGE_URL, in both encodings and two sizes. */

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { Proxy } from "../sdk/js/support/proxy.mjs";
import { ArenaPage } from "./arena_page.mjs";
import { assertFits, DESKTOP, launch, openPage, PHONE } from "./chromium.mjs";
import { Walker } from "./walker.mjs";

const BASE = process.env.DUNLIN_PAGE_URL;
const ENDPOINT = process.env.DUNLIN_WS_URL;
const SHOTS = new URL("./screenshots/", import.meta.url).pathname;
/** The narrowest phone that the page is made for. */
const SMALL_PHONE = { ...PHONE, viewport: { width: 360, height: 740 } };

let browser;

before(async () => {
  assert.ok(BASE && ENDPOINT, "DUNLIN_PAGE_URL and DUNLIN_WS_URL name the server to check");
  await mkdir(SHOTS, { recursive: true });
  browser = await launch();
});

after(() => browser?.close());

for (const encoding of ["json", "protobuf"]) {
  const address = `${BASE}arena/?encoding=${encoding}`;

  describe(`arena page, ${encoding}`, () => {
    test("a visitor joins and sees what it takes", () =>
      withArena(address, DESKTOP, async (arena) => {
        const { avatar } = await arena.untilJoined();
        assert.ok(avatar > 0);
        assert.equal(await arena.page.textContent("#encoding"), encoding === "json" ? "JSON" : "Protobuf");
        for (const name of ["tick", "ticks", "tick-mean", "tick-p99", "bytes", "objects", "cells", "interval", "delay", "clock"]) {
          await arena.until((name) => /\d/.test(document.querySelector(`[data-stat="${name}"]`).textContent), name);
        }
        await arena.until(() => /^[\d,]+ of [\d,]+$/.test(document.querySelector("[data-stat=objects]").textContent));
        const [seen, all] = (await arena.figure("objects")).split(" of ").map((count) => Number(count.replaceAll(",", "")));
        assert.ok(seen >= 3 && all > seen && all > 1_000, `${seen} of ${all} objects`);
        const mean = await arena.figure("tick-mean");
        const p99 = await arena.figure("tick-p99");
        assert.ok(parseFloat(mean) > 0 && mean.endsWith(" ms"), mean);
        assert.ok(/^\u2264 [\d.,]+ m?s$/.test(p99), p99);
        await arena.until(() => document.querySelector("#log").textContent.includes("Welcome"));
        await arena.until(() => Number(document.querySelector("#players").textContent) > 0);
      }));

    test("where the server does not show its metrics, only the tick's time is unknown", () =>
      withArena(address, DESKTOP, async (arena) => {
        let asked = 0;
        await arena.page.route("**/metrics", (route) => {
          asked += 1;
          return route.fulfill({ status: 404 });
        });
        const answered = arena.page.waitForResponse("**/metrics");
        await arena.page.reload();
        await arena.untilJoined();
        await answered;
        await arena.until(() => /\d/.test(document.querySelector("[data-stat=bytes]").textContent));
        const { tick } = await arena.stage();
        // After three seconds it would have sent another request.
        await arena.until((tick) => document.querySelector("#stage").dataset.tick > tick, tick + 180);
        assert.equal(asked, 1);
        assert.deepEqual([await arena.figure("tick-mean"), await arena.figure("tick-p99")], ["\u2013", "\u2013"]);
        arena.faults = arena.faults.filter((fault) => !/Failed to load resource/.test(fault));
      }));

    test("a step is shown, confirmed, and ends where the server says", () =>
      withArena(address, DESKTOP, async (arena) => {
        const start = await arena.untilJoined();
        const [key, sign] = arena.awayFromEdge(start);
        await arena.page.focus("#field");
        await arena.page.keyboard.down(key);
        await arena.until(([x, sign]) => (document.querySelector("#stage").dataset.x - x) * sign > 150, [start.x, sign]);
        await arena.until(([x, sign]) => (document.querySelector("#stage").dataset.confirmedX - x) * sign > 150, [start.x, sign]);
        await arena.page.keyboard.up(key);
        // The walk and the stop. At an obstacle, the position is confirmed before the stop is sent.
        await arena.until((before) => Number(document.querySelector("#stage").dataset.ack) >= before + 2, start.ack);
        const end = await arena.untilSettled();
        assert.ok((end.confirmedX - start.confirmedX) * sign > 150);
        assert.equal(end.confirmedY, start.confirmedY);
        assert.match(await arena.figure("trip"), /\d ms|\d s/);
      }));

    test("a dig takes energy, and the grid and the view can be shown", () =>
      withArena(address, DESKTOP, async (arena) => {
        await arena.untilJoined();
        await arena.until(() => document.querySelector("#energy").getAttribute("aria-valuenow") === "100");
        await arena.page.focus("#field");
        await arena.page.keyboard.press("Space");
        await arena.until(() => Number(document.querySelector("#energy").getAttribute("aria-valuenow")) < 100);
        const before = await pixels(arena);
        for (const id of ["toggle-grid", "toggle-view"]) {
          await arena.page.click(`#${id}`);
          assert.equal(await arena.page.getAttribute(`#${id}`, "aria-pressed"), "true");
        }
        await arena.until(() => Number(document.querySelector("[data-stat=frames]").textContent) > 0);
        await arena.until((before) => document.querySelector("#field").toDataURL() !== before, before);
        await arena.page.screenshot({ path: `${SHOTS}arena-view-${encoding}.png` });
      }));

    test("another player is seen walking", () =>
      withArena(address, DESKTOP, async (arena) => {
        const here = await arena.untilJoined();
        const walker = await Walker.join(ENDPOINT);
        try {
          await walker.walkTo(here);
          const first = await arena.until((id) => placeOf(id), walker.id).then((handle) => handle.jsonValue());
          const [, sign] = arena.awayFromEdge(here);
          walker.walk(sign * 127, 0);
          await arena.until(([id, x, sign]) => (placeOf(id)?.x - x) * sign > 200, [walker.id, first.x, sign]);
          if (encoding === "protobuf") await arena.page.screenshot({ path: `${SHOTS}arena-desktop.png` });
        } finally {
          walker.leave();
        }
        await arena.until((id) => placeOf(id) === null, walker.id);
      }));

    test("a connection that is cut comes back by itself, and the hunt goes on", async () => {
      const cable = await Proxy.start(ENDPOINT);
      try {
        const through = new URL(address);
        through.port = new URL(cable.url).port;
        await withArena(through.href, DESKTOP, async (arena) => {
          const { avatar } = await arena.untilJoined();
          cable.cut();
          await arena.untilState("connecting");
          cable.restore();
          const back = await arena.untilJoined();
          assert.equal(back.avatar, avatar, "the player has kept its seat");
          const [key, sign] = arena.awayFromEdge(back);
          await arena.page.focus("#field");
          await arena.page.keyboard.down(key);
          await arena.until(([x, sign]) => (document.querySelector("#stage").dataset.confirmedX - x) * sign > 100, [back.confirmedX, sign]);
          await arena.page.keyboard.up(key);
          await arena.untilSettled();
          // The browser itself reports refused sockets, and requests for metrics while the network is cut.
          arena.faults = arena.faults.filter((fault) => !/WebSocket connection|Failed to load resource/.test(fault));
        });
      } finally {
        await cable.stop();
      }
    });

    test("the network can be cut and restored on the page", () =>
      withArena(address, DESKTOP, async (arena) => {
        const { avatar } = await arena.untilJoined();
        await arena.page.click("#cut");
        await arena.untilState("cut");
        await arena.until(() => document.querySelector("[data-stat=tick]").textContent === "\u2013");
        await arena.page.click("#cut");
        assert.equal((await arena.untilJoined()).avatar, avatar, "the player has kept its seat");
      }));

    test("the trail of a walk and the heat map are drawn", () =>
      withArena(address, DESKTOP, async (arena) => {
        const start = await arena.untilJoined();
        const [key, sign] = arena.awayFromEdge(start);
        await arena.page.focus("#field");
        await arena.page.keyboard.down(key);
        await arena.until(([x, sign]) => (document.querySelector("#stage").dataset.confirmedX - x) * sign > 300, [start.x, sign]);
        await arena.page.keyboard.up(key);
        await arena.untilSettled();
        for (const id of ["toggle-trails", "toggle-heat"]) {
          await arena.page.click(`#${id}`);
          assert.equal(await arena.page.getAttribute(`#${id}`, "aria-pressed"), "true");
        }
        // Blocks of paths are stored every three seconds.
        await arena.until(() => {
          const { trail, heat } = document.querySelector("#stage").dataset;
          return Number(trail) >= 2 && Number(heat) >= 1;
        });
        const shown = await pixels(arena);
        await arena.page.screenshot({ path: `${SHOTS}arena-paths-${encoding}.png` });
        for (const id of ["toggle-trails", "toggle-heat"]) await arena.page.click(`#${id}`);
        await arena.until((shown) => document.querySelector("#field").toDataURL() !== shown, shown);
      }));

    test("on a phone a finger leads the way", () =>
      withArena(address, SMALL_PHONE, async (arena) => {
        const start = await arena.untilJoined();
        const [, sign] = arena.awayFromEdge(start);
        const box = await arena.page.locator("#field").boundingBox();
        await arena.page.touchscreen.tap(box.x + box.width / 2 + sign * 110, box.y + box.height / 2);
        await arena.until(([x, sign]) => (document.querySelector("#stage").dataset.confirmedX - x) * sign > 200, [start.confirmedX, sign]);
        await arena.untilSettled();
        await arena.page.tap("#dig");
        await arena.until(() => Number(document.querySelector("#energy").getAttribute("aria-valuenow")) < 100);
        await assertFits(arena.page);
        for (const id of ["dig", "wave", "toggle-grid", "toggle-view", "cut"]) {
          const { x, y, width, height } = await arena.page.locator(`#${id}`).boundingBox();
          assert.ok(x >= 0 && x + width <= 360 && y + height <= 740 && width >= 40 && height >= 32, `#${id} is in reach`);
        }
        await arena.page.screenshot({ path: `${SHOTS}arena-phone-${encoding}.png` });
      }));
  });
}

test("the pages lead to each other", async () => {
  const opened = await openPage(browser, BASE);
  try {
    await opened.page.click("#to-arena");
    await opened.page.waitForURL(`${BASE}arena/`);
    await new ArenaPage(opened).untilJoined();
    await opened.page.click('nav[aria-label="Demos"] a:text("Ticker")');
    await opened.page.waitForURL(BASE);
    await opened.page.waitForSelector("#cards .card");
  } finally {
    await opened.close();
  }
});

/** Opens the arena, runs the body, and expects no errors on the page. */
async function withArena(address, device, body) {
  const arena = new ArenaPage(await openPage(browser, address, device, async (page) => {
    await page.addInitScript(() => {
      // For conditions: where another player is shown.
      window.placeOf = (id) => {
        const others = (document.querySelector("#stage")?.dataset.others ?? "").split(" ");
        const [, x, y] = others.map((other) => other.split(":").map(Number)).find(([other]) => other === id) ?? [];
        return x === undefined ? null : { x, y };
      };
    });
  }));
  try {
    await body(arena);
    assert.deepEqual(arena.faults, []);
  } finally {
    await arena.close();
  }
}

/** A fingerprint of the picture on the canvas. */
const pixels = (arena) => arena.page.evaluate(() => document.querySelector("#field").toDataURL());
