/**
 * The demo's pages while their server is killed during a game and started again: the player gets its seat back, and the prices
 * have no gap. Without a storage, as the first `make run` on a machine has it, an open page goes on with the new server. The test
 * starts its own servers with the demo's configuration.
 */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { ArenaPage } from "./arena_page.mjs";
import { DEADLINE_MS, DESKTOP, launch, openPage } from "./chromium.mjs";
import { freePort } from "./ports.mjs";
import { TagPage } from "./tag_page.mjs";
import { TickerPage } from "./ticker_page.mjs";

const BINARY = process.env.DUNLIN_BINARY;
const ROOT = new URL("../../", import.meta.url).pathname;
const SHOTS = new URL("./screenshots/", import.meta.url).pathname;
/** The browser reports sockets and requests that a killed server cannot answer. */
const OF_THE_KILL = /WebSocket connection|Failed to load resource/;

/** A server that can be killed and started again on the same port, and with a storage on the same one. */
class MortalServer {
  static async create({ hasStorage }) {
    const server = new MortalServer();
    server.folder = mkdtempSync(join(tmpdir(), "dunlin-survival-"));
    server.port = await freePort();
    const text = hasStorage ? readFileSync(join(ROOT, "demo/config.json"), "utf8") : execFileSync(join(ROOT, "demo/in-memory"), { encoding: "utf8" });
    const config = JSON.parse(text);
    config.http_server.port = server.port;
    if (hasStorage) config.storage.path = join(server.folder, "storage");
    writeFileSync(join(server.folder, "config.json"), JSON.stringify(config));
    await server.start();
    return server;
  }

  get page() {
    return `http://127.0.0.1:${this.port}/`;
  }

  async start() {
    const serve = [BINARY, "serve", "-c", join(this.folder, "config.json"), "--demo", join(ROOT, "web/dist")];
    const args = [`--node=127.0.0.1:${this.port}`, "--", ...serve];
    // The server reads variables with this prefix as configuration.
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("DUNLIN_")));
    // It becomes the server. What publishes the prices ends with it.
    this.process = spawn(join(dirname(BINARY), "dunlin-demo"), args, { env, stdio: ["ignore", "ignore", "inherit"] });
    this.ended = once(this.process, "exit");
    const deadline = Date.now() + DEADLINE_MS;
    while (!(await this.isHealthy())) {
      assert.equal(this.process.exitCode, null, "the server ends at start");
      assert.ok(Date.now() < deadline, "no /health");
      await wait(20); // between two attempts
    }
  }

  isHealthy() {
    return fetch(`${this.page}health`).then((answer) => answer.ok, () => false);
  }

  async kill() {
    this.process.kill("SIGKILL");
    await this.ended;
  }

  async remove() {
    await this.kill();
    rmSync(this.folder, { recursive: true });
  }
}

let browser;
let server;

before(async () => {
  assert.ok(BINARY, "DUNLIN_BINARY names the server to check");
  browser = await launch();
  server = await MortalServer.create({ hasStorage: true });
});

after(async () => {
  await browser?.close();
  await server?.remove();
});

for (const encoding of ["json", "protobuf"]) {
  test(`a player is back in its seat after the server was killed, ${encoding}`, async () => {
    const arena = new ArenaPage(await openPage(browser, `${server.page}arena/?encoding=${encoding}`, DESKTOP));
    try {
      const start = await arena.untilJoined();
      const [key, sign] = arena.awayFromEdge(start);
      await arena.page.focus("#field");
      await arena.page.keyboard.down(key);
      await arena.until(([x, sign]) => (document.querySelector("#stage").dataset.confirmedX - x) * sign > 150, [start.x, sign]);
      const seen = await arena.stage();
      await server.kill();
      await arena.untilState("connecting");
      await arena.page.keyboard.up(key);
      await server.start();
      const back = await arena.untilJoined();
      assert.equal(back.avatar, start.avatar, "the same object");
      await arena.until((tick) => document.querySelector("#stage").dataset.tick > tick, seen.tick);
      const settled = await arena.untilSettled();
      assert.ok((settled.confirmedX - start.x) * sign > 150, "where it had walked to");
      await arena.page.keyboard.down("ArrowDown");
      await arena.until((y) => document.querySelector("#stage").dataset.confirmedY !== String(y), settled.confirmedY);
      await arena.page.keyboard.up("ArrowDown");
      if (encoding === "protobuf") await arena.page.screenshot({ path: `${SHOTS}arena-survived.png` });
      assert.deepEqual(arena.faults.filter((fault) => !OF_THE_KILL.test(fault)), []);
    } finally {
      await arena.close();
    }
  });

  test(`prices go on without a gap after the server was killed, ${encoding}`, async () => {
    const ticker = new TickerPage(await openPage(browser, `${server.page}?encoding=${encoding}`, DESKTOP));
    try {
      await ticker.ready();
      const before = await ticker.offset("ACME");
      await ticker.untilOffset("ACME", before + 5);
      await server.kill();
      await ticker.until(() => document.querySelector("#state").dataset.state !== "connected");
      await server.start();
      await ticker.until(() => /Recovered \d+ on 12 channels, 0 missing/.test(document.querySelector("#log").textContent));
      await ticker.untilOffset("ACME", before + 15);
      assert.equal(await ticker.stat("missing"), 0);
      assert.equal(await ticker.stat("duplicates"), 0);
      assert.doesNotMatch((await ticker.logLines()).join("\n"), /new epochs/);
      assert.deepEqual(ticker.faults.filter((fault) => !OF_THE_KILL.test(fault)), []);
    } finally {
      await ticker.close();
    }
  });
}

const inRoom = (opened) => new ArenaPage(opened).untilJoined();
const PAGES = {
  ticker: { path: "", open: (opened) => new TickerPage(opened).ready(), lost: "#state", goesOn: pricesArrive },
  arena: { path: "arena/", open: inRoom, lost: "#stage", goesOn: walks },
  tag: { path: "tag/?room=tag:again", open: inRoom, lost: "#stage", goesOn: walks },
  lobby: { path: "lobby/", open: (opened) => opened.page.waitForSelector("#play:enabled"), lost: "#state", goesOn: (opened) => new TagPage(opened).play() },
};

test("pages of an earlier `make run` go on with the next one, which remembers nothing", async () => {
  const forgetful = await MortalServer.create({ hasStorage: false });
  const pages = [];
  try {
    for (const { path, open } of Object.values(PAGES)) {
      const opened = await openPage(browser, `${forgetful.page}${path}`, DESKTOP);
      pages.push(opened);
      await open(opened);
    }
    await forgetful.kill();
    for (const [index, { lost }] of Object.values(PAGES).entries()) {
      // A page in the background draws nothing.
      await pages[index].page.bringToFront();
      await pages[index].page.waitForFunction((lost) => !["connected", "joined"].includes(document.querySelector(lost).dataset.state), lost);
    }
    await forgetful.start();
    for (const [index, [name, { goesOn }]] of Object.entries(PAGES).entries()) {
      const opened = pages[index];
      await opened.page.bringToFront();
      await goesOn(opened);
      await opened.page.screenshot({ path: `${SHOTS}again-${name}.png` });
      assert.deepEqual(opened.faults.filter((fault) => !OF_THE_KILL.test(fault)), [], name);
    }
  } finally {
    for (const opened of pages) await opened.close();
    await forgetful.remove();
  }
});

async function pricesArrive(opened) {
  const ticker = new TickerPage(opened);
  await ticker.ready();
  await ticker.untilOffset("ACME", (await ticker.offset("ACME")) + 5);
}

/** The player of a page is in the room again, and obeys its keys. */
async function walks(opened) {
  const game = new ArenaPage(opened);
  await game.untilJoined();
  await opened.page.focus("#field");
  await opened.page.keyboard.down("ArrowDown");
  await game.until(() => Number(document.querySelector("#stage").dataset.ack) > 0);
  await opened.page.keyboard.up("ArrowDown");
}
