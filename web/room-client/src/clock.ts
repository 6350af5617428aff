/**
 * An estimate of the server's clock. Every snapshot contains the time of its tick; the snapshot with the shortest latency
 * gives the best estimate. The estimate is behind the server's clock by that latency. This is intended, since no
 * snapshot arrives earlier.
 */

/** How long the shortest latency is remembered: at most twice this time, because the clocks may drift apart. */
const WINDOW_MS = 5_000;
/** A larger difference is not latency: a clock was set, or the machine slept. */
const JUMP_MS = 10_000;

export class Clock {
  private windowStartMs = 0;
  private leastMs = Number.POSITIVE_INFINITY;
  private leastBeforeMs = Number.POSITIVE_INFINITY;

  /** Whether a snapshot has arrived. */
  get isSet(): boolean {
    return Number.isFinite(Math.min(this.leastMs, this.leastBeforeMs));
  }

  /** The difference of the server's clock to the local clock, in milliseconds. */
  get offsetMs(): number {
    return this.isSet ? -Math.min(this.leastMs, this.leastBeforeMs) : 0;
  }

  /** A snapshot of server time `timeUs` arrived at local time `nowMs`. Returns its delay relative to the shortest latency. */
  observe(timeUs: number, nowMs: number): number {
    const wayMs = nowMs - timeUs / 1000;
    if (this.isSet && Math.abs(wayMs + this.offsetMs) > JUMP_MS) this.clear();
    if (nowMs - this.windowStartMs >= WINDOW_MS || nowMs < this.windowStartMs) {
      this.leastBeforeMs = nowMs - this.windowStartMs < 2 * WINDOW_MS ? this.leastMs : Number.POSITIVE_INFINITY;
      this.leastMs = Number.POSITIVE_INFINITY;
      this.windowStartMs = nowMs;
    }
    this.leastMs = Math.min(this.leastMs, wayMs);
    return wayMs + this.offsetMs;
  }

  /** The server's time in milliseconds since 1970 when the local clock says `nowMs`. */
  serverTimeMs(nowMs: number): number {
    return nowMs + this.offsetMs;
  }

  clear(): void {
    this.leastMs = this.leastBeforeMs = Number.POSITIVE_INFINITY;
  }
}
