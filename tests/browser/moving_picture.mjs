/**
 * Records README's moving picture: the ticker page on a cluster whose node under it is killed.
 *
 *   node moving_picture.mjs BINARY FILE
 *
 * starts the processes of `make cluster`, and records the page in headless Chromium. Below the page, the picture shows the command that
 * kills the node, at the time when it is run. Takes six minutes: until nodes have followed a channel for five, each of them asks the others
 * about the idempotency keys of the prices, and waits for the answer of a killed node (docs/clustering.md).
 */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { decodePng, encodeApng } from "./apng.mjs";
import { launch, openPage } from "./chromium.mjs";
import { ClusterDemo } from "./cluster_demo.mjs";
import { TickerPage } from "./ticker_page.mjs";

/** At this width the page has two columns, and at this height it ends with the first two rows of panels. The picture is smaller. */
const PAGE = { viewport: { width: 1100, height: 706 }, colorScheme: "light" };
const PICTURE_WIDTH = 880;
const NODES = 3;
const FOLLOWED_MS = 305_000;
/** The picture ends while the killed node is down. */
const RESTART_DELAY_S = 10;
const FRAMES_PER_SECOND = 7;
const LAST_FRAME_MS = 2_500;
const PICTURE_BYTES_MAX = 1_500_000;
const PICTURE_MS_MAX = 12_000;
const TYPING_MS = 45;
/** What a reader needs to see the page before the kill, and to read what it says afterwards. */
const BEFORE_MS = 1_500;
const AFTER_MS = 3_500;
/** If the publisher of prices was on the killed node, hardly any are published meanwhile, and the picture shows little. */
const RECOVERED_MIN = 30;
const ATTEMPTS = 5;

const [, , binary, file] = process.argv;
assert.ok(file, "usage: node moving_picture.mjs BINARY FILE");
const demo = await ClusterDemo.start(binary, RESTART_DELAY_S);
const browser = await launch();
try {
  const page = new TickerPage(await openPage(browser, demo.page, PAGE));
  await page.ready();
  await untilLive(page);
  await wait(FOLLOWED_MS);
  await page.page.evaluate(addTerminal);
  const frames = await goodRecording(page);
  const { width, height } = frames[0];
  const picture = encodeApng(width, height, frames);
  writeFileSync(file, picture);
  const ms = frames.reduce((sum, frame) => sum + frame.ms, 0);
  console.log(`${file}: ${width} × ${height}, ${frames.length} frames, ${ms / 1000} s, ${picture.length} bytes`);
  assert.ok(picture.length <= PICTURE_BYTES_MAX, `more than ${PICTURE_BYTES_MAX} bytes`);
  assert.ok(ms <= PICTURE_MS_MAX, `longer than ${PICTURE_MS_MAX} ms`);
} finally {
  await browser.close();
  await demo.stop();
}

async function goodRecording(page) {
  for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
    let recovered = 0;
    const frames = await recorded(page.page, async () => (recovered = await killAndRecover(page)));
    if (recovered >= RECOVERED_MIN) return frames;
    console.log(`${recovered} publications recovered: the next node is killed`);
    await untilLive(page);
    await page.page.reload();
    await page.ready();
    await page.page.evaluate(addTerminal);
  }
  throw new Error(`fewer than ${RECOVERED_MIN} publications were recovered in each of ${ATTEMPTS} recordings`);
}

function untilLive(page) {
  return page.until((nodes) => Number(document.querySelector("#nodes-count").dataset.count) === nodes, NODES);
}

/** Kills the node that the page is on. Returns the number of recovered publications. */
async function killAndRecover(page) {
  const node = await page.page.getAttribute("#node", "data-node");
  const { pid } = demo.state().processes.find(({ name }) => name === node);
  await wait(BEFORE_MS);
  for (const letter of `kill -9 ${pid}`) {
    await page.page.evaluate(type, letter);
    await wait(TYPING_MS);
  }
  demo.kill(node);
  await page.page.evaluate(type, `    # ${node}, which the page is on\n$ `);
  await page.untilPhase("recovered", "incomplete");
  const report = await page.report();
  assert.equal(report.phase, "recovered", report.text);
  assert.equal(report.missing, 0);
  await wait(AFTER_MS);
  return report.recovered;
}

/** Runs in the page. */
function addTerminal() {
  const terminal = document.createElement("pre");
  terminal.id = "terminal";
  terminal.textContent = "$ ";
  Object.assign(terminal.style, {
    position: "fixed", inset: "auto 0 0 0", height: "74px", padding: "12px 28px", zIndex: "9", overflow: "hidden",
    background: "#0b1418", color: "#e6eff1", font: "16px/24px 'DejaVu Sans Mono', monospace",
  });
  document.body.append(terminal);
  Object.assign(document.documentElement.style, { overflow: "hidden", scrollbarGutter: "auto" });
}

/** Runs in the page. */
function type(text) {
  document.querySelector("#terminal").textContent += text;
}

/** What the page shows while `play` runs, as frames of equal duration. */
async function recorded(page, play) {
  const session = await page.context().newCDPSession(page);
  const shots = [];
  session.on("Page.screencastFrame", ({ data, metadata, sessionId }) => {
    shots.push({ atMs: metadata.timestamp * 1000, data });
    session.send("Page.screencastFrameAck", { sessionId }).catch(() => {});
  });
  await session.send("Page.startScreencast", { format: "png", maxWidth: PICTURE_WIDTH, maxHeight: PAGE.viewport.height });
  await play();
  await session.send("Page.stopScreencast");
  const frames = [];
  const [startMs, endMs] = [shots[0].atMs, shots.at(-1).atMs];
  for (let atMs = startMs; atMs <= endMs; atMs += 1000 / FRAMES_PER_SECOND) {
    const shot = shots.findLast((each) => each.atMs <= atMs);
    const last = frames.at(-1);
    if (last?.shot === shot) last.ms += Math.round(1000 / FRAMES_PER_SECOND);
    else frames.push({ shot, ms: Math.round(1000 / FRAMES_PER_SECOND) });
  }
  frames.at(-1).ms = LAST_FRAME_MS;
  return frames.map(({ shot, ms }) => ({ ...decodePng(Buffer.from(shot.data, "base64")), ms }));
}
