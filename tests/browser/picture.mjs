/**
 * Takes a picture of one of the demo's pages for README.md. The server runs with demo/config.json and `--demo-bots 300`:
 *   DUNLIN_PAGE_URL=http://127.0.0.1:8000/ node picture.mjs arena ../../docs/images/arena.png
 *   DUNLIN_PAGE_URL=http://127.0.0.1:8000/ node picture.mjs ticker ../../docs/images/ticker.png
 * `pngquant --ext .png --force` then makes them small.
 */

import { ArenaPage } from "./arena_page.mjs";
import { launch, openPage } from "./chromium.mjs";
import { TickerPage } from "./ticker_page.mjs";

/** The side of the map in demo/config.json: 32 cells of 512 units. */
const MAP_UNITS = 16_384;
/** Distance from the edge; larger than the radius of the view. */
const INLAND_UNITS = 3_000;

const PICTURES = { arena: takeArena, ticker: takeTicker };
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

/** After a recovery, and with ten more sessions. */
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
