/** The publications of one channel in the order of their offsets, with a count of missing ones. */

import type { Tick } from "./contract";

export interface Point extends Tick {
  readonly offset: number;
  /** True for a publication from a recovery instead of a live one. */
  readonly recovered: boolean;
}

export interface Position {
  readonly offset: number;
  readonly epoch: string;
}

/**
 * Offsets show the order and duplicates. The publisher's numbers show what is missing: in a cluster, offsets
 * have gaps, because channels share a stream.
 */
export class Series {
  /** Oldest first, at most `size` points. */
  readonly points: Point[] = [];
  /** Missing publications since the page was opened. */
  missing = 0;
  /** Publications whose offset had already been received. */
  duplicates = 0;
  /** Publications that were compared with the previous one. */
  checked = 0;
  private epoch: string | null = null;
  /** The highest received offset, or the position of the subscription. */
  private lastOffset = 0;
  /** Number of the newest publication; null if the next one cannot be compared yet. */
  private lastNumber: number | null = null;
  /** Between `beginAt` and `fill`: the first live publication, if any. */
  private filling: { first: Point | null } | null = null;

  constructor(private readonly size: number) {}

  get last(): Point | undefined {
    return this.points[this.points.length - 1];
  }

  /**
   * A subscription begins at `top` with nothing recovered: the first one, or one whose recovery failed. `fill` must
   * follow, so that publications before `top` can be checked.
   */
  beginAt(top: Position): "first" | "resumed" | "restarted" {
    const outcome =
      this.epoch === null ? "first" : this.epoch === top.epoch ? "resumed" : "restarted";
    if (outcome === "restarted") this.points.length = 0;
    if (outcome !== "resumed") this.lastNumber = null;
    this.epoch = top.epoch;
    this.lastOffset = top.offset;
    this.filling = { first: null };
    return outcome;
  }

  /** Adds a live or recovered publication. Returns false for a duplicate. */
  append(point: Point): boolean {
    this.checked += 1;
    if (point.offset <= this.lastOffset) {
      this.duplicates += 1;
      return false;
    }
    this.lastOffset = point.offset;
    // The history already contains it.
    if (this.last !== undefined && point.offset <= this.last.offset) return true;
    if (this.filling !== null && this.filling.first === null) this.filling.first = point;
    else this.missing += gap(this.lastNumber, point.number);
    this.lastNumber = point.number;
    this.points.push(point);
    this.trim();
    return true;
  }

  /** Adds the stream's history after `beginAt`, oldest first, and counts what is missing in it. */
  fill(history: readonly Point[]): void {
    const first = this.filling?.first ?? null;
    this.filling = null;
    this.checked += history.length;
    const known = new Map(this.points.map((point) => [point.offset, point]));
    const merged = new Map(known);
    for (const point of history) if (!merged.has(point.offset)) merged.set(point.offset, point);
    const ordered = [...merged.values()].sort((a, b) => a.offset - b.offset);
    ordered.forEach((point, index) => {
      const before = ordered[index - 1];
      if (before === undefined) return;
      // Two publications that were known before have already been compared, unless the second one began the
      // subscription.
      const isCompared = known.has(before.offset) && known.has(point.offset) && point !== first;
      if (!isCompared) this.missing += gap(before.number, point.number);
    });
    const newest = ordered[ordered.length - 1];
    if (newest !== undefined) this.lastNumber = newest.number;
    this.points.splice(0, this.points.length, ...ordered);
    this.trim();
  }

  private trim(): void {
    if (this.points.length > this.size) this.points.splice(0, this.points.length - this.size);
  }
}

/** Number of publications between two numbers. A publisher that restarts counts from 1, and then none is missing. */
function gap(before: number | null, number: number): number {
  return before === null ? 0 : Math.max(0, number - before - 1);
}
