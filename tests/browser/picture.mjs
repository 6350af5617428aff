/**
 * Takes a picture of one of the demo's pages for README.md. `make run` has started the server:
 * DUNLIN_PAGE_URL=http://127.0.0.1:8000/ node picture.mjs arena ../../docs/images/arena.png
 * DUNLIN_PAGE_URL=http://127.0.0.1:8000/ node picture.mjs ticker ../../docs/images/ticker.png
 * DUNLIN_PAGE_URL=http://127.0.0.1:8000/ node picture.mjs tag ../../docs/images/tag.png
 * DUNLIN_PAGE_URL=http://127.0.0.1:8000/ node picture.mjs lobby ../../docs/images/lobby.png `pngquant --ext .png
 * --force` then reduces their size.
 */

import { ArenaPage } from "./arena_page.mjs";
import { launch, openPage } from "./chromium.mjs";
import { TagPage } from "./tag_page.mjs";
import { TickerPage } from "./ticker_page.mjs";

/** The side of the map in demo/config.json: 32 cells of 512 units. */
const MAP_UNITS = 16_384;
/** Distance from the edge; larger than the radius of the view. */
const INLAND_UNITS = 3_000;
/** The side of the tag game's map; the distance of the runner in the picture from the edge, and the number of other runners near it. */
const TAG_MAP_UNITS = 4_096;
const TAG_INLAND_UNITS = 800;
const TAG_CROWD = 7;

const PICTURES = { arena: takeArena, ticker: takeTicker, tag: takeTag, lobby: takeLobby };
const [, , name, path] = process.argv;
const address = process.env.DUNLIN_PAGE_URL;
const browser = await launch();
await PICTURES[name](path);
await browser.close();

/** A running hunt, with the grid of the map and the player's view. */
async function takeArena(path) {
  const arena = new ArenaPage(await openPage(browser, `${address}arena/`, { viewport: { width: 1320, height: 880 }, colorScheme: "light" }));
  const start = await arena.untilJoined();
  for (const id of ["hint-close", "toggle-grid", "toggle-view"]) await arena.page.click(`#${id}`);
  await arena.page.focus("#field");
  await walkInland(arena, start);
  for (const figure of ["trip", "tick-mean", "tick-p99"]) {
    await arena.until((figure) => /\d/.test(document.querySelector(`[data-stat="${figure}"]`).textContent), figure);
  }
  // Each of the ten best players has found a treasure, and the player runs towards a clue.
  await arena.until(() => /[1-9]/.test(document.querySelector("#leaders li:nth-child(10) .points")?.textContent ?? ""));
  await arena.until(() => !document.querySelector("#clue").hidden);
  const { x } = await arena.stage();
  const [key, sign] = arena.awayFromEdge({ x }, MAP_UNITS / 2);
  await arena.page.keyboard.down(key);
  await arena.until(([x, sign]) => (document.querySelector("#stage").dataset.confirmedX - x) * sign > 500, [x, sign]);
  await arena.page.screenshot({ path });
}

/** Walks horizontally, then vertically, until the whole view lies on the map. */
async function walkInland(arena, start) {
  for (const [axis, keys] of [["x", ["ArrowRight", "ArrowLeft"]], ["y", ["ArrowDown", "ArrowUp"]]]) {
    const key = keys[start[axis] < MAP_UNITS / 2 ? 0 : 1];
    await arena.page.keyboard.down(key);
    await arena.until(([axis, inland, units]) => {
      const at = Number(document.querySelector("#stage").dataset[axis]);
      return at > inland && at < units - inland;
    }, [axis, INLAND_UNITS, MAP_UNITS]);
    await arena.page.keyboard.up(key);
  }
}

/** The ticker after a recovery, with ten more sessions. */
async function takeTicker(path) {
  const cutPublications = 20;
  const livePublications = 40;
  const page = new TickerPage(await openPage(browser, address, { viewport: { width: 1280, height: 1404 } }));
  const witness = new TickerPage(await openPage(browser, address));
  await Promise.all([page.ready(), witness.ready()]);
  await page.page.click("#tabs-open");
  await page.until(() => document.querySelector("#tabs").dataset.connected === "10");
  await page.toggleCut();
  await page.untilPhase("away");
  await witness.untilOffset("OYST", (await page.offset("OYST")) + cutPublications);
  await page.toggleCut();
  await page.untilPhase("recovered");
  await page.untilOffset("OYST", (await page.offset("OYST")) + livePublications);
  await page.until(() => /\d/.test(document.querySelector("#round-trip").textContent));
  await page.page.screenshot({ path });
}

/** A round of tag away from the edge: the runner has points, and others are near. A tagged runner comes back elsewhere. */
async function takeTag(path) {
  const tag = new TagPage(await openPage(browser, `${address}tag/?room=tag:meadow`, { viewport: { width: 1320, height: 880 }, colorScheme: "light" }));
  await tag.untilJoined();
  await tag.until(([units, inland, near]) => {
    const { x, y, others = "" } = document.querySelector("#stage").dataset;
    const isInland = [x, y].every((at) => at > inland && at < units - inland);
    const isNear = ([, otherX, otherY]) => Math.abs(otherX - x) < 850 && Math.abs(otherY - y) < 600;
    if (document.querySelector("#out").hidden) document.querySelector("#shoot").click();
    const points = Number(document.querySelector("#score").textContent);
    const crowd = others.split(" ").map((other) => other.split(":").map(Number)).filter(isNear).length;
    return points >= 2 && isInland && crowd >= near && document.querySelectorAll("#log li").length > 2 && document.querySelector("#out").hidden;
  }, [TAG_MAP_UNITS, TAG_INLAND_UNITS, TAG_CROWD]);
  await tag.page.evaluate(() => document.activeElement.blur());
  await tag.page.screenshot({ path });
}

/** A lobby with several rooms, and players in them. */
async function takeLobby(path) {
  for (const [room, players] of Object.entries({ "tag:meadow": 3, "tag:mudflat": 2, "tag:saltmarsh": 1 })) {
    for (let count = 0; count < players; count += 1) {
      const page = new TagPage(await openPage(browser, `${address}tag/?room=${room}`));
      await page.untilJoined();
    }
  }
  const lobby = new TagPage(await openPage(browser, `${address}lobby/`, { viewport: { width: 1000, height: 520 }, colorScheme: "light" }));
  await lobby.untilListed("tag:meadow", 3);
  await lobby.untilListed("tag:saltmarsh", 1);
  await lobby.page.screenshot({ path });
}
