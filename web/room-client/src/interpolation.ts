/**
 * Smooth movement of objects that others control. Objects are shown with a delay, just long enough that the snapshot
 * after the shown time has usually arrived. So each shown position lies between two known ones. Far cells do not come with
 * each snapshot, nor do other cells under a bandwidth limit, so objects in them are shown later by a second delay.
 */

import type { Changes, SeenObject } from "./replica.js";
import { FAR_ZONE, type Grid } from "./grid.js";
import { Recent } from "./recent.js";
import { FULL_RATE_PERMILLE, type Snapshot, waitTicks } from "./snapshot.js";

export interface Place {
  readonly x: number;
  readonly y: number;
}

/** What to show of an object: it is on its way from one known state to another. */
export interface Shown extends Place {
  readonly from: Uint8Array;
  readonly to: Uint8Array;
  /** 0 at the first state, 1 at the second. */
  readonly share: number;
}

interface Sample extends Place {
  /** Server time in milliseconds. */
  readonly atMs: number;
  readonly state: Uint8Array;
}

interface Track {
  readonly samples: Sample[];
  /** The zone of its cell when it changed last. */
  zone: number;
  /** Additional delay of the object relative to the shown time. */
  lagMs: number;
  /** The last shown time. */
  shownMs: number | null;
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
/**
 * All samples of all objects with their states. Enough for 64 samples of 10,000 objects with states of 40 bytes; beyond it, objects have fewer
 * samples, or are shown where they are.
 */
const SAMPLE_BYTES_MAX = 64 * 1024 * 1024;
const BYTES_OF_SAMPLE = 64;
/** The shown time runs at most this much faster or slower than the clock. */
const SLEW_MAX = 0.1;
/** At a larger difference it jumps instead. */
const JUMP_MS = 500;
/** The number of recent updates of a zone that determine the second delay of the objects in it. */
const ZONE_UPDATES = 30;
/** An object that enters or leaves a zone is shown at most this much slower or faster. */
const ZONE_SLEW_MAX = 0.25;
/** A server that limits bandwidth sends far cells at the latest when they are this old. */
const FAR_WAIT_TICKS = 13;
/** A server that has sent far cells late is expected to do so again for this long. */
const FAR_LATE_S = 2;
const ZONES: readonly number[] = [0, 1, 2, FAR_ZONE];

export class Interpolation {
  private readonly tracks = new Map<number, Track>();
  private sampleBytes = 0;
  private readonly needsMs = new Recent(ARRIVALS);
  /** By zone: what its last updates needed besides the delay, and the second delay. The nearest zone never waits. */
  private readonly zoneNeedsMs: readonly Recent[] = ZONES.map(() => new Recent(ZONE_UPDATES));
  private readonly zoneTargetsMs = [0, 0, 0, 0];
  /** By zone: until when the objects that change in this snapshot had not changed. */
  private readonly stoodMs = [0, 0, 0, 0];
  private readonly options: InterpolationOptions;
  private grid: Grid | null = null;
  private targetMs: number;
  /** By how much the current interval of the room's ticks is longer than at full rate. */
  private slowedMs = 0;
  /** The tick of the last snapshot with a far cell. */
  private farTick = 0;
  /** The tick of the last snapshot that did not have to contain far cells; 0 for none. */
  private farLateTick = 0;
  /** The view of the last snapshot. */
  private lastView = 0;
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

  /** Additional delay of objects in far cells. */
  get farDelayMs(): number {
    return this.zoneTargetsMs[FAR_ZONE] ?? 0;
  }

  /** The number of tracked objects. */
  get size(): number {
    return this.tracks.size;
  }

  clear(): void {
    this.tracks.clear();
    this.sampleBytes = 0;
    this.needsMs.clear();
    for (const needsMs of this.zoneNeedsMs) needsMs.clear();
    this.zoneTargetsMs.fill(0);
    this.farTick = this.farLateTick = this.slowedMs = 0;
    this.lastMs = this.shownMs = null;
    this.targetMs = this.options.delayMinMs;
  }

  /** The server's clock is another one: samples of before have no time on it. */
  forgetSamples(): void {
    for (const track of this.tracks.values()) {
      this.forget(track, track.samples.length);
      track.lagMs = this.zoneTargetsMs[track.zone] ?? 0;
      track.shownMs = null;
    }
    this.lastMs = this.shownMs = null;
  }

  /** Processes the changes of a snapshot that arrived at server time `arrivedMs` (see `Clock`). */
  observe(changes: Changes, grid: Grid, arrivedMs: number): void {
    const atMs = changes.snapshot.timeUs / 1000;
    this.grid = grid;
    this.slowedMs = slowedMs(changes, grid);
    // Until now the newest known time was that of the last snapshot: this delay would have been long enough.
    if (this.lastMs !== null && !changes.full) this.measure(arrivedMs - this.lastMs);
    const updated = updatedZones(changes, grid);
    this.observeZones(changes.snapshot, grid, updated, atMs);
    for (const { id } of changes.removed) this.remove(id);
    for (const { id, x, y, state, cell } of changes.added) {
      const zone = zoneOf(grid, changes.snapshot.view, cell);
      const track: Track = { samples: [], zone, lagMs: this.zoneTargetsMs[zone] ?? 0, shownMs: null };
      this.remove(id);
      this.tracks.set(id, track);
      this.add(track, { atMs, x, y, state });
    }
    for (const { before, after } of changes.changed) {
      if (before.x === after.x && before.y === after.y && isSame(before.state, after.state)) continue;
      const track = this.tracks.get(after.id) ?? { samples: [], zone: 0, lagMs: 0, shownMs: null };
      this.tracks.set(after.id, track);
      track.zone = zoneOf(grid, changes.snapshot.view, after.cell);
      const { samples } = track;
      const zoneBefore = zoneOf(grid, this.lastView, before.cell);
      const stoodUntilMs = this.stoodMs[zoneBefore] ?? atMs;
      const known = samples.at(-1);
      // The object did not move until the base of this snapshot, or the last update of its zone.
      if (known === undefined || known.atMs < stoodUntilMs) this.add(track, sampleOf(before, stoodUntilMs));
      if ((waitTicks(changes.snapshot, zoneBefore) ?? 0) > 0) this.resume(track);
      this.add(track, sampleOf(after, atMs));
      if (samples.length > SAMPLES_MAX) this.forget(track, samples.length - SAMPLES_MAX);
    }
    if (changes.full || isIn(updated, FAR_ZONE)) this.farTick = changes.snapshot.tick;
    this.lastMs = atMs;
    this.lastView = changes.snapshot.view;
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

  /** The position of an object at server time `atMs`; null if it is not tracked. */
  place(id: number, atMs: number): Place | null {
    // The same object, because a page asks for the place of each object in each frame.
    return this.shown(id, atMs);
  }

  /** The position of an object at server time `atMs`, and the states around that time; null if it is not tracked. */
  shown(id: number, atMs: number): Shown | null {
    const track = this.tracks.get(id);
    if (track === undefined) return null;
    return this.shownIn(track, atMs - this.lag(track, atMs));
  }

  /** Adds a sample, if need be in place of the oldest ones. If even that is too much, the object is not followed until it changes again. */
  private add(track: Track, sample: Sample): void {
    const bytes = bytesOf(sample);
    while (track.samples.length > 0 && this.sampleBytes + bytes > SAMPLE_BYTES_MAX) this.forget(track, 1);
    if (this.sampleBytes + bytes > SAMPLE_BYTES_MAX) return;
    track.samples.push(sample);
    this.sampleBytes += bytes;
  }

  private forget(track: Track, count: number): void {
    for (let left = count; left > 0; left -= 1) {
      const sample = track.samples.shift();
      if (sample !== undefined) this.sampleBytes -= bytesOf(sample);
    }
  }

  private remove(id: number): void {
    const track = this.tracks.get(id);
    if (track !== undefined) this.forget(track, track.samples.length);
    this.tracks.delete(id);
  }

  private shownIn(track: Track, atMs: number): Shown | null {
    // Of the positions before the shown time, only the last is needed.
    const { samples } = track;
    let past = 0;
    while (past + 1 < samples.length && (samples[past + 1]?.atMs ?? Infinity) <= atMs) past += 1;
    this.forget(track, past);
    const [from, to] = samples;
    if (from === undefined) return null;
    const isTeleport = to !== undefined && Math.hypot(to.x - from.x, to.y - from.y) > this.teleportUnits;
    if (to === undefined || isTeleport || atMs <= from.atMs) {
      return { x: from.x, y: from.y, from: from.state, to: from.state, share: 0 };
    }
    const share = (atMs - from.atMs) / (to.atMs - from.atMs);
    const [x, y] = [from.x + (to.x - from.x) * share, from.y + (to.y - from.y) * share];
    return { x, y, from: from.state, to: to.state, share };
  }

  private get teleportUnits(): number {
    return this.options.teleportUnits ?? this.grid?.shape.cellUnits ?? Number.POSITIVE_INFINITY;
  }

  /** The delay of an object changes slowly, so that it does not jump. */
  private lag(track: Track, atMs: number): number {
    const passedMs = track.shownMs === null ? 0 : Math.max(0, atMs - track.shownMs);
    const wantedMs = (this.zoneTargetsMs[track.zone] ?? 0) - track.lagMs;
    track.lagMs += Math.max(-ZONE_SLEW_MAX * passedMs, Math.min(ZONE_SLEW_MAX * passedMs, wantedMs));
    track.shownMs = Math.max(atMs, track.shownMs ?? atMs);
    return track.lagMs;
  }

  /** An object whose cell waited for longer than the delay was shown where it was then. It goes on from there. */
  private resume(track: Track): void {
    const known = track.samples.at(-1);
    if (known === undefined || track.shownMs === null) return;
    const stoodMs = Math.max(0, track.shownMs - track.lagMs - known.atMs);
    track.lagMs = Math.max(track.lagMs, Math.min(this.options.delayMaxMs, track.lagMs + stoodMs));
  }

  /** Measures the difference between the interval of a zone's updates and the interval of snapshots. */
  private observeZones(snapshot: Snapshot, grid: Grid, updated: number, atMs: number): void {
    const { tick, base, waited = 0 } = snapshot;
    const { lastMs } = this;
    // A server that does not say that far cells have waited.
    const isLate = isIn(updated, FAR_ZONE) && waited === 0 && multipleOf(grid, tick) <= base;
    if (lastMs !== null && isLate) this.farLateTick = tick;
    for (const zone of ZONES) {
      const stoodMs = this.stoodUntil(snapshot, grid, zone, atMs);
      this.stoodMs[zone] = stoodMs;
      const needsMs = this.zoneNeedsMs[zone];
      if (lastMs === null || needsMs === undefined || !isIn(updated, zone)) continue;
      needsMs.push(Math.max(0, lastMs - stoodMs));
      this.zoneTargetsMs[zone] = Math.min(this.options.delayMaxMs, needsMs.covering(COVERED));
    }
  }

  /** Until when an object in this zone, as seen from the last view, had not changed. */
  private stoodUntil(snapshot: Snapshot, grid: Grid, zone: number, atMs: number): number {
    const { tick, base } = snapshot;
    if (base === 0) return atMs;
    const ticksPerSecond = (grid.shape.ticksPerSecond * (snapshot.ratePermille ?? FULL_RATE_PERMILLE)) / 1000;
    // After a longer time far cells were sent, but nothing had changed in them.
    const isPostponed = this.farLateTick > 0 && tick - this.farLateTick < FAR_LATE_S * ticksPerSecond
      && base - this.farTick < FAR_WAIT_TICKS;
    const farTick = isPostponed ? this.farTick : multipleOf(grid, base);
    const waited = waitTicks(snapshot, zone);
    const knownTick = waited !== null ? base - waited : zone === FAR_ZONE ? farTick : base;
    if (knownTick === base && this.lastMs !== null) return Math.min(this.lastMs, atMs);
    return atMs - ((tick - knownTick) / ticksPerSecond) * 1000;
  }

  /** What a delay needs besides the interval of a slowed room is kept, so that the delay follows the rate at once. */
  private measure(neededMs: number): void {
    this.needsMs.push(neededMs - this.slowedMs);
    const { delayMinMs, delayMaxMs } = this.options;
    const coveringMs = this.needsMs.covering(COVERED) + this.slowedMs + MARGIN_MS;
    this.targetMs = Math.min(delayMaxMs, Math.max(delayMinMs, coveringMs));
  }
}

function bytesOf({ state }: Sample): number {
  return BYTES_OF_SAMPLE + state.length;
}

function sampleOf({ x, y, state }: SeenObject, atMs: number): Sample {
  return { atMs, x, y, state };
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  return one === other || (one.length === other.length && one.every((byte, at) => byte === other[at]));
}

/** By how much the interval of ticks is longer than at full rate. */
function slowedMs({ snapshot: { ratePermille = FULL_RATE_PERMILLE } }: Changes, { shape: { ticksPerSecond } }: Grid): number {
  return (FULL_RATE_PERMILLE / ratePermille - 1) * (1_000 / ticksPerSecond);
}

/** The last tick up to this one at which far cells are due. */
function multipleOf({ shape: { farIntervalTicks } }: Grid, tick: number): number {
  return Math.floor(tick / farIntervalTicks) * farIntervalTicks;
}

/** Objects that only this player receives are in no cell, and do not wait. */
function zoneOf(grid: Grid, view: number, cell: number | null): number {
  return cell === null ? 0 : grid.zone(view, cell);
}

/** The zones that a snapshot updates, a bit for each. A cell in full may only have come into view. */
function updatedZones({ snapshot: { cells, view } }: Changes, grid: Grid): number {
  let zones = 0;
  for (const { cell, full } of cells) if (!full) zones |= 1 << grid.zone(view, cell);
  return zones;
}

function isIn(zones: number, zone: number): boolean {
  return ((zones >> zone) & 1) === 1;
}
