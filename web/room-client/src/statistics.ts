/** Bandwidth and latency of a room, over the last second. */

import type { Snapshot } from "./snapshot.js";

export interface Figures {
  readonly snapshotsPerSecond: number;
  /** Ticks of the room per second. */
  readonly ticksPerSecond: number;
  /** Bytes of snapshots; with a `SocketMeter`, all bytes on the socket. Null if unknown, in JSON without a meter. */
  readonly bytesPerSecond: number | null;
  /** Ticks between the last snapshot and its base: 1 if nothing was skipped; 0 for a full snapshot. */
  readonly baseAgeTicks: number;
  /** Ticks without a snapshot because this client was behind. Counted since the join. */
  readonly skippedTicks: number;
  readonly fullSnapshots: number;
  /** The 95th percentile of the snapshots' delay relative to the shortest latency. */
  readonly jitterMs: number;
  /** From sending an input until a snapshot acknowledged it; null before the first. Smoothed. */
  readonly roundTripMs: number | null;
}

const WINDOW_MS = 1_000;
const ARRIVALS_MAX = 512;
const ROUND_TRIP_WEIGHT = 0.2;

interface Arrival {
  readonly atMs: number;
  readonly ticks: number;
  readonly bytes: number;
  readonly lateMs: number;
}

export class Statistics {
  private arrivals: Arrival[] = [];
  private sinceMs: number | null = null;
  private lastTick = 0;
  private roundTripMs: number | null = null;
  private baseAgeTicks = 0;
  private skippedTicks = 0;
  private fullSnapshots = 0;

  /** A snapshot arrived. `bytes` is the number of bytes since the last one; null if unknown. */
  arrived(snapshot: Snapshot, bytes: number | null, lateMs: number, nowMs: number): void {
    // Counting starts with the first snapshot, without its own bytes.
    if (this.sinceMs === null) this.sinceMs = nowMs;
    else this.arrivals.push({ atMs: nowMs, ticks: snapshot.tick - this.lastTick, bytes: bytes ?? Number.NaN, lateMs });
    this.lastTick = snapshot.tick;
    if (this.arrivals.length > ARRIVALS_MAX) this.arrivals.shift();
    this.baseAgeTicks = snapshot.base === 0 ? 0 : snapshot.tick - snapshot.base;
    if (snapshot.base === 0) this.fullSnapshots += 1;
    else this.skippedTicks += this.baseAgeTicks - 1;
  }

  /** Records the time from sending an input to the snapshot that acknowledged it. */
  acknowledged(tookMs: number): void {
    this.roundTripMs = this.roundTripMs === null ? tookMs : this.roundTripMs + (tookMs - this.roundTripMs) * ROUND_TRIP_WEIGHT;
  }

  figures(nowMs: number): Figures {
    this.arrivals = this.arrivals.filter(({ atMs }) => atMs > nowMs - WINDOW_MS);
    const spanMs = Math.min(WINDOW_MS, nowMs - (this.sinceMs ?? nowMs));
    const perSecond = (amount: number) => (spanMs > 0 ? (amount * 1000) / spanMs : 0);
    const sum = (of: (arrival: Arrival) => number) => this.arrivals.reduce((total, arrival) => total + of(arrival), 0);
    const bytes = sum((arrival) => arrival.bytes);
    const late = this.arrivals.map(({ lateMs }) => lateMs).sort((a, b) => a - b);
    return {
      snapshotsPerSecond: perSecond(this.arrivals.length),
      ticksPerSecond: perSecond(sum(({ ticks }) => ticks)),
      bytesPerSecond: Number.isNaN(bytes) ? null : perSecond(bytes),
      baseAgeTicks: this.baseAgeTicks,
      skippedTicks: this.skippedTicks,
      fullSnapshots: this.fullSnapshots,
      jitterMs: late[Math.min(late.length - 1, Math.floor(late.length * 0.95))] ?? 0,
      roundTripMs: this.roundTripMs,
    };
  }

  clear(): void {
    this.arrivals = [];
    this.sinceMs = null;
    this.roundTripMs = null;
    this.baseAgeTicks = this.skippedTicks = this.fullSnapshots = 0;
  }
}
