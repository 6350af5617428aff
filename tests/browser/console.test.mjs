/**
 * The console: sign-in, each view, an action, the keyboard alone, phone width, axe, light and dark, a session with hostile names.
 * The server's unit tests check who is answered.
 */

import assert from "node:assert/strict";
import { createHmac, randomUUID } from "node:crypto";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { assertFits, DEADLINE_MS, DESKTOP, launch, openPage, PHONE } from "./chromium.mjs";

const BASE = process.env.DUNLIN_PAGE_URL;
const SHOTS = new URL("./screenshots/", import.meta.url).pathname;
const CONSOLE = `${BASE}admin/`;
/** In demo/config.json. */
const [PASSWORD, READ_ONLY] = ["demo", "look"];
const SMALL_PHONE = { ...PHONE, viewport: { width: 360, height: 740 } };

/** Would run if any of it became markup. */
const MARKUP = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`;
const HOSTILE_USER = `${MARKUP}"'&amp;‮${"long".repeat(20)}`;
const HOSTILE_CHANNEL = `chat:${MARKUP}`;
const HOSTILE_ROOM = "tag:<b onclick=alert(1)>room</b>";

let axe;
let browser;
let hostile;

before(async () => {
  assert.ok(BASE, "DUNLIN_PAGE_URL names the server to check");
  axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  await mkdir(SHOTS, { recursive: true });
  browser = await launch();
  hostile = await Client.open(HOSTILE_USER);
  await hostile.ask({ subscribe: { channel: HOSTILE_CHANNEL } });
  await hostile.ask({ publish: { channel: HOSTILE_CHANNEL, data: { text: MARKUP } } });
  await hostile.ask({ subscribe: { channel: HOSTILE_ROOM } });
});

after(async () => {
  await browser?.close();
});

/** A session, in a page of its own. */
class Client {
  static async open(user) {
    const client = new Client();
    client.page = await browser.newPage();
    client.page.setDefaultTimeout(DEADLINE_MS);
    // Any page of the server's origin, which may connect. This one has no script.
    await client.page.goto(`${CONSOLE}console.css`);
    await client.page.evaluate(openSocket, process.env.DUNLIN_WS_URL);
    client.id = (await client.ask({ connect: { token: tokenOf(user) } })).connect.client;
    return client;
  }

  async ask(command) {
    const reply = await this.page.evaluate((command) => window.ask(command), command);
    assert.equal(reply.error, undefined, JSON.stringify(command));
    return reply;
  }

  /** The code with which the server closes it; `null` while it is open. */
  closeCode() {
    return this.page.evaluate(() => window.closeCode);
  }

  async untilClosed() {
    await this.page.waitForFunction(() => window.closeCode !== null);
    return this.closeCode();
  }
}

/** Runs in the page. */
function openSocket(address) {
  const replies = new Map();
  const socket = new WebSocket(address);
  const opened = new Promise((resolve) => socket.addEventListener("open", resolve));
  window.closeCode = null;
  socket.addEventListener("close", ({ code }) => (window.closeCode = code));
  socket.addEventListener("message", ({ data }) => {
    for (const line of data.split("\n").filter((line) => line !== "")) {
      const reply = JSON.parse(line);
      if (Object.keys(reply).length === 0) socket.send("{}");
      replies.get(reply.id)?.(reply);
    }
  });
  window.ask = async (command) => {
    await opened;
    const id = replies.size + 1;
    const replied = new Promise((resolve) => replies.set(id, resolve));
    socket.send(JSON.stringify({ id, ...command }));
    return replied;
  };
}

function tokenOf(user) {
  const encoded = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const text = `${encoded({ alg: "HS256", typ: "JWT" })}.${encoded({ sub: user, jti: randomUUID() })}`;
  return `${text}.${createHmac("sha256", process.env.DUNLIN_HMAC_SECRET).update(text).digest("base64url")}`;
}

/** Each view: its address, and what is there when it has its data. */
const VIEWS = {
  overview: { hash: "#/overview", ready: ".tile:first-child strong:not(:text('–'))" },
  sessions: { hash: "#/sessions", ready: "td >> text=window.hacked" },
  session: { hash: () => `#/sessions/client/${hostile.id}`, ready: ".verdict >> text=up to date" },
  channels: { hash: "#/channels", ready: "td >> text=chat:<img" },
  channel: { hash: `#/channels/${encodeURIComponent(HOSTILE_CHANNEL)}`, ready: "td code >> text=window.hacked" },
  rooms: { hash: "#/rooms", ready: `td >> text=${HOSTILE_ROOM}` },
  room: { hash: `#/rooms/${encodeURIComponent(HOSTILE_ROOM)}`, ready: "text=per second" },
  recordings: { hash: "#/recordings", ready: "text=No namespace has room.record_directory" },
  cluster: { hash: "#/cluster", ready: "text=no cluster" },
  storage: { hash: "#/storage", ready: "text=Group commits" },
  configuration: { hash: "#/configuration", ready: "td >> text=admin.password" },
  log: { hash: "#/log", ready: ".lines li >> text=signed in" },
};

/** `expected` is a part of the errors of the page that belong to the test. */
async function withConsole(device, password, check, expected = null) {
  const opened = await openPage(browser, CONSOLE, device);
  try {
    await opened.page.fill("#password", password);
    await opened.page.click("text=Sign in");
    await opened.page.waitForSelector("nav a[aria-current]");
    await check(opened.page);
    assert.deepEqual(opened.faults.filter((fault) => expected === null || !fault.includes(expected)), []);
  } finally {
    await opened.close();
  }
}

async function show(page, { hash, ready }) {
  await page.evaluate((hash) => (location.hash = hash), typeof hash === "function" ? hash() : hash);
  await page.waitForSelector(ready);
}

async function assertAccessible(page) {
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => (await window.axe.run(document)).violations);
  assert.deepEqual(violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target}: ${failureSummary}`)), []);
}

describe("sign-in", () => {
  test("a wrong password is refused, the right one opens the overview, and its cookie is out of reach", async () => {
    const opened = await openPage(browser, CONSOLE);
    const { page, faults } = opened;
    try {
      await page.waitForFunction(() => document.activeElement?.id === "password");
      await assertAccessible(page);
      await page.screenshot({ path: `${SHOTS}console-sign-in.png` });
      await page.keyboard.type("wrong");
      await page.keyboard.press("Enter");
      await page.waitForSelector("[role=alert] >> text=Wrong password");
      await page.keyboard.type(PASSWORD);
      await page.keyboard.press("Enter");
      await page.waitForSelector("h1 >> text=Overview");
      assert.equal(await page.evaluate(() => document.cookie), "");
      const [cookie] = await page.context().cookies();
      assert.deepEqual([cookie.name, cookie.httpOnly, cookie.sameSite, cookie.path], ["dunlin_console", true, "Strict", "/admin/"]);
      await page.reload();
      await page.waitForSelector("h1 >> text=Overview");
      await page.click("text=Sign out");
      await page.waitForSelector("#password");
      assert.deepEqual(faults.filter((fault) => !fault.includes("403")), [], "only the wrong password is an error");
    } finally {
      await opened.close();
    }
  });

  test("a sign-in that ends elsewhere ends here", () =>
    withConsole(DESKTOP, PASSWORD, async (page) => {
      const answered = page.waitForResponse((response) => response.url().endsWith("/data/status") && response.status() === 401);
      await page.context().clearCookies();
      await answered;
      await page.waitForSelector("[role=alert] >> text=The sign-in has ended");
      assert.ok(await page.locator("#password").isVisible());
    }, "401"));

  test("who may only look is offered no action", () =>
    withConsole(DESKTOP, READ_ONLY, async (page) => {
      for (const name of ["session", "channel", "room"]) {
        await show(page, VIEWS[name]);
        assert.deepEqual(await page.locator("main .danger, main summary").allTextContents(), [], name);
      }
      assert.equal(await page.textContent(".role"), "read only");
    }));
});


/** Axe takes a second on busy cores. Each view is looked at in each width and in each scheme, but not in all four combinations. */
const SOME = ["overview", "session"];
const DEVICES = {
  "desktop-light": { ...DESKTOP, colorScheme: "light" },
  "desktop-dark": { ...DESKTOP, colorScheme: "dark", views: SOME },
  "phone-light": { ...SMALL_PHONE, colorScheme: "light", views: SOME },
  "phone-dark": { ...SMALL_PHONE, colorScheme: "dark" },
};

describe("each view has its data, no markup of others, nothing that axe finds, and fits", () => {
  for (const [title, { views = Object.keys(VIEWS), ...device }] of Object.entries(DEVICES)) {
    test(title, () =>
      withConsole(device, PASSWORD, async (page) => {
        for (const name of views) {
          const view = VIEWS[name];
          await show(page, view);
          await page.screenshot({ path: `${SHOTS}console-${name}-${title}.png`, fullPage: true });
          await assertAccessible(page);
          const { hacked, images, scripts, cut } = await page.evaluate(() => ({
            hacked: window.hacked,
            images: document.images.length,
            scripts: document.body.querySelectorAll("script").length,
            cut: [...document.querySelectorAll(".table, .panel")].filter((each) => each.scrollWidth > each.clientWidth).length,
          }));
          assert.deepEqual({ name, hacked, images, scripts, cut }, { name, hacked: undefined, images: 0, scripts: 0, cut: 0 });
          await assertFits(page, name);
        }
      }));
  }
});

test("a text is published, once it is confirmed", () =>
  withConsole(DESKTOP, PASSWORD, async (page) => {
    await show(page, VIEWS.channel);
    await page.click("summary");
    await page.fill("#data", `{"by":"the console"`);
    await page.click("button:text-is('Publish')");
    await page.waitForSelector("[role=alert] >> text=not JSON");
    await page.fill("#data", `{"by":"the console"}`);
    await page.click("button:text-is('Publish')");
    assert.match(await page.innerText("dialog"), /Subscribers: 1\. They would get it/);
    await page.click("dialog .danger");
    await page.waitForSelector("td code >> text=the console");
  }));

test("a list shows what was submitted, not what is being typed", () =>
  withConsole(DESKTOP, PASSWORD, async (page) => {
    for (const [name, path] of [["sessions", "data/api/sessions"], ["channels", "data/channels"], ["rooms", "data/api/room_list"]]) {
      await show(page, VIEWS[name]);
      await page.fill("#text", "nothing-has-this-name");
      // The question after the next answer is one that was put while the text was there.
      for (let answer = 0; answer < 2; answer += 1) await page.waitForResponse((response) => response.url().endsWith(path));
      await page.waitForSelector(VIEWS[name].ready);
      await page.click("form.find button:text-is('Find')");
      await page.waitForSelector(VIEWS[name].ready, { state: "detached" });
    }
  }));

test("with the keyboard alone, a session is found and disconnected, once it is confirmed, and the log says so", () =>
  withConsole(DESKTOP, PASSWORD, async (page) => {
    const victim = await Client.open("victim");
    const focused = () => page.evaluate(() => document.activeElement?.textContent ?? "");
    const tabTo = async (text) => {
      for (let presses = 0; presses < 60; presses += 1) {
        if ((await focused()).trim() === text) return;
        await page.keyboard.press("Tab");
      }
      assert.fail(`no way to ${text}`);
    };
    await tabTo("Sessions");
    await page.keyboard.press("Enter");
    await page.waitForSelector("h1 >> text=Sessions");
    for (let presses = 0; presses < 60 && (await page.evaluate(() => document.activeElement?.id)) !== "text"; presses += 1) {
      await page.keyboard.press("Tab");
    }
    await page.keyboard.type("victim");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
    await tabTo(`${victim.id.slice(0, 8)}…`);
    await page.keyboard.press("Enter");
    await page.waitForSelector("button:text-is('Disconnect')");
    await tabTo("Disconnect");
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog[open]");
    assert.equal(await focused(), "Cancel");
    await assertAccessible(page);
    await page.screenshot({ path: `${SHOTS}console-question.png` });
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { state: "detached" });
    assert.equal(await focused(), "Disconnect", "the focus is where it was");
    assert.equal(await victim.closeCode(), null);
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog[open]");
    await tabTo("Disconnect");
    await page.keyboard.press("Enter");
    assert.equal(await victim.untilClosed(), 3503);
    await page.waitForSelector("#told >> text=victim is disconnected");
    await show(page, { hash: "#/log", ready: `.lines li >> text=/console: action.*action=disconnect.*user="victim"/` });
  }));
