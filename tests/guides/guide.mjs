/**
 * A guide in a Markdown page, as steps that a reader follows: files to save and commands to type.
 *
 *   node guide.mjs prepare PAGE HEADING FOLDER
 *
 * follows the steps inside FOLDER up to the first command that starts a server, and writes the others to FOLDER/guide.json.
 * Two environment variables change this: commands that match GUIDE_SKIP are not run; with GUIDE_CHECKOUT, a new
 * game takes Dunlin's crates from there.
 */

import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** Commands that run until they are ended: each in a terminal of its own. */
const SERVES = /^(dunlin serve|python3 -m http\.server|dunlin dev|node server\.mjs|cargo run -- serve)/m;

/** The steps below a heading (all of the page for ""): `{ file, text }` or `{ command, isServer }`. */
export function stepsOf(markdown, heading) {
  const steps = [];
  const lines = sectionOf(markdown, heading).split("\n");
  for (let at = 0; at < lines.length; at += 1) {
    const fence = /^```(\w*)(?:,\w+)*$/.exec(lines[at]);
    if (fence === null) continue;
    const end = lines.indexOf("```", at + 1);
    if (end < 0) throw new Error(`line ${at + 1} of "${heading}": a fence that does not end`);
    const text = `${lines.slice(at + 1, end).join("\n")}\n`;
    // The paragraph before it, whose lines may break anywhere.
    const said = lines.slice(0, at).join("\n").trimEnd().split(/\n\n/).at(-1).replaceAll("\n", " ");
    const file = /Save this as `([^`]+)`/.exec(said)?.[1];
    if (file !== undefined) steps.push({ file, text });
    else if (fence[1] === "sh") steps.push({ command: text, isServer: SERVES.test(text) });
    at = end;
  }
  return steps;
}

function sectionOf(markdown, heading) {
  if (heading === "") return markdown;
  const [, rest] = markdown.split(`\n## ${heading}\n`);
  if (rest === undefined) throw new Error(`there is no heading "${heading}"`);
  return rest.split("\n## ")[0];
}

/** Follows steps in a folder like one shell: a `cd` or an `export` applies to all later steps. */
export class Reader {
  #folder;
  #state;
  #servers = [];

  constructor(folder) {
    this.#folder = resolve(folder);
    this.#state = join(this.#folder, ".shell-state");
  }

  /** Saves a file, or runs a command to its end and returns its output. */
  follow(step) {
    if (step.file !== undefined) {
      const path = join(this.#here(), step.file);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, step.text);
      return "";
    }
    const script = `${this.#restore()}${step.command}\n{ printf 'cd %q\\n' "$PWD"; export -p; } > ${this.#state}\n`;
    const { status, stdout } = spawnSync("bash", ["-eu", "-o", "pipefail", "-c", script], {
      encoding: "utf8",
      cwd: this.#folder,
      stdio: ["ignore", "pipe", "inherit"],
    });
    if (status !== 0) throw new Error(`exit status ${status} of:\n${step.command}\n${stdout}`);
    return stdout;
  }

  /** Starts a server command, which runs until `end`. */
  serve(step) {
    const script = `${this.#restore()}${step.command}`;
    const server = spawn("bash", ["-c", script], { cwd: this.#folder, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [server.stdout, server.stderr]) stream.on("data", (bytes) => (output += bytes));
    const ended = new Promise((done) => server.on("exit", done));
    this.#servers.push({ server, ended });
    return () => output;
  }

  /** Ends the server commands, each with its child processes. */
  async end() {
    for (const { server, ended } of this.#servers) {
      if (server.exitCode === null && server.signalCode === null) process.kill(-server.pid, "SIGTERM");
      await ended;
    }
  }

  #restore() {
    return `[ ! -e ${this.#state} ] || . ${this.#state}\n`;
  }

  #here() {
    const script = `${this.#restore()}printf %s "$PWD"`;
    return spawnSync("bash", ["-c", script], { encoding: "utf8", cwd: this.#folder }).stdout;
  }
}

/** Follows the steps up to the first command that starts a server, and returns the others. */
export function followUntilServers(reader, steps) {
  const until = steps.findIndex((step) => step.isServer);
  const before = until < 0 ? steps : steps.slice(0, until);
  for (const step of before) {
    console.error(step.file === undefined ? `$ ${step.command.trimEnd()}` : `saves ${step.file}`);
    process.stderr.write(reader.follow(step));
  }
  return steps.slice(before.length);
}

function prepare(page, heading, folder) {
  const skip = new RegExp(process.env.GUIDE_SKIP ?? "^$");
  const steps = stepsOf(readFileSync(page, "utf8"), heading).filter(({ command }) => command === undefined || !skip.test(command));
  const rest = followUntilServers(new Reader(folder), steps.map((step) => withCheckout(step, process.env.GUIDE_CHECKOUT)));
  writeFileSync(join(folder, "guide.json"), JSON.stringify(rest));
}

/** A new game takes Dunlin's crates from a checkout instead of the repository's address. */
function withCheckout(step, checkout) {
  if (checkout === undefined || step.command === undefined) return step;
  return { ...step, command: step.command.replace(/^dunlin new-game \S+$/m, (command) => `${command} --crates ${checkout}/crates`) };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [, , verb, page, heading, folder] = process.argv;
  if (verb !== "prepare" || folder === undefined) throw new Error("usage: guide.mjs prepare PAGE HEADING FOLDER");
  prepare(page, heading, folder);
}
