/** The page of `dunlin replay FILE --page`: a game that two players have played, scrubbed, and seen as one of them saw it. */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { Player, walk } from "../../web/room-client/test/e2e/player.mjs";
import { assertFits, DEADLINE_MS, DESKTOP, launch, openPage, PHONE } from "./chromium.mjs";

const BINARY = process.env.DUNLIN_BINARY;
const WITH_SERVER = new URL("../sdk/with-server", import.meta.url).pathname;
const SHOTS = new URL("./screenshots/", import.meta.url).pathname;
const CHANNEL = "arena:hunt";
/** More than one piece of the page, and more than one checkpoint. */
const TICKS = 300;

const folder = mkdtempSync(join(tmpdir(), "dunlin-replay-"));
const recordings = join(folder, "recordings");
const started = [];
let browser;
let replay;

// The server reads variables with this prefix as configuration.
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("DUNLIN_")));

function start(command, args) {
  const program = spawn(command, args, { env, stdio: ["pipe", "pipe", "inherit"] });
  program.ended = once(program, "exit");
  program.lines = createInterface(program.stdout)[Symbol.asyncIterator]();
  started.push(program);
  return program;
}

async function stop(program) {
  program.kill("SIGTERM");
  await program.ended;
}

/** Two players walk apart, and one of them is gone when the server stops. */
async function record() {
  mkdirSync(recordings);
  const room = {
    // From where they are with this seed, both walk all the time: they do not come to an edge.
    simulation: "treasure_hunt", record_directory: recordings, seed: 6,
    params: { columns: 8, rows: 8, near_cells: 1, far_cells: 1, treasures: 10, obstacles: 10 },
  };
  const namespace = {
    name: "arena", room, history_size: 100, history_ttl: "60s", allow_subscribe_for_client: true, allow_subscribe_for_anonymous: true,
    allow_publish_for_subscriber: true, allow_publish_for_client: true, allow_publish_for_anonymous: true,
  };
  writeFileSync(join(folder, "config.json"), JSON.stringify({
    health: { enabled: true }, client: { allow_anonymous_connect_without_token: true },
    channel: { namespaces: [namespace] },
  }));
  // It ends when its command has read a line.
  const command = ["sh", "-c", "echo $DUNLIN_WS_URL; read line"];
  const server = start(WITH_SERVER, [BINARY, "--config", join(folder, "config.json"), "--", ...command]);
  const { value: endpoint } = await server.lines.next();
  const [ada, bob] = ["Ada", "Bob"].map((name) => new Player("protobuf", CHANNEL, { data: { name } }, endpoint));
  await ada.join();
  await bob.join();
  ada.room.send(walk(-127, -127));
  bob.room.send(walk(127, 127));
  await ada.until("a game", () => ada.room.replica.tick > TICKS, DEADLINE_MS);
  bob.stop();
  ada.stop();
  server.stdin.end("\n");
  await server.ended;
  const [file] = readdirSync(recordings);
  return join(recordings, file);
}

/** Starts the page of a recording; its address. */
async function open(file) {
  const program = start(BINARY, ["replay", file, "--page"]);
  const { value: line } = await program.lines.next();
  return line.match(/http:\S+:\d+\//)?.[0] ?? assert.fail(line);
}

before(async () => {
  assert.ok(BINARY, "DUNLIN_BINARY names the server to check");
  mkdirSync(SHOTS, { recursive: true });
  replay = await record();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  for (const program of started) if (program.exitCode === null) await stop(program);
  rmSync(folder, { recursive: true });
});

const untilTick = (page, tick) =>
  page.waitForFunction((tick) => document.documentElement.dataset.tick === String(tick), tick, { timeout: DEADLINE_MS });

/** Selects the first object of a kind by its number; what the page says of it must agree with a click on it. */
async function select(page, kind) {
  for (let id = 1; id < 100; id += 1) {
    await page.fill("#object", String(id));
    if ((await page.textContent("#object-title")) === `Object ${id}: ${kind}`) return id;
  }
  return assert.fail(`no ${kind} in the room`);
}

test("a game is scrubbed, played, and seen as a player saw it", async () => {
  const { page, faults, close } = await openPage(browser, await open(replay), DESKTOP);
  await untilTick(page, 1);
  assert.match(await page.textContent("#title"), /^arena:hunt: treasure_hunt, seed \d+$/);
  const last = Number(await page.getAttribute("#tick", "max"));
  assert.ok(last > TICKS, `${last} ticks`);

  // Both joined: the list leads to these ticks.
  const joins = page.locator("#marks-list button", { hasText: "joins" });
  assert.equal(await joins.count(), 2);
  await joins.first().click();
  await page.waitForFunction(() => document.querySelector("#steps").textContent.includes("joins as player 1"));

  // Any tick, by the slider and by keys.
  await page.fill("#tick", String(last));
  await untilTick(page, last);
  await page.focus("#map");
  await page.keyboard.press("ArrowLeft");
  await untilTick(page, last - 1);
  await page.keyboard.press("Shift+ArrowLeft");
  await untilTick(page, last - 61);

  // Ada and Bob have walked to different corners.
  const id = await select(page, "Player");
  // The page follows it, so it is in the middle of the map.
  await page.check("#follow");
  await page.fill("#object", "");
  await page.fill("#object", String(id));
  const { x, y, width, height } = await page.locator("#map").boundingBox();
  await page.mouse.click(x + width / 2, y + height / 2);
  assert.match(await page.textContent("#object-title"), /^Object \d+: \w+$/, "its name or its purse may be at the same place");
  await page.fill("#object", String(id));
  const sights = [];
  for (const player of [1, 2]) {
    await page.selectOption("#view", String(player));
    sights.push(await page.textContent("#why"));
  }
  assert.equal(sights.filter((why) => why.startsWith("In view, 0 cells away")).length, 1, `one of them is at its own player: ${sights}`);
  assert.equal(sights.filter((why) => why.startsWith("Outside of the view")).length, 1, `the other one is far away: ${sights}`);
  assert.match(await page.textContent("#fields"), /activity/, "the fields have names");

  await page.uncheck("#follow");
  await page.screenshot({ path: join(SHOTS, "replay.png") });

  await page.fill("#tick", "1");
  await untilTick(page, 1);
  await page.selectOption("#speed", "5");
  await page.click("#play");
  await page.waitForFunction(() => Number(document.documentElement.dataset.tick) > 130, null, { timeout: DEADLINE_MS });
  // A tick that is loaded already: playing goes on from there, not from where it was.
  await page.selectOption("#speed", "0.1");
  await page.fill("#tick", "5");
  await page.waitForFunction(() => {
    const tick = Number(document.documentElement.dataset.tick);
    return tick > 5 && tick < 60;
  }, null, { timeout: DEADLINE_MS });
  await page.click("#play");
  assert.equal(await page.textContent("#play"), "Play");
  await page.focus("#follow");
  await page.keyboard.press("Space");
  assert.deepEqual([await page.isChecked("#follow"), await page.textContent("#play")], [true, "Play"], "a box has its own meaning of Space");

  await page.evaluate(readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8"));
  const violations = await page.evaluate(async () => (await window.axe.run(document)).violations);
  assert.deepEqual(violations.map(({ id, help }) => `${id}: ${help}`), []);
  assert.deepEqual(faults, []);
  await close();
});

/** A number as recordings have it: 7 bits per byte, the lowest first. */
const number = (value) => (value < 128 ? [value] : [(value % 128) | 128, ...number(Math.floor(value / 128))]);

/** What a recording says of a player's connection: a snapshot, the tick that it had before, and the flags and numbers that follow. */
const carriedTo = (player, flags, tick, had, ...numbers) => [48, player, flags, ...[tick, had, ...numbers].flatMap(number)];
const carried = (...told) => carriedTo(1, ...told);

/** A recording without what it says of the connections of players, which may have been behind on a busy machine. */
function withoutCarried(file) {
  let bytes = readFileSync(file);
  const steps = execFileSync(BINARY, ["replay", file, "--steps", "-o", "json"], { env, encoding: "utf8", maxBuffer: 1 << 26 });
  for (const line of steps.trim().split("\n")) {
    const step = JSON.parse(line);
    if (step.step !== "carried") continue;
    const { had_tick: had, sent_tick: sent, paced_ticks: paced, limited_ticks: limited, waited_ticks: waited } = step;
    const wait = ["connection", "shard", "session_pace"].indexOf(step.waited_for ?? "connection");
    const flags = wait | (sent === null ? 0 : 4);
    const told = Buffer.from(carriedTo(step.player, flags, sent ?? had + paced + limited + waited + 1, had, paced, limited, waited));
    const at = bytes.indexOf(told);
    assert.notEqual(at, -1, line);
    bytes = Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + told.length)]);
  }
  return bytes;
}

test("the page says what a player had, and shows it", async () => {
  const bytes = withoutCarried(replay);
  // Before the record of the last tick: its kind, and a hash.
  const at = bytes.length - 9;
  assert.equal(bytes[at], 0);
  const told = Buffer.from([...carried(4, 181, 100, 0, 0, 80), ...carried(12, 182, 181, 0, 0, 0, 0, 0, 0, 12), ...carried(0, 221, 200, 0, 15, 5)]);
  const file = join(folder, "told");
  writeFileSync(file, Buffer.concat([bytes.subarray(0, at), told, bytes.subarray(at)]));
  const { page, faults, close } = await openPage(browser, await open(file), DESKTOP);
  await untilTick(page, 1);
  assert.equal(await page.isVisible("#had"), false, "nobody is chosen");
  const go = async (tick) => {
    await page.fill("#tick", String(tick));
    await untilTick(page, tick);
  };
  const placeAt = async (tick) => {
    await go(tick);
    return page.textContent("#fields dd");
  };
  const id = await select(page, "Player");
  const [then, now] = [await placeAt(100), await placeAt(150)];
  assert.notEqual(then, now, "it has walked");
  await page.selectOption("#view", "1");
  await page.waitForFunction((then) => document.querySelector("#fields dd").textContent === then, then);
  const had = () => page.textContent("#had");
  assert.equal(await had(), "Player 1 had tick 100: its connection had not taken the last snapshot (ticks 101 to 180 skipped).");
  await page.fill("#object", "");
  await page.fill("#object", String(id));
  await page.screenshot({ path: join(SHOTS, "replay-connection.png") });
  for (const [tick, words] of [
    [100, "Player 1 had tick 100, the newest."],
    [181, "Player 1 had tick 181, the newest."],
    [182, "Player 1 had tick 182. Its far cells wait since tick 170 for its bandwidth limit."],
    [215, "Player 1 had tick 200: its bandwidth limit (room.player_bandwidth_limit) was used up (ticks 201 to 215 skipped)."],
    [216, "Player 1 had tick 200: its connection had not taken the last snapshot (ticks 216 to 220 skipped)."],
  ]) {
    await go(tick);
    assert.equal(await had(), words);
  }
  await page.locator("#marks-list button", { hasText: "player 1 is not sent ticks" }).click();
  await untilTick(page, 101);
  // At once as another player has it, and as the server has it.
  await page.selectOption("#view", "2");
  assert.match(await had(), /^Player 2 had tick 101, the newest/);
  await page.selectOption("#view", "");
  assert.equal(await page.isVisible("#had"), false);
  assert.deepEqual(faults, []);
  await close();

  // A recording of an earlier version says nothing of connections.
  const older = Buffer.from(bytes);
  older[8] = 3;
  writeFileSync(file, older);
  const { page: olderPage, close: closeOlder } = await openPage(browser, await open(file), DESKTOP);
  await untilTick(olderPage, 1);
  await olderPage.fill("#tick", "150");
  await untilTick(olderPage, 150);
  await olderPage.selectOption("#view", "1");
  assert.equal(await olderPage.isVisible("#had"), false);
  assert.match(await olderPage.textContent("#connection"), /This recording is of an earlier version/);
  await closeOlder();
});

test("on a phone, in the dark", async () => {
  const { page, faults, close } = await openPage(browser, await open(replay), { ...PHONE, colorScheme: "dark" });
  await untilTick(page, 1);
  await page.fill("#tick", "200");
  await untilTick(page, 200);
  await assertFits(page);
  const mapHeight = () => page.evaluate(() => document.querySelector("#map").clientHeight);
  const before = await mapHeight();
  await page.setViewportSize({ ...PHONE.viewport, height: 1_600 });
  await page.waitForFunction((before) => document.querySelector("#map").clientHeight > before, before);
  await page.setViewportSize(PHONE.viewport);
  await page.waitForFunction((before) => document.querySelector("#map").clientHeight === before, before);
  await page.screenshot({ path: join(SHOTS, "replay-phone-dark.png"), fullPage: true });
  assert.deepEqual(faults, []);
  await close();
});

test("a recording that is cut is shown up to there", async () => {
  const cut = join(folder, "cut");
  const bytes = readFileSync(replay);
  writeFileSync(cut, bytes);
  truncateSync(cut, bytes.length - 3);
  const { page, close } = await openPage(browser, await open(cut));
  await untilTick(page, 1);
  assert.match(await page.textContent("#end"), /The recording is cut off here/);
  await close();
});

test("other sites read nothing, and nonsense is refused", async () => {
  const address = await open(replay);
  const { port } = new URL(address);
  const status = async (path, headers = {}) => {
    const { get } = await import("node:http");
    const request = get({ host: "127.0.0.1", port, path, headers });
    const [response] = await once(request, "response");
    response.resume();
    return response.statusCode;
  };
  for (const path of ["/", "/index", "/ticks?from=1&count=1"]) {
    assert.equal(await status(path, { Host: "evil.example.com" }), 403, path);
  }
  for (const query of ["", "?from=-1&count=1", "?from=x&count=1", "?from=99999999999&count=1"]) assert.equal(await status(`/ticks${query}`), 400, query);
  assert.equal(await status("/ticks?from=4000000000&count=1"), 422);
  const refused = start(BINARY, ["replay", join(folder, "config.json"), "--page"]);
  const [code] = await refused.ended;
  assert.equal(code, 1);
  assert.equal(dirname(replay), recordings);
});
