/**
 * docs/from-*.md as they are written: the apps before the move, where a registry has their server, and after it, in a real browser.
 *
 * Three commands are replaced. What `npm install` names comes from this folder's node_modules, the repository from this checkout, and
 * in place of `cargo run` there is GUIDE_GAME, the same game compiled before.
 */

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { followUntilServers, Reader, stepsOf } from "./guide.mjs";
import { withTerminals } from "./terminals.mjs";

const HERE = new URL(".", import.meta.url).pathname;
const CHECKOUT = new URL("../..", import.meta.url).pathname;
const [PAGE, DUNLIN, COLYSEUS] = [3000, 8000, 2567].map((port) => `http://localhost:${port}/`);

const INSTEAD = [
  [/^npm install (.+)$/m, (_, packages) => `ln -sfn ${folderWith(packages.split(" "))} node_modules`],
  [/^git clone --depth 1 https:\/\/github\.com\/dunlin-project\/dunlin (\S+)$/m, (_, folder) => `ln -s ${CHECKOUT} ${folder}`],
  [/^cargo run -- /m, () => `${process.env.GUIDE_GAME} `],
];

test("an app on Socket.IO does the same on Dunlin, and misses nothing", async () => {
  const reader = readerIn("socketio");
  await follow(reader, "from-socketio", "The app before", [PAGE], ({ open }) => chat(open));
  await follow(reader, "from-socketio", "Move it", [PAGE, DUNLIN], async ({ open, follow }) => {
    const ada = await chat(open);
    const bob = await open(`${PAGE}?session=session-of-bob`);
    await says(bob, "#state", "connected");
    const [answer] = follow().map((answer) => JSON.parse(answer));
    assert.deepEqual(answer.replies.map((reply) => Object.keys(reply)), [["disconnect"], ["publish"]]);
    await lists(bob, "#log", ["ada: Are you away?"]);
    await says(bob, "#state", "connected");
    // He was away: his client has left and joined once more.
    await says(ada, "#log", /^(?=.*ada: Are you away\?)(.*bob is here.*bob has left){2}.*bob is here/);
  });
});

/** Two users of the chat, of whom the second one leaves, and a stranger. Returns the first one's page. */
async function chat(open) {
  const ada = await open(`${PAGE}?session=session-of-ada`);
  await says(ada, "#state", "connected");
  const bob = await open(`${PAGE}?session=session-of-bob`);
  await says(bob, "#state", "connected");
  await lists(ada, "#log", ["bob is here"]);
  await ada.fill("#text", "Hello");
  await ada.press("#text", "Enter");
  await says(ada, "#state", "said 5 letters");
  await lists(bob, "#log", ["ada: Hello"]);
  await bob.press("#text", "Enter");
  await says(bob, "#state", "say something");
  const stranger = await open(`${PAGE}?session=of-nobody`);
  await says(stranger, "#state", /^refused: who are you\?/);
  for (const page of [ada, bob, stranger]) assert.deepEqual(page.faults, []);
  await bob.close();
  await lists(ada, "#log", ["bob is here", "ada: Hello", "bob has left"]);
  return ada;
}

test("an app on Pusher Channels keeps its pages on Dunlin", () =>
  follow(readerIn("pusher"), "from-pusher", "Move it", [PAGE, DUNLIN], async ({ open, follow }) => {
    const [ada, bob] = [await open(`${PAGE}?user=ada`), await open(`${PAGE}?user=bob`)];
    for (const page of [ada, bob]) await says(page, "#support", "in support: ada, bob");
    await bob.fill("#text", "Hello");
    await says(ada, "#typing", "bob is typing");
    follow();
    for (const page of [ada, bob]) await says(page, "#price", "tea costs 12");
    await says(ada, "#order", "order 42 is on its way");
    assert.deepEqual([await bob.textContent("#order"), await bob.textContent("#typing")], ["no order yet", ""]);

    const outcome = await bob.evaluate(() => new Promise((done) => {
      const orders = pusher.subscribe("private-orders-ada");
      orders.bind("pusher:subscription_succeeded", () => done("succeeded"));
      orders.bind("pusher:subscription_error", ({ reason }) => done(reason));
    }));
    assert.equal(outcome, "unauthorized");
    // A client cannot send what only the server may send, whatever its page does.
    await bob.evaluate(() => support.trigger("pusher:member_added", {}));
    const second = await open(`${PAGE}?user=bob`);
    await says(second, "#support", "in support: ada, bob");
    await second.close();
    await bob.close();
    await says(ada, "#support", "in support: ada");
    for (const page of [ada, bob]) assert.deepEqual(page.faults, []);
  }));

test("a game on Colyseus is played on Dunlin", async () => {
  const reader = readerIn("colyseus");
  await follow(reader, "from-colyseus", "The game before", [PAGE, COLYSEUS], ({ open }) => stars(open));
  await follow(reader, "from-colyseus", "Move it", [PAGE, DUNLIN], ({ open }) => stars(open));
});

/** Two players see each other, the star, and where one of them runs. */
async function stars(open) {
  const [ada, bob] = [await open(`${PAGE}?name=Ada`), await open(`${PAGE}?name=Bob`)];
  for (const page of [ada, bob]) {
    await says(page, "#runners", /Ada: 0 points, at \d+, \d+/);
    await says(page, "#runners", /Bob: 0 points, at \d+, \d+/);
    await says(page, "#star", /^The star is at \d+, \d+$/);
  }
  const [from, y] = await placeOf(bob, "Ada");
  await ada.bringToFront();
  await ada.keyboard.down("ArrowRight");
  await bob.waitForFunction((from) => Number(/Ada: \d+ points, at (\d+)/.exec(document.querySelector("#runners").textContent)?.[1]) > from + 100, from);
  await ada.keyboard.up("ArrowRight");
  assert.equal((await placeOf(bob, "Ada"))[1], y);
  for (const page of [ada, bob]) assert.deepEqual(page.faults, []);
}

async function placeOf(page, name) {
  const text = await page.textContent("#runners");
  return new RegExp(`${name}: \\d+ points, at (\\d+), (\\d+)`).exec(text).slice(1).map(Number);
}

test("a game of a hosted backend finds its accounts, rooms, points and chat again", () =>
  follow(readerIn("backend"), "from-game-backend", "Move it", [PAGE, DUNLIN], async ({ open, follow }) => {
    const [ada, bob] = [await open(`${PAGE}?name=Ada`), await open(`${PAGE}?name=Bob`)];
    for (const page of [ada, bob]) {
      await says(page, "#state", /^connected as /);
      await says(page, "#online", "online: Ada, Bob");
    }
    await ada.fill("#text", "Hello");
    await ada.press("#text", "Enter");
    for (const page of [ada, bob]) await lists(page, "#chat", ["Ada: Hello"]);
    await bob.reload();
    await lists(bob, "#chat", ["Ada: Hello"]);

    await ada.click("#play");
    await says(ada, "#room", "looking for another player");
    await bob.click("#play");
    const rooms = [];
    for (const page of [ada, bob]) {
      await says(page, "#room", /^tag:\S+, round \d+: /);
      await says(page, "#me", /^you are at \d+, \d+$/);
      rooms.push((await page.textContent("#room")).split(",")[0]);
    }
    assert.equal(rooms[0], rooms[1]);
    const [answer] = follow().map((answer) => JSON.parse(answer));
    assert.equal(answer.result.rooms[rooms[0]].num_players, 2);

    for (const page of [ada, bob]) {
      await says(page, "#leaders", /Ada: \d+ points in [1-9]\d* rounds/);
      await says(page, "#leaders", /Bob: \d+ points in [1-9]\d* rounds/);
      await says(page, "#result", "the points are saved");
    }
    for (const page of [ada, bob]) assert.deepEqual(page.faults, []);
  }));

function readerIn(name) {
  const folder = join(process.env.GUIDE_MOVING, name);
  mkdirSync(folder);
  return new Reader(folder);
}

/** Follows a section of a guide; its servers run while `body` does. */
async function follow(reader, guide, heading, addresses, body) {
  const steps = stepsOf(readFileSync(`${CHECKOUT}docs/${guide}.md`, "utf8"), heading).map((step) => ({ ...step, command: replaced(step.command) }));
  await withTerminals(reader, followUntilServers(reader, steps), { addresses }, body);
}

function replaced(command) {
  return INSTEAD.reduce((text, [pattern, by]) => text?.replace(pattern, by), command);
}

/** This folder's packages, if they have the versions that a guide names. */
function folderWith(packages) {
  for (const named of packages) {
    const [name, version] = named.split(/(?<=.)@/);
    const installed = JSON.parse(readFileSync(`${HERE}node_modules/${name}/package.json`, "utf8")).version;
    assert.ok(installed.startsWith(`${version}.`), `a guide installs ${named}, and the test has ${installed}`);
  }
  return `${HERE}node_modules`;
}

/** Waits until an element has this text, or one that matches. */
function says(page, selector, text) {
  const source = text instanceof RegExp ? text.source : null;
  return until(page, selector, ([selector, text, source]) => {
    const said = document.querySelector(selector).textContent;
    return source === null ? said === text : new RegExp(source).test(said);
  }, [selector, source === null ? text : null, source]);
}

/** Waits until a list has these lines, and no others. */
function lists(page, selector, lines) {
  return until(page, selector, ([selector, lines]) => {
    const shown = [...document.querySelectorAll(`${selector} li`)].map(({ textContent }) => textContent);
    return JSON.stringify(shown) === JSON.stringify(lines);
  }, [selector, lines]);
}

async function until(page, selector, condition, argument) {
  await page.waitForFunction(condition, argument).catch(async (cause) => {
    throw new Error(`${selector} is ${JSON.stringify(await page.innerText(selector))}, not ${JSON.stringify(argument)}`, { cause });
  });
}
