/** Reads the server's metrics while the page is visible. */

import { tickHistogramOf, type TickHistogram, tickTimeBetween, type TickTime } from "./tick_time";

const METRICS_PATH = "/metrics";
const EVERY_MS = 2_000;

export class MetricsWatch {
  /** The durations of the ticks between the last two reads; `null` if the metrics cannot be read. */
  tickTime: TickTime | null = null;
  private before: TickHistogram | null = null;
  private readonly timer: number;

  /** `isWanted` returns whether the figures are needed. */
  constructor(private readonly isWanted: () => boolean) {
    this.timer = setInterval(() => void this.look(), EVERY_MS);
  }

  private async look(): Promise<void> {
    if (document.visibilityState === "hidden" || !this.isWanted()) {
      this.note(null);
      return;
    }
    try {
      const answer = await fetch(METRICS_PATH, { cache: "no-store", signal: AbortSignal.timeout(EVERY_MS) });
      // A server that does not serve its metrics will not serve them two seconds later.
      if (answer.status >= 400 && answer.status < 500) clearInterval(this.timer);
      this.note(answer.ok ? tickHistogramOf(await answer.text()) : null);
    } catch {
      this.note(null);
    }
  }

  private note(now: TickHistogram | null): void {
    this.tickTime = this.before === null || now === null ? null : tickTimeBetween(this.before, now);
    this.before = now;
  }
}
