/** A recording: the page of `dunlin replay --page`, with its game in a process of the node. */

import { Player } from "../../../../crates/server/src/cli/replay/page/player.js";
import { closeReplay, NotThere, openReplay, Refused, replayIndex, replayTicks, SignedOut, touchReplay } from "../api";
import { el, fill, setText } from "../dom";
import { bytes, count } from "../format";
import type { ReplayFrame, ReplayIndex, ReplayProgress } from "../types";
import { type Context, link, type View } from "../view";

const POLL_MS = 500;
/** The node ends a replay that nobody has asked for a minute. */
const KEEP_MS = 20_000;

/** `node` has an id or a name; empty: this node. */
export function replay(context: Context, file: string, node: string): View {
  const opened = new Opened(context, file, node);
  void opened.open(1);
  return { title: "Recording", element: opened.element, stop: () => opened.stop() };
}

class Opened {
  readonly element: HTMLElement;
  private readonly about = el("p", { role: "status" });
  /** How far a replay is that leads to the ticks that are shown next. */
  private readonly progress = el("p", { class: "hint", role: "status" });
  private readonly fault = el("p", { class: "bad", role: "alert", hidden: true });
  private readonly again = el("button", { type: "button", onclick: () => void this.openAgain() }, "Load what has been recorded since");
  private readonly place = el("div", { class: "replay" });
  private readonly left = () => this.end();
  private player: Player | null = null;
  /** The id of the replay on the node. */
  private id: string | null = null;
  private isStopped = false;
  /** While it is opened again: a page asks for ticks more than once at a time. */
  private reopened: Promise<ReplayIndex | null> | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly context: Context,
    private readonly file: string,
    private readonly node: string,
  ) {
    const name = context.history.status?.nodes.find(({ uid }) => uid === node)?.name || node;
    const crumbs = el("p", { class: "crumbs" }, link("Recordings", "recordings"), " / ", el("code", {}, file), name === "" ? "" : ` of ${name}`);
    this.element = el("div", {}, crumbs, el("div", { class: "recording" }, this.about, this.progress, this.again), this.fault, this.place);
    this.again.hidden = true;
    addEventListener("pagehide", this.left);
  }

  stop(): void {
    this.isStopped = true;
    removeEventListener("pagehide", this.left);
    this.player?.close();
    this.end();
  }

  /** Opens the recording and shows it from this tick on. */
  async open(tick: number | "last"): Promise<void> {
    try {
      const index = await this.replayed();
      if (index === null) return;
      if (index.ticks === 0) throw new Refused(index.end ?? "the recording has no ticks yet");
      this.show(index, tick === "last" ? index.ticks : tick);
    } catch (error) {
      this.fail(error);
    }
    this.again.hidden = false;
  }

  private async openAgain(): Promise<void> {
    this.again.hidden = true;
    this.player?.close();
    this.end();
    this.warn(null);
    await this.open("last");
  }

  /** Has the node replay the recording once; `null` if the view has gone meanwhile. */
  private async replayed(): Promise<ReplayIndex | null> {
    setText(this.about, "Replaying …");
    const id = await openReplay(this.file, this.node);
    if (this.isStopped) {
      closeReplay(id);
      return null;
    }
    this.id = id;
    while (this.id === id) {
      const index = await replayIndex(id);
      if (this.id !== id) break;
      if ("ticks" in index) {
        this.keep(id);
        return index;
      }
      setText(this.about, progressText(index, this.node));
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
    return null;
  }

  private show(index: ReplayIndex, tick: number): void {
    this.describe(index);
    this.player = new Player(index, (from, ticks) => this.load(from, ticks), this.place, (text) => this.warn(text), (client) => link("its session", "sessions", "client", client));
    void this.player.go(tick);
  }

  private describe(index: ReplayIndex): void {
    const players = index.players.length + index.players_left_out;
    const who = `${count(players)} ${players === 1 ? "player" : "players"}`;
    fill(this.about, el("code", {}, index.channel || "a room"), `: ${index.simulation}, seed ${index.seed}, ${count(index.ticks)} ticks, ${who}`);
  }

  /** A replay that has ended, because this page has slept, is opened again. */
  private async load(from: number, ticks: number): Promise<ReplayFrame[]> {
    try {
      return await this.ticks(from, ticks);
    } catch (error) {
      if (error instanceof SignedOut) this.context.signedOut();
      if (!(error instanceof NotThere) || this.isStopped) throw error;
      this.reopened ??= this.replayed().finally(() => (this.reopened = null));
      const index = await this.reopened;
      if (index === null) throw error;
      this.describe(index);
      return this.ticks(from, ticks);
    }
  }

  /** Asks until the node has replayed what is before these ticks. */
  private async ticks(from: number, ticks: number): Promise<ReplayFrame[]> {
    for (;;) {
      const answered = await replayTicks(this.id ?? "", from, ticks);
      const isThere = typeof answered !== "number";
      setText(this.progress, isThere ? "" : `Replaying up to tick ${count(from)}: tick ${count(answered)} …`);
      if (isThere) return answered;
      if (this.isStopped) throw new Refused("the page has been left");
    }
  }

  private keep(id: string): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      // Whether it is there, the next question for ticks says.
      touchReplay(id).catch(() => {});
      if (this.id === id) this.keep(id);
    }, KEEP_MS);
  }

  private end(): void {
    clearTimeout(this.timer);
    if (this.id !== null) closeReplay(this.id);
    this.id = null;
  }

  private fail(error: unknown): void {
    if (error instanceof SignedOut) return this.context.signedOut();
    if (!(error instanceof Refused)) throw error;
    setText(this.about, "");
    this.end();
    if (!this.isStopped) this.warn(error.message);
  }

  /** Says what is wrong; `null`: nothing. */
  private warn(text: string | null): void {
    this.fault.hidden = text === null;
    setText(this.fault, text === null ? "" : text.charAt(0).toUpperCase() + text.slice(1));
  }
}

function progressText(progress: ReplayProgress, node: string): string {
  if ("tick" in progress) return `Replaying: tick ${count(progress.tick)} …`;
  return `Fetching from ${node}: ${bytes(progress.fetched)} of ${bytes(progress.bytes)} …`;
}
