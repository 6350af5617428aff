/**
 * The programs that the playground's page writes do what was done in the page: they connect, subscribe, publish, and print what
 * they receive. In JavaScript, Go, Python and Java with the SDKs of the other tests; Swift and Dart have no compiler here.
 */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { codeOf } from "../../../crates/server/src/cli/play/page/code.js";

const SDKS = new URL("..", import.meta.url).pathname;
const DEADLINE_MS = 120_000;
const ATTEMPTS_MAX = 3;
/** What each program prints. */
const LINES = [/connected as \S+/, /subscribed, recovered: false/i, /publication 1 /, /present:/, /history 1 /];
/** Each language quotes it in another way. */
const DATA = { text: "it's $HOME ${x} `\"\\(y)\" # ж", list: [1, true, null] };
const { DUNLIN_BINARY, DUNLIN_PYTHON, DUNLIN_JAVA_CLASSES, ...ENVIRONMENT } = process.env;
const run = promisify(execFile);

let folder;
let server;
let origin;
let apiKey;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "dunlin-play-code-"));
  server = spawn(DUNLIN_BINARY, ["play"], { env: ENVIRONMENT, stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(createInterface(server.stdout), "line", { signal: AbortSignal.timeout(DEADLINE_MS) });
  origin = new URL(line.match(/http:\S+:\d+\//)?.[0] ?? assert.fail(line)).origin;
  ({ apiKey } = await (await fetch(`${origin}/settings.json`)).json());
});

after(async () => {
  server?.kill("SIGTERM");
  await once(server, "exit");
  rmSync(folder, { recursive: true });
});

/** What was done in the page, in a channel of its own. */
function doneIn(channel, encoding) {
  return {
    url: `${origin.replace("http", "ws")}/connection/websocket`, apiUrl: `${origin}/api`, apiKey, encoding, hasToken: false,
    channel, data: DATA, presence: true, historyLimit: 5, unsubscribe: false,
  };
}

/** Writes the program into a folder of its own. */
function write(name, file, code) {
  mkdirSync(join(folder, name));
  const path = join(folder, name, file);
  writeFileSync(path, code);
  return path;
}

/** How to run each program; Go is compiled first, so that the process is the program. */
const COMMANDS = {
  javascript: async (name, code) => [
    process.execPath, ["--experimental-websocket", "--no-warnings", "--input-type=module", "--eval", code], join(SDKS, "js"),
  ],
  go: async (name, code) => {
    const path = write(name, "main.go", code);
    await run("go", ["build", "-mod=readonly", "-o", `${path}.bin`, path], { cwd: join(SDKS, "go") });
    return [`${path}.bin`, [], folder];
  },
  python: async (name, code) => [DUNLIN_PYTHON, ["-u", write(name, "main.py", code)], folder],
  java: async (name, code) => ["java", ["-cp", DUNLIN_JAVA_CLASSES, write(name, "Main.java", code)], folder],
};

for (const [language, encoding] of [
  ["javascript", "json"], ["javascript", "protobuf"], ["go", "json"], ["go", "protobuf"], ["python", "json"], ["python", "protobuf"],
  ["java", "protobuf"],
]) {
  test(`${language}, ${encoding}`, async () => {
    // SDKs wait five seconds for an answer, which busy cores may exceed.
    for (let attempt = 1; ; attempt += 1) {
      const name = `${language}-${encoding}-${attempt}`;
      const text = await printed(language, name, encoding);
      if (/timeout/i.test(text) && attempt < ATTEMPTS_MAX) continue;
      for (const line of LINES) assert.match(text, line);
      assert.deepEqual((await history(name)).map(({ data }) => data), [DATA], "what was published is what was meant");
      break;
    }
  });
}

/** What a program prints until it has done everything, or until something takes too long. */
async function printed(language, name, encoding) {
  const [command, args, cwd] = await COMMANDS[language](name, codeOf(language, doneIn(name, encoding)));
  const program = spawn(command, args, { cwd, env: ENVIRONMENT, stdio: ["ignore", "pipe", "pipe"] });
  try {
    return await untilPrinted(program, (text) => /timeout/i.test(text) || LINES.every((line) => line.test(text)));
  } finally {
    program.kill("SIGKILL");
  }
}

test("curl", async () => {
  const commands = codeOf("curl", doneIn("curl", "json"));
  const { stdout } = await run("sh", ["-euc", commands.replaceAll("curl ", "curl --silent --show-error ")]);
  assert.doesNotMatch(stdout, /"error"/);
  assert.match(stdout, /"presence"/);
  assert.deepEqual((await history("curl")).map(({ data }) => data), [DATA]);
});

test("a program that unsubscribes, and one without a channel", async () => {
  const name = "python-ends";
  const done = { ...doneIn(name, "json"), presence: false, historyLimit: undefined, unsubscribe: true };
  for (const [folder, what] of [[name, done], ["python-begins", { ...done, channel: undefined, data: undefined, unsubscribe: false }]]) {
    const [command, args, cwd] = await COMMANDS.python(folder, codeOf("python", what));
    const program = spawn(command, args, { cwd, env: ENVIRONMENT, stdio: ["ignore", "pipe", "pipe"] });
    try {
      await untilPrinted(program, (text) => /connected as \S+/.test(text));
    } finally {
      program.kill("SIGKILL");
    }
  }
});

async function history(channel) {
  const headers = { "X-API-Key": apiKey, "Content-Type": "application/json" };
  const response = await fetch(`${origin}/api/history`, { method: "POST", headers, body: JSON.stringify({ channel, limit: 10 }) });
  return (await response.json()).result.publications;
}

/** Waits until what a program has printed is enough; the text. */
async function untilPrinted(program, isEnough) {
  let text = "";
  const deadline = AbortSignal.timeout(DEADLINE_MS);
  await new Promise((resolve, reject) => {
    const read = (part) => {
      text += part;
      if (isEnough(text)) resolve();
    };
    program.stdout.on("data", read);
    program.stderr.on("data", read);
    program.on("exit", (code) => reject(new Error(`it has ended with ${code}:\n${text}`)));
    program.on("error", reject);
    deadline.addEventListener("abort", () => reject(new Error(`it has printed only:\n${text}`)));
  });
  return text;
}
