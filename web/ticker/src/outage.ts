/** One loss of the connection, from its start to the report of what was recovered. */

import type { ChannelReturn } from "./market";

export interface OutageReport {
  readonly publications: number;
  readonly channels: number;
  readonly missing: number;
  /** Channels that the server could not recover, refilled from history. */
  readonly incomplete: number;
  readonly restarted: boolean;
  readonly awayMs: number;
  /** Time from the reopened connection to the return of the last channel. */
  readonly recoveryMs: number;
}

export class Outage {
  private readonly returned = new Set<string>();
  private readonly incomplete = new Set<string>();
  private publications = 0;
  private missing = 0;
  private restarted = false;
  private backAtMs: number | null = null;

  constructor(
    readonly sinceMs: number,
    private readonly channels: number,
  ) {}

  /**
   * Called when the connection is open again. If it is lost once more before all channels are back, each channel must
   * return again, and the counts so far are kept.
   */
  back(nowMs: number): void {
    this.backAtMs = nowMs;
    this.returned.clear();
  }

  /** Records that one channel is back; returns the report once all are. */
  add(channel: ChannelReturn, nowMs: number): OutageReport | null {
    this.returned.add(channel.symbol);
    if (!channel.complete) this.incomplete.add(channel.symbol);
    this.publications += channel.recovered;
    this.missing += channel.missing;
    this.restarted ||= channel.restarted;
    if (this.returned.size < this.channels) return null;
    const backAtMs = this.backAtMs ?? nowMs;
    return {
      publications: this.publications,
      channels: this.channels,
      missing: this.missing,
      incomplete: this.incomplete.size,
      restarted: this.restarted,
      awayMs: backAtMs - this.sinceMs,
      recoveryMs: nowMs - backAtMs,
    };
  }
}
