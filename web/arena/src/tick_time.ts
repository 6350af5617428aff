/** The duration of the server's ticks, from the histogram in its metrics. */

const FAMILY = "dunlin_room_tick_seconds";
const QUANTILE = 0.99;
const SAMPLE = new RegExp(`^${FAMILY}_(bucket|sum|count)(?:\\{(.*)\\})? (\\S+)$`);
const BOUND = /(?:^|,)le="([^"]+)"/;

/** All ticks of all threads since the server started. */
export interface TickHistogram {
  readonly count: number;
  readonly sumS: number;
  /** The number of ticks up to each bound, by the bound in seconds. */
  readonly atMost: ReadonlyMap<number, number>;
}

export interface TickTime {
  readonly meanMs: number;
  /** 99 of 100 ticks took at most this; infinite beyond the last bound. */
  readonly p99Ms: number;
}

/** The histogram in a metrics page; `null` if there is none. */
export function tickHistogramOf(metrics: string): TickHistogram | null {
  let isThere = false;
  let count = 0;
  let sumS = 0;
  const atMost = new Map<number, number>();
  for (const line of metrics.split("\n")) {
    const [, part, labels = "", text] = SAMPLE.exec(line) ?? [];
    const value = Number(text);
    if (part === undefined || !Number.isFinite(value)) continue;
    if (part === "sum") {
      sumS += value;
    } else if (part === "count") {
      isThere = true;
      count += value;
    } else {
      const bound = BOUND.exec(labels)?.[1];
      const boundS = bound === "+Inf" ? Infinity : Number(bound);
      if (!Number.isNaN(boundS)) atMost.set(boundS, (atMost.get(boundS) ?? 0) + value);
    }
  }
  return isThere ? { count, sumS, atMost } : null;
}

/** The durations of the ticks between two reads; `null` if there were none, or if the server was restarted. */
export function tickTimeBetween(before: TickHistogram, after: TickHistogram): TickTime | null {
  const count = after.count - before.count;
  const sumS = after.sumS - before.sumS;
  if (count <= 0 || sumS < 0) return null;
  const bounds = [...after.atMost.keys()].sort((one, other) => one - other);
  const p99S = bounds.find((boundS) => (after.atMost.get(boundS) ?? 0) - (before.atMost.get(boundS) ?? 0) >= count * QUANTILE);
  return { meanMs: (sumS / count) * 1000, p99Ms: (p99S ?? Infinity) * 1000 };
}
