/** The demo on a separate cluster: NATS servers and nodes as processes that a test can kill. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { freePort } from "./ports.mjs";

const ROOT = new URL("../../", import.meta.url).pathname;
/** Six processes start at once, with binaries that are not optimized. */
const START_TIMEOUT_MS = 180_000;
/** Longer than all waits of a test: on a busy machine, a page that was away for the usual 30 seconds has a new player. */
const SEAT_GRACE = "10m";

export class ClusterDemo {
  static async start(binary, restartDelayS = 1) {
    const demo = new ClusterDemo();
    demo.folder = mkdtempSync(join(tmpdir(), "dunlin-cluster-page-"));
    demo.port = await freePort();
    const args = [binary, "--pages", join(ROOT, "web/dist"), "--port", demo.port, "--restart-delay-s", restartDelayS, "--seat-grace", SEAT_GRACE];
    demo.process = spawn(join(ROOT, "demo/cluster/run"), [...args, "--state", demo.stateFile], {
      stdio: ["ignore", "ignore", "inherit"],
    });
    demo.ended = once(demo.process, "exit");
    await demo.until("all nodes are ready", (state) => state.serving);
    return demo;
  }

  get stateFile() {
    return join(this.folder, "state.json");
  }

  get page() {
    return `http://127.0.0.1:${this.port}/`;
  }

  /** The last output of the supervisor; null before the first. */
  state() {
    try {
      return JSON.parse(readFileSync(this.stateFile, "utf8"));
    } catch {
      return null;
    }
  }

  async until(what, condition) {
    const deadline = Date.now() + START_TIMEOUT_MS;
    for (;;) {
      const state = this.state();
      if (state !== null && condition(state)) return state;
      assert.equal(this.process.exitCode, null, "the supervisor has ended");
      assert.ok(Date.now() < deadline, `not in ${START_TIMEOUT_MS / 1000} s: ${what}: ${JSON.stringify(state)}`);
      await wait(50); // between two checks
    }
  }

  names(kind) {
    return this.state().processes.map(({ name }) => name).filter((name) => name.startsWith(kind));
  }

  /** The node that has the arena, once it is one of these. */
  async untilArenaOn(isWanted) {
    const deadline = Date.now() + START_TIMEOUT_MS;
    for (;;) {
      for (const { name, port, pid } of this.state().processes.filter(({ name, pid }) => name.startsWith("node") && pid !== null)) {
        const text = await fetch(`http://127.0.0.1:${port}/metrics`).then((answer) => answer.text(), () => "");
        if (/^dunlin_cluster_room_logs 1$/m.test(text) && isWanted(pid)) return { name, pid };
      }
      assert.ok(Date.now() < deadline, `the arena is on no such node in ${START_TIMEOUT_MS / 1000} s`);
      await wait(50); // between two looks
    }
  }

  /** What the nodes have counted about seats, for the message of a failure. */
  async seats() {
    const nodes = this.state().processes.filter(({ name, pid }) => name.startsWith("node") && pid !== null);
    const texts = await Promise.all(nodes.map(({ port }) => fetch(`http://127.0.0.1:${port}/metrics`).then((answer) => answer.text(), String)));
    return nodes.map(({ name }, index) => `${name}: ${texts[index].match(/^dunlin_room_seats_total.* [1-9].*$/gm) ?? "none"}`).join("; ");
  }

  /** Kills a process as `kill -9` does. Returns its id. */
  kill(name) {
    const { pid } = this.state().processes.find((process) => process.name === name);
    process.kill(pid, "SIGKILL");
    return pid;
  }

  /** Waits until another process has replaced the one with this id, and all nodes are ready. */
  untilReplaced(name, pid) {
    return this.until(`${name} runs again`, ({ processes }) => {
      const now = processes.find((process) => process.name === name).pid;
      return now !== null && now !== pid && processes.every(({ ready }) => ready !== false);
    });
  }

  async stop() {
    this.process.kill("SIGTERM");
    await this.ended;
    rmSync(this.folder, { recursive: true });
  }
}
