/**
 * Smooth movement of objects that others control. Objects are shown with a delay, just long enough that the snapshot
 * after the shown time has usually arrived. So each shown position lies between two known ones.
 */

import type { Changes } from "./replica.js";
import type { Grid } from "./grid.js";

export interface Place {
  readonly x: number;
  readonly y: number;
}

interface Sample extends Place {
  /** Server time in milliseconds. */
  readonly atMs: number;
}

export interface InterpolationOptions {
  /** The bounds of the delay. */
  readonly delayMinMs: number;
  readonly delayMaxMs: number;
  /** A step that is longer is a teleport: the object is shown at one end or at the other. Default: a cell's side. */
  readonly teleportUnits: number | null;
}

export const INTERPOLATION_OPTIONS: InterpolationOptions = { delayMinMs: 10, delayMaxMs: 500, teleportUnits: null };

/** The number of recent arrivals that determine the delay. */
const ARRIVALS = 120;
/** The share of arrivals that the delay covers. */
const COVERED = 0.97;
const MARGIN_MS = 2;
const SAMPLES_MAX = 64;
/** The shown time runs at most this much faster or slower than the clock. */
const SLEW_MAX = 0.1;
/** At a larger difference it jumps instead. */
const JUMP_MS = 500;

export class Interpolation {
  private readonly tracks = new Map<number, Sample[]>();
  private readonly needsMs: number[] = [];
  private readonly options: InterpolationOptions;
  private grid: Grid | null = null;
  private targetMs: number;
  private lastMs: number | null = null;
  private shownMs: number | null = null;
  private shownAtMs = 0;

  constructor(options: Partial<InterpolationOptions> = {}) {
    this.options = { ...INTERPOLATION_OPTIONS, ...options };
    this.targetMs = this.options.delayMinMs;
  }

  /** The target delay of the shown time relative to the server's. */
  get delayMs(): number {
    return this.targetMs;
  }

  /** How many objects are followed. */
  get size(): number {
    return this.tracks.size;
  }

  clear(): void {
    this.tracks.clear();
    this.needsMs.length = 0;
    this.lastMs = this.shownMs = null;
    this.targetMs = this.options.delayMinMs;
  }

  /** Takes in what a snapshot changed, which arrived at server time `arrivedMs` (see `Clock`). */
  observe(changes: Changes, grid: Grid, arrivedMs: number): void {
    const atMs = changes.snapshot.timeUs / 1000;
    this.grid = grid;
    // Until now the newest known time was that of the last snapshot: this delay would have been long enough.
    if (this.lastMs !== null && !changes.full) this.measure(arrivedMs - this.lastMs);
    for (const { id } of changes.removed) this.tracks.delete(id);
    for (const { id, x, y } of changes.added) this.tracks.set(id, [{ atMs, x, y }]);
    for (const { before, after } of changes.changed) {
      if (before.x === after.x && before.y === after.y) continue;
      const track = this.tracks.get(after.id) ?? [];
      this.tracks.set(after.id, track);
      const stoodUntilMs = this.stoodUntil(changes, grid, after.cell, atMs);
      const known = track.at(-1);
      // The object did not move until the base of this snapshot.
      if (known === undefined || known.atMs < stoodUntilMs) track.push({ atMs: stoodUntilMs, x: before.x, y: before.y });
      track.push({ atMs, x: after.x, y: after.y });
      if (track.length > SAMPLES_MAX) track.splice(0, track.length - SAMPLES_MAX);
    }
    this.lastMs = atMs;
  }

  /** The server time to show at clock time `serverMs`, for calls of `place` in this frame. It never decreases. */
  advance(serverMs: number): number {
    const wantedMs = serverMs - this.targetMs;
    const { shownMs } = this;
    if (shownMs === null || Math.abs(wantedMs - shownMs) > JUMP_MS) {
      this.shownMs = wantedMs;
    } else {
      const passedMs = Math.max(0, serverMs - this.shownAtMs);
      const aheadMs = wantedMs - (shownMs + passedMs);
      const slewMs = Math.max(-SLEW_MAX * passedMs, Math.min(SLEW_MAX * passedMs, aheadMs));
      this.shownMs = shownMs + passedMs + slewMs;
    }
    this.shownAtMs = serverMs;
    return this.shownMs;
  }

  /** Where an object was at server time `atMs`; null if it is not followed. */
  place(id: number, atMs: number): Place | null {
    const track = this.tracks.get(id);
    if (track === undefined) return null;
    // Of the positions before the shown time, only the last is needed.
    let past = 0;
    while (past + 1 < track.length && (track[past + 1]?.atMs ?? Infinity) <= atMs) past += 1;
    if (past > 0) track.splice(0, past);
    const [from, to] = track;
    if (from === undefined) return null;
    if (to === undefined || atMs <= from.atMs) return from;
    const share = (atMs - from.atMs) / (to.atMs - from.atMs);
    if (Math.hypot(to.x - from.x, to.y - from.y) > this.teleportUnits) return from;
    return { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share };
  }

  private get teleportUnits(): number {
    return this.options.teleportUnits ?? this.grid?.shape.cellUnits ?? Number.POSITIVE_INFINITY;
  }

  private stoodUntil(changes: Changes, grid: Grid, cell: number | null, atMs: number): number {
    const { tick, base, view } = changes.snapshot;
    if (base === 0) return atMs;
    const { farIntervalTicks, ticksPerSecond } = grid.shape;
    const isFar = cell !== null && grid.band(view, cell) === "far";
    const knownTick = isFar ? Math.floor(base / farIntervalTicks) * farIntervalTicks : base;
    if (knownTick === base && this.lastMs !== null) return Math.min(this.lastMs, atMs);
    return atMs - ((tick - knownTick) / ticksPerSecond) * 1000;
  }

  private measure(neededMs: number): void {
    this.needsMs.push(neededMs);
    if (this.needsMs.length > ARRIVALS) this.needsMs.shift();
    const sorted = [...this.needsMs].sort((a, b) => a - b);
    const covered = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * COVERED))] ?? 0;
    const { delayMinMs, delayMaxMs } = this.options;
    this.targetMs = Math.min(delayMaxMs, Math.max(delayMinMs, covered + MARGIN_MS));
  }
}
