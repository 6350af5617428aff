/**
 * Two pages on different nodes of a cluster chat and watch prices and presence, while processes of the cluster are killed. With
 * DUNLIN_EACH=1 each process is killed in turn.
 */

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, test } from "node:test";
import { DEADLINE_MS, DESKTOP, launch, openPage } from "./chromium.mjs";
import { ArenaPage } from "./arena_page.mjs";
import { ClusterDemo } from "./cluster_demo.mjs";
import { TagPage } from "./tag_page.mjs";
import { TickerPage } from "./ticker_page.mjs";

const BINARY = process.env.DUNLIN_BINARY;
const SHOTS = new URL("./screenshots/", import.meta.url).pathname;
/** The browser reports sockets and requests that a killed node cannot answer. */
const OF_A_KILL = /WebSocket connection|Failed to load resource/;
const NODES = 3;

let browser;
let demo;
let pages = [];

before(async () => {
  assert.ok(BINARY, "DUNLIN_BINARY names the server to check");
  await mkdir(SHOTS, { recursive: true });
  demo = await ClusterDemo.start(BINARY);
  browser = await launch();
  for (const encoding of ["json", "protobuf"]) {
    pages.push(new ClusterPage(await openPage(browser, `${demo.page}?encoding=${encoding}`, DESKTOP)));
  }
  for (const page of pages) await page.ready();
});

after(async () => {
  await browser?.close();
  await demo?.stop();
});

/** The ticker page, with what it shows of the cluster. */
class ClusterPage extends TickerPage {
  async ready() {
    await super.ready();
    await this.untilNode();
    await this.untilLive(NODES);
  }

  /** The node that the page is connected to, once it is one. */
  async untilNode() {
    await this.until(() => document.querySelector("#node").dataset.node !== "");
    return this.page.getAttribute("#node", "data-node");
  }

  untilLive(nodes) {
    return this.until((count) => Number(document.querySelector("#nodes-count").dataset.count) === count, nodes);
  }

  untilNotOn(node) {
    return this.until((gone) => !["", gone].includes(document.querySelector("#node").dataset.node), node);
  }

  /** Sends a message, and sends it again if its outcome is unknown. */
  async send(text) {
    await this.page.fill("#chat-text", text);
    const deadline = Date.now() + 2 * DEADLINE_MS;
    do {
      assert.ok(Date.now() < deadline, `not sent: ${text}`);
      await this.page.click("#chat-send");
      await this.until(() => !document.querySelector("#chat-send").disabled);
    } while ((await this.page.inputValue("#chat-text")) !== "");
  }

  untilChatEnds(text) {
    return this.until((wanted) => document.querySelector("#chat li:last-child span")?.textContent === wanted, text);
  }

  chat() {
    return this.page.locator("#chat li span").allTextContents();
  }

  /** Waits until each price has changed this number of times. */
  async untilPricesMove(times = 2) {
    const before = await this.offsets();
    for (const [symbol, offset] of before) await this.untilOffset(symbol, offset + times);
  }

  async offsets() {
    const cards = await this.page.evaluate(() =>
      [...document.querySelectorAll(".card")].map(({ dataset }) => [dataset.symbol, Number(dataset.offset)]),
    );
    return new Map(cards);
  }
}

test("pages on different nodes chat, and watch prices and presence", async () => {
  const [one, other] = pages;
  assert.notEqual(await one.untilNode(), await other.untilNode(), "the balancer takes the nodes in turn");
  await one.send("from the first node");
  await other.untilChatEnds("from the first node");
  await other.send("and back");
  await one.untilChatEnds("and back");
  for (const page of pages) {
    await page.untilHere(2);
    await page.untilPricesMove();
  }
  await one.page.screenshot({ path: `${SHOTS}cluster.png`, fullPage: true });
});

test("visitors of the lobby on different nodes play tag in one room", async () => {
  assert.ok(await pages[0].page.locator('a[href*="lobby"]').first().isVisible(), "the ticker has a link to the lobby");
  const visitors = [];
  try {
    // The balancer takes the nodes in turn.
    for (let visitor = 0; visitor < NODES; visitor++) {
      visitors.push(new TagPage(await openPage(browser, `${demo.page}lobby/`, DESKTOP)));
    }
    const [one, two, lobby] = visitors;
    await lobby.untilListed("tag:open", 0);
    const ada = await one.play();
    const ben = await two.play();
    assert.equal(ben.room, ada.room, "matchmaking fills the room that is open");
    assert.notEqual(ben.avatar, ada.avatar);
    await lobby.untilListed(ada.room, 2);
    await lobby.page.screenshot({ path: `${SHOTS}cluster-lobby.png`, fullPage: true });
    for (const { faults } of visitors) assert.deepEqual(faults, []);
  } finally {
    await Promise.all(visitors.map((visitor) => visitor.close()));
  }
});

test("the arena continues on another node when the node that has it is killed", async () => {
  const players = [];
  try {
    for (const encoding of ["json", "protobuf", "json"]) {
      players.push(new ArenaPage(await openPage(browser, `${demo.page}arena/?encoding=${encoding}`, DESKTOP)));
    }
    const starts = [];
    for (const player of players) starts.push(await player.untilJoined());
    const [first] = players;
    const [key, sign] = first.awayFromEdge(starts[0]);
    await first.page.focus("#field");
    await first.page.keyboard.down(key);
    await first.until(([x, sign]) => (document.querySelector("#stage").dataset.confirmedX - x) * sign > 150, [starts[0].x, sign]);
    await first.page.keyboard.up(key);
    await first.page.screenshot({ path: `${SHOTS}cluster-arena.png` });
    const { name, pid } = await demo.untilArenaOn(() => true);
    const before = await Promise.all(players.map((player) => player.stage()));
    demo.kill(name);
    const next = await demo.untilArenaOn((other) => other !== pid);
    assert.notEqual(next.pid, pid);
    // The room runs elsewhere, so what is newer than all that the pages show by now is from there.
    // A page that joins again shows none.
    const shown = await Promise.all(players.map((player) => player.stage()));
    const seen = Math.max(...shown.map(({ tick }) => tick || 0), ...before.map(({ tick }) => tick));
    for (const [index, player] of players.entries()) {
      await player.until((tick) => {
        const { state, ...now } = document.querySelector("#stage").dataset;
        return state === "joined" && Number(now.tick) > tick;
      }, seen);
      const back = await player.stage();
      const seats = `page ${index}: ${JSON.stringify({ ...back, others: [] })}; seats: ${await demo.seats()}`;
      // Pages of the killed node join again; the others stay in the room.
      assert.ok(back.joins === before[index].joins || back.resumed, `it has its seat still, or again: ${seats}`);
      assert.equal(back.avatar, starts[index].avatar, `the same object: ${seats}`);
    }
    const stayed = (await Promise.all(players.map((player) => player.stage()))).filter(({ joins }, index) => joins === before[index].joins);
    assert.ok(stayed.length > 0, "a page of another node stays in the room");
    const settled = await first.untilSettled();
    const places = `from ${starts[0].x} by key ${key}, before the kill at ${before[0].confirmedX}, now at ${settled.confirmedX}`;
    assert.ok((settled.confirmedX - starts[0].x) * sign > 150, `where it had walked to: ${places}; seats: ${await demo.seats()}`);
    await first.page.screenshot({ path: `${SHOTS}cluster-arena-after.png` });
    await demo.untilReplaced(name, pid);
    for (const page of pages) await page.untilLive(NODES);
    for (const { faults } of players) assert.deepEqual(faults.filter((fault) => !OF_A_KILL.test(fault)), []);
  } finally {
    for (const player of players) await player.close();
  }
});

test("a page whose node is killed goes to another one and misses nothing", async () => {
  const [one, other] = pages;
  const node = await one.untilNode();
  const pid = demo.kill(node);
  await sendNumbered(other, "while away");
  await one.untilNotOn(node);
  await assertWhole();
  await one.page.screenshot({ path: `${SHOTS}cluster-without-node.png`, fullPage: true });
  await demo.untilReplaced(node, pid);
  for (const page of pages) await page.untilLive(NODES);
});

test("pages go on while a NATS server is killed", async () => {
  const [server] = demo.names("nats");
  const pid = demo.kill(server);
  await sendNumbered(pages[1], "without a server");
  await assertWhole();
  await demo.untilReplaced(server, pid);
});

test("pages go on while each process is killed in turn", { skip: process.env.DUNLIN_EACH !== "1" }, async () => {
  for (const name of [...demo.names("node"), ...demo.names("nats")]) {
    const pid = demo.kill(name);
    await sendNumbered(pages[0], `without ${name}`);
    await sendNumbered(pages[1], `still without ${name}`);
    await assertWhole();
    await demo.untilReplaced(name, pid);
    for (const page of pages) {
      await page.untilLive(NODES);
      await page.untilHere(2);
    }
    await pages[0].page.screenshot({ path: `${SHOTS}cluster-after-${name}.png`, fullPage: true });
  }
});

async function sendNumbered(page, text) {
  for (let number = 1; number <= 3; number += 1) await page.send(`${text}, ${number}`);
}

/** Checks that all pages show the same messages in the same order, and that prices continue without gaps. */
async function assertWhole() {
  const written = await pages[0].chat().then((first) => pages[1].chat().then((second) => (second.length > first.length ? second : first)));
  for (const page of pages) {
    await page.untilChatEnds(written.at(-1));
    assert.deepEqual(await page.chat(), written);
    await page.until(() => document.querySelector("#state").dataset.state === "connected");
    await page.untilPricesMove();
    assert.equal(await page.stat("missing"), 0);
    assert.equal(await page.stat("duplicates"), 0);
    assert.deepEqual(page.faults.filter((fault) => !OF_A_KILL.test(fault)), []);
  }
}
