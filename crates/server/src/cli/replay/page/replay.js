/** The page of `dunlin replay FILE --page`. */

import { byId, element } from "../../page/dom.js";
import { Player } from "./player.js";

const POLL_MS = 200;

/** @param {string} path */
async function get(path) {
  const response = await fetch(path);
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return { isReady: response.status === 200, body };
}

/** Waits until the recording has been replayed once. @returns {Promise<import("./player.js").Index>} */
async function loadIndex() {
  for (;;) {
    const { isReady, body } = await get("index");
    if (isReady) return body;
    say(`replaying: tick ${body.tick.toLocaleString("en")}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** @param {string} text */
function say(text) {
  byId("state", HTMLElement).textContent = text;
}

/** Says above the page what is wrong. @param {string | null} text null: nothing */
function warn(text) {
  const end = byId("end", HTMLElement);
  end.hidden = text === null;
  end.textContent = text;
}

/** @param {number} from @param {number} count */
const load = async (from, count) => (await get(`ticks?from=${from}&count=${count}`)).body.frames;

try {
  const index = await loadIndex();
  if (index.ticks === 0) throw new Error(index.end ?? "The recording has no ticks.");
  byId("title", HTMLElement).textContent = `${index.channel || "a room"}: ${index.simulation}, seed ${index.seed}`;
  const players = index.players.length + index.players_left_out;
  say(`${index.ticks.toLocaleString("en")} ticks, ${players} ${players === 1 ? "player" : "players"}`);
  const main = byId("main", HTMLElement);
  main.hidden = false;
  await new Player(index, load, main, warn, (client) => element("code", "", `dunlin explain ${client}`)).go(1);
} catch (error) {
  say("stopped");
  warn(error instanceof Error ? error.message : String(error));
}
