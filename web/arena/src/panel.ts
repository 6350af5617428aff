/** The figures beside the map, updated a few times per second. */

import type { Changes, Room } from "@dunlin/room-client";
import { setText } from "../../ticker/src/dom";
import { bytes, count, milliseconds } from "../../ticker/src/format";
import type { Me } from "./me";
import { MetricsWatch } from "./metrics_watch";

const WRITE_MS = 250;
const WINDOW_MS = 1_000;
/** More than the number of snapshots per second. They are evaluated only when the page is drawn. */
const SPANS_MAX = 512;
const UNKNOWN = "\u2013";

interface Span {
  readonly atMs: number;
  /** Time between two ticks on the server's clock. */
  readonly tickMs: number;
}

export class Panel {
  private readonly cells = new Map<string, HTMLElement>();
  /** Objects in the world, according to the last message. */
  worldObjects: number | null = null;
  private readonly metrics: MetricsWatch;
  private spans: Span[] = [];
  private frames: number[] = [];
  private lastTimeUs = 0;
  private writtenMs = 0;

  constructor(
    private readonly room: Room,
    private readonly me: Me,
  ) {
    this.metrics = new MetricsWatch(() => room.state === "joined");
    for (const cell of document.querySelectorAll<HTMLElement>("[data-stat]")) {
      this.cells.set(cell.dataset["stat"] ?? "", cell);
    }
  }

  observe({ snapshot, full }: Changes, nowMs: number): void {
    const ticks = snapshot.tick - snapshot.base;
    if (!full) this.spans.push({ atMs: nowMs, tickMs: (snapshot.timeUs - this.lastTimeUs) / 1000 / ticks });
    if (this.spans.length > SPANS_MAX) this.spans.shift();
    this.lastTimeUs = snapshot.timeUs;
  }

  frame(nowMs: number): void {
    this.frames.push(nowMs);
    if (nowMs - this.writtenMs < WRITE_MS) return;
    this.writtenMs = nowMs;
    this.frames = this.frames.filter((atMs) => atMs > nowMs - WINDOW_MS);
    this.spans = this.spans.filter(({ atMs }) => atMs > nowMs - WINDOW_MS);
    this.write("frames", count(this.frames.length));
    if (this.room.state !== "joined" || this.room.replica.tick === 0) this.blank();
    else this.writeRoom(nowMs);
  }

  private blank(): void {
    for (const [name, cell] of this.cells) if (name !== "frames") setText(cell, UNKNOWN);
  }

  private writeRoom(nowMs: number): void {
    const { room } = this;
    const figures = room.figures();
    const { replica } = room;
    this.write("tick", count(replica.tick));
    this.write("ticks", figures.ticksPerSecond.toFixed(1));
    this.write("interval", this.interval());
    this.write("bytes", figures.bytesPerSecond === null ? UNKNOWN : bytes(figures.bytesPerSecond));
    const each = (figures.bytesPerSecond ?? 0) / figures.snapshotsPerSecond;
    this.write("size", Number.isFinite(each) ? bytes(each) : UNKNOWN);
    this.write("objects", this.worldObjects === null ? count(replica.size) : `${count(replica.size)} of ${count(this.worldObjects)}`);
    this.writeTickTime();
    this.write("cells", this.cellsSeen());
    this.write("base", figures.baseAgeTicks === 0 ? "full" : `${count(figures.baseAgeTicks)} tick${figures.baseAgeTicks === 1 ? "" : "s"}`);
    this.write("skipped", `${count(figures.skippedTicks)} tick${figures.skippedTicks === 1 ? "" : "s"}`);
    this.write("trip", figures.roundTripMs === null ? UNKNOWN : milliseconds(figures.roundTripMs));
    this.write("delay", milliseconds(room.interpolation.delayMs));
    this.write("ahead", `${count(this.me.aheadTicks)} tick${this.me.aheadTicks === 1 ? "" : "s"}`);
    this.write("jitter", milliseconds(figures.jitterMs));
    const offsetMs = room.clock.serverTimeMs(nowMs) - Date.now();
    this.write("clock", `${offsetMs < 0 ? "\u2212" : "+"}${milliseconds(Math.abs(offsetMs))}`);
  }

  private writeTickTime(): void {
    const { tickTime } = this.metrics;
    this.write("tick-mean", tickTime === null ? UNKNOWN : shortTime(tickTime.meanMs));
    const isBounded = tickTime !== null && Number.isFinite(tickTime.p99Ms);
    this.write("tick-p99", isBounded ? `\u2264 ${shortTime(tickTime.p99Ms)}` : UNKNOWN);
  }

  private interval(): string {
    if (this.spans.length === 0) return UNKNOWN;
    const spans = this.spans.map(({ tickMs }) => tickMs);
    const mean = spans.reduce((sum, span) => sum + span, 0) / spans.length;
    const stray = Math.max(...spans.map((span) => Math.abs(span - mean)));
    return `${mean.toFixed(1)} \u00b1 ${stray.toFixed(1)} ms`;
  }

  private cellsSeen(): string {
    const { grid, view } = this.room.replica;
    if (grid === null) return UNKNOWN;
    const { left, top, right, bottom } = grid.around(view, grid.shape.nearCells + grid.shape.farCells);
    return `${count((right - left + 1) * (bottom - top + 1))} of ${count(grid.length)}`;
  }

  private write(name: string, text: string): void {
    const cell = this.cells.get(name);
    if (cell !== undefined) setText(cell, text);
  }
}

/** Two digits, because the value is usually far below a millisecond. */
const shortTime = (valueMs: number): string => (valueMs < 1 ? `${Number(valueMs.toPrecision(2))} ms` : milliseconds(valueMs));
