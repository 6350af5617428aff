/** The page of `dunlin play`, from connecting to copying the code; then with a server of the user's own and a token. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { assertFits, DEADLINE_MS, DESKTOP, launch, openPage, PHONE } from "./chromium.mjs";
import { freePort } from "./ports.mjs";

const BINARY = process.env.DUNLIN_BINARY;
const WITH_SERVER = new URL("../sdk/with-server", import.meta.url).pathname;
const SHOTS = new URL("./screenshots/", import.meta.url).pathname;
const SECRET = "a-secret-of-these-tests-with-32-bytes";
/** The browser reports a handshake that is refused. */
const OF_A_REFUSAL = /WebSocket connection/;

let browser;
/** The programs that the tests have started. */
const started = [];
let playground;

before(async () => {
  assert.ok(BINARY, "DUNLIN_BINARY names the server to check");
  mkdirSync(SHOTS, { recursive: true });
  browser = await launch();
  playground = await play([]);
});

after(async () => {
  await browser?.close();
  for (const program of started) {
    program.kill("SIGTERM");
    await program.ended;
  }
});

/** Starts a program, and waits for the first line that it prints. */
async function start(command, args, stdin = "ignore") {
  // The server reads variables with this prefix as configuration.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("DUNLIN_")));
  const program = spawn(command, args, { env, stdio: [stdin, "pipe", "pipe"] });
  program.ended = once(program, "exit");
  program.log = "";
  program.stderr.on("data", (text) => (program.log += text));
  started.push(program);
  const line = once(createInterface(program.stdout), "line").then(([text]) => text);
  const ended = program.ended.then(([code]) => assert.fail(`${command} has ended with ${code}: ${program.log}`));
  program.line = await Promise.race([line, ended]);
  ended.catch(() => undefined);
  return program;
}

/** Starts `dunlin play`; its page. */
async function play(args) {
  const program = await start(BINARY, ["play", ...args]);
  const [address] = program.line.match(/http:\S+:\d+\//) ?? assert.fail(program.line);
  return Object.assign(program, { address });
}

class PlayPage {
  static async open(address, device = DESKTOP, prepare) {
    const opened = await openPage(browser, address, { ...device, permissions: ["clipboard-read", "clipboard-write"] }, prepare);
    const page = new PlayPage();
    Object.assign(page, opened);
    await page.until(() => document.querySelector("#languages button") !== null);
    return page;
  }

  until(condition, argument) {
    return this.page.waitForFunction(condition, argument, { timeout: DEADLINE_MS });
  }

  untilState(state) {
    return this.until((state) => document.querySelector("#state").dataset.state === state, state);
  }

  async connect() {
    await this.page.click("#connect");
    await this.untilState("connected");
  }

  async subscribe(channel) {
    await this.page.fill("#channel", channel);
    await this.page.click("#subscribe");
    await this.untilSubscribed(channel);
  }

  untilSubscribed(channel, state = "subscribed") {
    const isSubscribed = ([channel, state]) =>
      document.querySelector(`#channels li[data-state="${state}"] [data-channel="${channel}"]`) !== null;
    return this.until(isSubscribed, [channel, state]);
  }

  async publish(value) {
    await this.page.fill("#data", JSON.stringify(value));
    await this.page.click("#publish");
  }

  untilMessage(kind, text) {
    const isThere = ([kind, text]) =>
      [...document.querySelectorAll(`#messages [data-kind="${kind}"]`)].some((entry) => entry.textContent.includes(text));
    return this.until(isThere, [kind, text]);
  }

  /** Opens the newest frame in this direction that is about something; what it shows. */
  async frame(direction, about) {
    const entry = this.page.locator(`#frames li[data-direction="${direction}"]`, { hasText: about }).first();
    await entry.locator("summary").click();
    const { encoding, size } = await entry.evaluate(({ dataset }) => ({ ...dataset }));
    const [decoded, raw] = await Promise.all([".decoded", ".raw"].map((part) => entry.locator(part).innerText()));
    const summary = await entry.locator("summary").innerText();
    return { encoding, size: Number(size), decoded: JSON.parse(decoded), raw, summary };
  }

  /** What the button copies for a language. */
  async code(language) {
    await this.page.click(`#languages [data-language="${language}"]`);
    await this.page.click("#copy");
    await this.until(() => document.querySelector("#copy").textContent === "Copied");
    const copied = await this.page.evaluate(() => navigator.clipboard.readText());
    await this.until(() => !document.querySelector("#copy").disabled);
    return copied;
  }
}

async function withPage(body, address = playground.address, device = DESKTOP, expected = []) {
  const page = await PlayPage.open(address, device);
  try {
    await body(page);
    const faults = page.faults.filter((fault) => !expected.some((known) => known.test(fault)));
    assert.deepEqual(faults, []);
  } finally {
    await page.close();
  }
}

for (const encoding of ["json", "protobuf"]) {
  test(`connect, subscribe, publish, presence, history, recovery, frames, code: ${encoding}`, () =>
    withPage(async (play) => {
      const { page } = play;
      const channel = `tour-${encoding}`;
      await page.check(`input[value="${encoding}"]`);
      await play.connect();
      await play.subscribe(channel);
      await play.publish({ text: "one" });
      await play.untilMessage("live", '{"text":"one"}');

      await page.click("#presence");
      await play.until(() => /1 client\b.*this page/s.test(document.querySelector("#answer").innerText));
      await page.click("#history");
      await play.until(() => /newest offset 1.*1 \{"text":"one"\}/s.test(document.querySelector("#answer").innerText));

      // The page itself publishes as a backend while it is cut off.
      await page.click("#cut");
      await play.untilState("cut");
      for (const text of ["two", "three"]) await play.publish({ text });
      await play.until(() => document.querySelector("#publish-note").textContent.includes("server API"));
      assert.equal(await page.locator('#messages [data-kind="live"]').count(), 1, "nothing arrives");
      await page.click("#cut");
      await play.untilMessage("note", "recovered: 2 publications while away");
      const recovered = await page.locator('#messages [data-kind="recovered"]').evaluateAll((entries) => entries.map(({ dataset }) => dataset.offset));
      assert.deepEqual(recovered, ["3", "2"], "the newest is first");
      await play.untilSubscribed(channel);
      assert.match(await page.innerText("#channels"), /offset 3,/, "the next recovery begins behind them");

      await checkFrames(play, encoding, channel);
      await checkCode(play, encoding, channel);
      await page.screenshot({ path: `${SHOTS}play-${encoding}.png`, fullPage: true });

      await page.click("#unsubscribe");
      await play.until(() => document.querySelector("#channels").children.length === 0);
      await page.click("#connect");
      await play.untilState("disconnected");
    }));
}

async function checkFrames(play, encoding, channel) {
  const sent = await play.frame("out", `publish ${channel}`);
  const text = JSON.stringify({ id: sent.decoded.id, publish: { channel, data: { text: "one" } } });
  assert.equal(sent.encoding, encoding);
  assert.deepEqual(sent.decoded, JSON.parse(text));
  assert.match(sent.summary, /\d\d:\d\d:\d\d\.\d{3}/, "the time");
  assert.ok(sent.summary.includes(`${sent.size} B`), sent.summary);
  if (encoding === "json") {
    assert.equal(sent.raw, text);
    assert.equal(sent.size, text.length);
  } else {
    // The length before the message, then the field `id`.
    assert.ok(sent.raw.startsWith(`0000  ${(sent.size - 1).toString(16).padStart(2, "0")} 08 `), sent.raw);
    assert.ok(sent.raw.includes("tour-pr"), sent.raw);
    assert.ok(sent.size < text.length, `${sent.size} bytes`);
  }
  const received = await play.frame("in", `push pub ${channel}`);
  assert.equal(received.decoded.push.pub.offset, 1);
  assert.deepEqual(received.decoded.push.pub.data, { text: "one" });
  const resubscribed = await play.frame("out", `subscribe ${channel}`);
  assert.equal(resubscribed.decoded.subscribe.recover, true);
  assert.equal(resubscribed.decoded.subscribe.offset, 1);
}

async function checkCode(play, encoding, channel) {
  for (const [language, parts] of Object.entries({
    javascript: ["new Centrifuge(", "newSubscription(", ".publish(", ".presence()", ".history({ limit: 10 })"],
    go: [encoding === "json" ? "NewJsonClient(" : "NewProtobufClient(", "NewSubscription(", "WithHistoryLimit(10)"],
    python: ["Client(", "new_subscription(", ".history(limit=10)"],
    java: ["new Client(", "newSubscription(", "withLimit(10)"],
    swift: ["CentrifugeClient(endpoint:", "newSubscription(channel:", ".history(limit: 10)"],
    dart: ["createClient(", "newSubscription(", ".history(limit: 10)"],
    curl: ["X-API-Key: ", "/api/publish", "/api/presence", "/api/history"],
  })) {
    const code = await play.code(language);
    for (const part of [...parts, channel, "three"]) assert.ok(code.includes(part), `${language} has no ${part}:\n${code}`);
  }
}

test("two tabs see each other join, and the newest publication waits for a third one", () =>
  withPage(async (one) => {
    await one.connect();
    await one.subscribe("joins:tabs");
    await withPage(async (two) => {
      await two.connect();
      await two.subscribe("joins:tabs");
      await one.untilMessage("joined", "client");
      await two.publish({ from: "two" });
      await one.untilMessage("live", '{"from":"two"}');
      await two.subscribe("latest:tabs");
      await two.publish(1);
      await two.publish(2);
      await two.untilMessage("live", "2");
    });
    await one.untilMessage("left", "client");
    await one.subscribe("latest:tabs");
    await one.untilMessage("with the reply", "2");
  }));

test("a channel that is refused says why, and JSON that is none is not sent", () =>
  withPage(async (play) => {
    await play.page.fill("#channel", "nothing:there");
    await play.page.click("#subscribe");
    await play.connect();
    await play.untilSubscribed("nothing:there", "refused");
    assert.match(await play.page.innerText("#channels"), /102: unknown channel/);
    assert.ok(await play.page.isDisabled("#publish"));
    await play.subscribe("plain:words");
    await play.page.fill("#data", "{text}");
    await play.page.click("#publish");
    await play.until(() => document.querySelector("#publish-note").textContent.startsWith("this is no JSON"));
    await play.page.click("#history");
    await play.until(() => document.querySelector("#answer").dataset.failed === "true");
    assert.match(await play.page.innerText("#answer"), /103: permission denied|108: not available/);
  }));

test("the page connects to a server of yours, with a token that is in no log", async () => {
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), "dunlin-play-"));
  const config = {
    http_server: { address: "127.0.0.1", port: 0 }, health: { enabled: true }, log: { level: "trace" },
    client: { token: { hmac_secret_key: SECRET }, allowed_origins: [`http://localhost:${port}`] },
    channel: { namespaces: [{ name: "own", allow_subscribe_for_client: true, allow_publish_for_subscriber: true }] },
  };
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  const print = ["--", "sh", "-c", 'echo "$DUNLIN_WS_URL"; exec cat'];
  const server = await start(WITH_SERVER, [BINARY, "--config", join(folder, "config.json"), ...print], "pipe");
  try {
    const token = tokenOf({ sub: "ada" });
    const own = await play(["--port", String(port), "--url", server.line, "--token", token]);
    await withPage(async (page) => {
      await page.connect();
      await page.subscribe("own:news");
      await page.publish({ text: "mine" });
      await page.untilMessage("live", '{"text":"mine"}');
      assert.match(await page.page.innerText("#messages"), /by user ada/);
      for (const language of ["javascript", "curl"]) {
        const code = await page.code(language);
        assert.ok(!code.includes(token), code);
        assert.match(code, /YOUR_(TOKEN|API_KEY)/);
      }
      // Without the server's API key, the page cannot publish while it is cut off.
      await page.page.click("#cut");
      await page.untilState("cut");
      assert.ok(await page.page.isDisabled("#publish"));
    }, own.address);
    assert.ok(!own.log.includes(token) && !own.line.includes(token), own.log);

    // A page of another origin is refused, and says what to do.
    const other = await play(["--url", server.line]);
    await withPage(async (page) => {
      await page.page.click("#connect");
      await page.until(() => document.querySelector("#why").textContent.includes("allowed_origins"));
      assert.ok((await page.page.innerText("#why")).includes(new URL(other.address).origin));
      await page.page.click("#connect");
      await page.untilState("disconnected");
    }, other.address, DESKTOP, [OF_A_REFUSAL]);
    server.stdin.end();
    await server.ended;
  } finally {
    rmSync(folder, { recursive: true });
  }
});

/** A token with this secret, as a backend makes it. */
function tokenOf(claims) {
  const part = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${signed}.${createHmac("sha256", SECRET).update(signed).digest("base64url")}`;
}

const SMALL_PHONE = { ...PHONE, viewport: { width: 320, height: 640 } };
for (const [title, device] of Object.entries({
  "desktop, light": { ...DESKTOP, colorScheme: "light" },
  "desktop, dark": { ...DESKTOP, colorScheme: "dark" },
  "phone, light": { ...PHONE, colorScheme: "light" },
  "phone, dark": { ...PHONE, colorScheme: "dark" },
  "small phone": SMALL_PHONE,
})) {
  test(`axe finds nothing, and nothing is wider than the screen: ${title}`, () =>
    withPage(async (play) => {
      const { page } = play;
      await play.connect();
      await play.subscribe(`looks-${title.replace(/\W+/g, "-")}-and-a-name-that-is-long`);
      await play.publish({ text: "hello", numbers: [1, 2, 3] });
      await play.untilMessage("live", "hello");
      await page.click("#presence");
      await play.until(() => document.querySelector("#answer").innerText.includes("1 client"));
      await page.click("#examples summary");
      await play.frame("in", "push pub");
      await page.screenshot({ path: `${SHOTS}play-${title.replace(/\W+/g, "-")}.png`, fullPage: true });
      await assertFits(page);
      // The page's policy allows no script but its own.
      const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
      await page.evaluate(axe);
      const violations = await page.evaluate(async () => (await window.axe.run(document)).violations);
      assert.deepEqual(violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target}: ${failureSummary}`)), []);
    }, playground.address, device));
}
