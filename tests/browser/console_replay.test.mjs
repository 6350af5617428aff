/**
 * A recording in the console: a running room is found, scrubbed, played, seen as a player could see it, and loaded again with what
 * has been recorded since; recordings that cannot be replayed; the keyboard alone; phone width, axe, light and dark.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { Player, walk } from "../../web/room-client/test/e2e/player.mjs";
import { assertFits, DEADLINE_MS, DESKTOP, launch, openPage, PHONE } from "./chromium.mjs";

const BINARY = process.env.DUNLIN_BINARY;
const WITH_SERVER = new URL("../sdk/with-server", import.meta.url).pathname;
const SHOTS = new URL("./screenshots/", import.meta.url).pathname;
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const CHANNEL = "arena:hunt";
const PASSWORD = "look";
const TICKS = 300;
/** Would run if it became markup. */
const HOSTILE = "<b onclick=h()>x</b>";

const folder = mkdtempSync(join(tmpdir(), "dunlin-console-replay-"));
const recordings = join(folder, "recordings");
// The server reads variables with this prefix as configuration.
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("DUNLIN_")));

let browser;
let server;
let players;
let address;

before(async () => {
  assert.ok(BINARY, "DUNLIN_BINARY names the server to check");
  mkdirSync(SHOTS, { recursive: true });
  mkdirSync(recordings);
  const room = {
    simulation: "treasure_hunt", record_directory: recordings,
    params: { columns: 8, rows: 8, near_cells: 1, far_cells: 1, treasures: 10, obstacles: 10 },
  };
  const namespace = {
    name: "arena", room, history_size: 100, history_ttl: "60s", allow_subscribe_for_client: true, allow_subscribe_for_anonymous: true,
    allow_publish_for_subscriber: true, allow_publish_for_client: true, allow_publish_for_anonymous: true,
  };
  writeFileSync(join(folder, "config.json"), JSON.stringify({
    health: { enabled: true }, client: { allow_anonymous_connect_without_token: true },
    admin: { enabled: true, read_only_password: PASSWORD }, channel: { namespaces: [namespace] },
  }));
  // It ends when its command has read a line.
  const command = ["sh", "-c", "echo $DUNLIN_WS_URL; read line"];
  server = spawn(WITH_SERVER, [BINARY, "--config", join(folder, "config.json"), "--", ...command], { env, stdio: ["pipe", "pipe", "inherit"] });
  server.ended = once(server, "exit");
  const { value: endpoint } = await createInterface(server.stdout)[Symbol.asyncIterator]().next();
  const { host } = new URL(endpoint);
  address = `http://${host}/admin/`;
  // One takes each tick, and one takes each tenth.
  const joined = [{ name: "Ada" }, { name: HOSTILE, updates_per_second_max: 6 }];
  players = joined.map((data) => new Player("protobuf", CHANNEL, { data }, endpoint));
  for (const player of players) await player.join();
  players[0].room.send(walk(-127, -127));
  players[1].room.send(walk(127, 127));
  await players[0].until("a game", () => players[0].room.replica.tick > TICKS, DEADLINE_MS);
  browser = await launch();
});

after(async () => {
  await browser?.close();
  for (const player of players ?? []) player.stop();
  server?.stdin.end("\n");
  await server?.ended;
  rmSync(folder, { recursive: true });
});

/** Signs in, and opens a view. `expected` is a part of the errors of the page that belong to the test. */
async function withConsole(device, hash, check, expected = null) {
  const opened = await openPage(browser, `${address}${hash}`, device);
  try {
    await opened.page.fill("#password", PASSWORD);
    await opened.page.click("text=Sign in");
    await opened.page.waitForSelector("nav a[aria-current]");
    await check(opened.page);
    assert.deepEqual(opened.faults.filter((fault) => expected === null || !fault.includes(expected)), []);
  } finally {
    await opened.close();
  }
}

const untilTick = (page, tick) =>
  page.waitForFunction((tick) => document.documentElement.dataset.tick === String(tick), tick, { timeout: DEADLINE_MS });

async function assertGood(page, name) {
  await page.evaluate(AXE);
  const violations = await page.evaluate(async () => (await window.axe.run(document)).violations);
  assert.deepEqual(violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${name}: ${id}: ${target}: ${failureSummary}`)), []);
  const { hacked, images } = await page.evaluate(() => ({ hacked: window.hacked, images: document.images.length }));
  assert.deepEqual({ hacked, images }, { hacked: undefined, images: 0 });
  await assertFits(page, name);
}

const recording = () => readdirSync(recordings).find((file) => file.startsWith("arena_hunt-"));

test("a running room is found, scrubbed, seen as a player could see it, and loaded again", () =>
  withConsole(DESKTOP, `#/rooms/${encodeURIComponent(CHANNEL)}`, async (page) => {
    await page.click("text=its recordings");
    await page.waitForSelector("h1 >> text=Recordings");
    await page.click(`td >> text=${CHANNEL}`);
    await untilTick(page, 1);
    assert.match(await page.textContent(".recording"), /arena:hunt: treasure_hunt, seed \d+, [\d,]+ ticks, 2 players/);
    const last = Number(await page.getAttribute("#tick", "max"));

    // The join is one click away, and shows what was sent with it.
    await page.locator("#marks-list button", { hasText: "player 1 joins" }).click();
    await page.waitForFunction(() => document.querySelector("#steps").textContent.includes("joins as player 1"));
    await page.fill("#tick", String(last));
    await untilTick(page, last);
    await page.focus("#map");
    await page.keyboard.press("ArrowLeft");
    await untilTick(page, last - 1);

    // The other player has walked to the far corner.
    const why = [];
    for (const player of [1, 2]) {
      await page.selectOption("#view", String(player));
      why.push(await whyOfPlayers(page));
    }
    assert.deepEqual(why.map((sights) => sights.filter((sight) => sight.startsWith("Outside of the view")).length), [1, 1], JSON.stringify(why));

    // Of ten ticks, the second player was sent one.
    const had = [];
    for (let tick = 201; tick <= 210; tick += 1) {
      await page.fill("#tick", String(tick));
      await untilTick(page, tick);
      had.push(await page.textContent("#had"));
    }
    const left = had.filter((text) => /^Player 2 had tick \d+: it asks for fewer snapshots per second than the room has ticks/.test(text));
    assert.ok(left.length >= 8, JSON.stringify(had));
    await page.selectOption("#view", "1");
    assert.match(await page.textContent("#had"), /^Player 1 had tick \d+/);
    await page.selectOption("#view", "2");
    await page.screenshot({ path: join(SHOTS, "console-recording.png"), fullPage: true });

    await page.selectOption("#speed", "5");
    await page.fill("#tick", "1");
    await page.click("#play");
    await page.waitForFunction(() => Number(document.documentElement.dataset.tick) > 60, null, { timeout: DEADLINE_MS });
    await page.click("#play");

    await page.click("text=Load what has been recorded since");
    await page.waitForFunction((last) => Number(document.documentElement.dataset.tick) > last, last, { timeout: DEADLINE_MS });
    assert.ok(Number(await page.getAttribute("#tick", "max")) > last);
  }));

/** Why the chosen player sees, or does not see, each player's object. */
async function whyOfPlayers(page) {
  const sights = [];
  for (let id = 1; id < 60; id += 1) {
    await page.fill("#object", String(id));
    if ((await page.textContent("#object-title")) === `Object ${id}: Player`) sights.push(await page.textContent("#why"));
  }
  return sights;
}

describe("each part fits and has nothing that axe finds", () => {
  for (const [title, device] of Object.entries({
    "desktop-dark": { ...DESKTOP, colorScheme: "dark" },
    "phone-light": { ...PHONE, viewport: { width: 360, height: 740 }, colorScheme: "light" },
    "phone-dark": { ...PHONE, viewport: { width: 360, height: 740 }, colorScheme: "dark" },
    "desktop-light": { ...DESKTOP, colorScheme: "light" },
  })) {
    test(title, () =>
      withConsole(device, "#/recordings", async (page) => {
        await page.waitForSelector(`td >> text=${CHANNEL}`);
        await page.screenshot({ path: join(SHOTS, `console-recordings-${title}.png`), fullPage: true });
        await assertGood(page, "list");
        await page.click(`td >> text=${CHANNEL}`);
        await untilTick(page, 1);
        await page.fill("#tick", "250");
        await untilTick(page, 250);
        await page.selectOption("#view", "1");
        await page.screenshot({ path: join(SHOTS, `console-recording-${title}.png`), fullPage: true });
        await assertGood(page, "recording");
      }));
  }
});

test("with the keyboard alone, a recording is opened and stepped through", () =>
  withConsole(DESKTOP, "#/recordings", async (page) => {
    await page.waitForSelector(`td >> text=${CHANNEL}`);
    const tabTo = async (isThere) => {
      for (let presses = 0; presses < 60 && !(await page.evaluate(isThere)); presses += 1) await page.keyboard.press("Tab");
      assert.ok(await page.evaluate(isThere), String(isThere));
    };
    await tabTo(() => document.activeElement?.textContent === "arena:hunt");
    await page.keyboard.press("Enter");
    await untilTick(page, 1);
    await tabTo(() => document.activeElement?.id === "forth");
    await page.keyboard.press("Enter");
    await untilTick(page, 2);
    await page.keyboard.press("Shift+ArrowRight");
    await untilTick(page, 62);
    await tabTo(() => document.activeElement?.id === "play");
    await page.keyboard.press("Space");
    await page.waitForFunction(() => Number(document.documentElement.dataset.tick) > 70, null, { timeout: DEADLINE_MS });
    await page.keyboard.press("Space");
    assert.equal(await page.textContent("#play"), "Play");
  }));

test("recordings that cannot be replayed say why, and one that is cut is shown up to there", async () => {
  const whole = readFileSync(join(recordings, recording()));
  const otherVersion = Buffer.from(whole);
  otherVersion[8] = 200;
  for (const [file, bytes, why] of [
    ["a-1.dunlin-room", Buffer.from("nonsense"), "This is no recording"],
    ["a-2.dunlin-room", otherVersion, "Recordings of version 200 are not known here"],
    ["a-3.dunlin-room", whole.subarray(0, 9), "The recording breaks off"],
  ]) {
    writeFileSync(join(recordings, file), bytes);
    await withConsole(DESKTOP, `#/recordings/file/${file}`, (page) => page.waitForSelector(`[role=alert] >> text=${why}`), "422");
  }
  await withConsole(DESKTOP, "#/recordings/file/none-1.dunlin-room", (page) => page.waitForSelector("[role=alert] >> text=no such recording"), "404");
  writeFileSync(join(recordings, "a-4.dunlin-room"), whole.subarray(0, whole.length - 3));
  await withConsole(DESKTOP, "#/recordings/file/a-4.dunlin-room", async (page) => {
    await page.waitForSelector("[role=alert] >> text=The recording is cut off here");
    await untilTick(page, 1);
  });
});

test("a page that is left gives back its place", () =>
  withConsole(DESKTOP, "#/recordings", async (page) => {
    // As many as are open at a time, and one more.
    for (let opened = 0; opened < 3; opened += 1) {
      await page.evaluate((file) => (location.hash = `#/recordings/file/${file}`), recording());
      await untilTick(page, 1);
      const closed = page.waitForResponse((response) => response.url().endsWith("/data/replay_close"));
      await page.evaluate(() => {
        delete document.documentElement.dataset.tick;
        location.hash = "#/recordings";
      });
      await closed;
      await page.waitForSelector("h1 >> text=Recordings");
    }
    // A question that was on its way when the page was left finds no replay.
  }, "404"));
