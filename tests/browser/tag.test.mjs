/** The tag game and its lobby in a real browser against the server at DUNLIN_PAGE_URL: two pages and 50 bots. */

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, test } from "node:test";
import { assertFits, DESKTOP, launch, openPage, PHONE } from "./chromium.mjs";
import { TagPage } from "./tag_page.mjs";

const BASE = process.env.DUNLIN_PAGE_URL;
const SHOTS = new URL("./screenshots/", import.meta.url).pathname;
const BOTS = 50;

let browser;

before(async () => {
  assert.ok(BASE, "DUNLIN_PAGE_URL names the server to check");
  await mkdir(SHOTS, { recursive: true });
  browser = await launch();
});

after(() => browser?.close());

for (const encoding of ["json", "protobuf"]) {
  test(`two pages from the lobby play among bots, one tags, is cut off and comes back to its seat, ${encoding}`, () =>
    withPages([`lobby/?encoding=${encoding}`, `lobby/?encoding=${encoding}`, "lobby/"], async (one, two, lobby) => {
      const ada = await one.play();
      assert.match(ada.room, /^tag:match-/);
      await lobby.untilListed(ada.room, 1);
      const ben = await two.play();
      assert.equal(ben.room, ada.room, "matchmaking fills the room that is open");
      assert.notEqual(ben.avatar, ada.avatar);
      await lobby.untilListed(ada.room, 2);
      if (encoding === "protobuf") await lobby.page.screenshot({ path: `${SHOTS}lobby-desktop.png` });
      await one.until((runners) => Number(document.querySelector("#stage").dataset.runners) >= runners, BOTS + 2);

      // A runner that is out or reloads does not shoot. Without a mouse on the map, the button aims at the nearest runner.
      await one.until(() => {
        const { shots, tagged } = document.querySelector("#stage").dataset;
        if (Number(shots) > 0 && Number(tagged) > 0 && Number(document.querySelector("#score").textContent) > 0) return true;
        document.querySelector("#shoot").click();
        return false;
      });
      assert.match(await one.page.textContent("#log"), /You tagged/);
      await two.until(() => Number(document.querySelector("#leaders .points")?.textContent) > 0);
      if (encoding === "protobuf") await one.page.screenshot({ path: `${SHOTS}tag-desktop.png` });

      await one.page.click("#cut");
      await one.untilState("cut");
      assert.equal((await two.stage()).avatar, ben.avatar);
      await one.page.click("#cut");
      const back = await one.untilJoined();
      assert.deepEqual([back.avatar, back.room], [ada.avatar, ada.room], "the same player");
      await one.until(() => document.querySelector("#stage").dataset.resumed === "true");

      // A reload of the page keeps the seat as well.
      await one.page.reload();
      assert.equal((await one.untilJoined()).avatar, ada.avatar, "the same player after a reload");
      await one.until(() => document.querySelector("#stage").dataset.resumed === "true");

      await one.page.click("#to-lobby");
      await one.until(() => document.querySelector("#rooms") !== null);
      await one.untilListed(ada.room, 1);
      await lobby.until((room) => document.querySelector(`#rooms [data-room="${room}"]`)?.dataset.players === "1", ada.room);
      await two.page.click("#to-lobby");
      // A room that has been empty for a while is no longer listed.
      await lobby.until((room) => Number(document.querySelector(`#rooms [data-room="${room}"]`)?.dataset.players ?? 0) === 0, ada.room);
    }));
}

test("a spectator watches and has no runner", () =>
  withPages(["tag/?room=tag:watched", "tag/?room=tag:watched&watch"], async (one, spectator) => {
    const ada = await one.untilJoined();
    const watched = await spectator.untilJoined();
    assert.ok(watched.avatar > 0, "it follows a runner");
    assert.equal(await spectator.page.locator("#shoot").isVisible(), false);
    assert.ok(await spectator.page.locator("#watching").isVisible());
    const sign = ada.x < 2_048 ? 1 : -1;
    await one.run(sign > 0 ? "ArrowRight" : "ArrowLeft", "x", sign, 100);
    await spectator.until((runners) => Number(document.querySelector("#stage").dataset.runners) === runners, BOTS + 1);
  }));

test("on a phone there is a button to shoot, and nothing is out of reach", () =>
  withPages(["tag/?room=tag:phone"], async (phone) => {
    await phone.untilJoined();
    const before = (await phone.stage()).ack;
    await phone.page.tap("#shoot");
    await phone.until((before) => Number(document.querySelector("#stage").dataset.ack) > before, before);
    await assertFits(phone.page);
    for (const id of ["shoot", "cut", "to-lobby"]) {
      const box = await phone.page.locator(`#${id}`).boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= 360 && box.y + box.height <= 740, `#${id} is in reach`);
    }
    // The message for a tagged runner does not cover the map.
    await phone.until(() => {
      const out = document.querySelector("#out");
      if (!out.hidden) window.outBox = out.getBoundingClientRect();
      return window.outBox !== undefined;
    });
    const out = await phone.page.evaluate(() => window.outBox.toJSON());
    assert.ok(out.left >= 10 && out.right <= 350 && out.height < 48, JSON.stringify(out));
    await phone.page.screenshot({ path: `${SHOTS}tag-phone.png` });
  }, { ...PHONE, viewport: { width: 360, height: 740 } }));

/** Opens pages, runs the body, and expects no errors on them. */
async function withPages(paths, body, device = DESKTOP) {
  const pages = [];
  try {
    for (const path of paths) pages.push(new TagPage(await openPage(browser, `${BASE}${path}`, device)));
    await body(...pages);
    for (const { faults } of pages) assert.deepEqual(faults, []);
  } finally {
    for (const page of pages) await page.close();
  }
}
