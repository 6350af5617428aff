/** The publications of one channel in the order of their offsets, with a count of missing ones. */

import type { Tick } from "./contract";

export interface Point extends Tick {
  readonly offset: number;
  /** True for a publication that came by recovery instead of live. */
  readonly recovered: boolean;
}

export interface Position {
  readonly offset: number;
  readonly epoch: string;
}

export class Series {
  /** Oldest first, at most `size` points. */
  readonly points: Point[] = [];
  /** Missing offsets since the page was opened. */
  missing = 0;
  /** Publications whose offset had been seen already. */
  duplicates = 0;
  /** Publications whose offset was the expected one or was counted otherwise. */
  checked = 0;
  private epoch: string | null = null;
  /** The offset that the next publication must have; null before the first subscription. */
  private expected: number | null = null;
  /** The last offset seen before a failed recovery; later ones may be missing. */
  private brokenAfter: number | null = null;
  /** Top of the stream when the subscription began anew: history must reach at least to here. */
  private resumedAt = 0;

  constructor(private readonly size: number) {}

  get last(): Point | undefined {
    return this.points[this.points.length - 1];
  }

  /** Offset of the newest publication seen, or the position subscribed at when there was none. */
  get lastOffset(): number {
    return this.expected === null ? 0 : this.expected - 1;
  }

  /**
   * A subscription begins at `top` with nothing recovered: the first one, or one whose recovery
   * failed. `fill` must follow, so that what lies before `top` can be judged.
   */
  beginAt(top: Position): "first" | "resumed" | "restarted" {
    const outcome =
      this.epoch === null ? "first" : this.epoch === top.epoch ? "resumed" : "restarted";
    this.brokenAfter = outcome === "resumed" ? this.lastOffset : null;
    if (outcome === "restarted") this.points.length = 0;
    this.epoch = top.epoch;
    this.resumedAt = top.offset;
    this.expected = top.offset + 1;
    return outcome;
  }

  /** Adds a live or recovered publication. Returns false for a duplicate. */
  append(point: Point): boolean {
    this.checked += 1;
    if (this.expected !== null) {
      if (point.offset < this.expected) {
        this.duplicates += 1;
        return false;
      }
      this.missing += point.offset - this.expected;
    }
    this.expected = point.offset + 1;
    this.points.push(point);
    this.trim();
    return true;
  }

  /** Adds the stream's history after `beginAt`, oldest first, and counts missing offsets. */
  fill(history: readonly Point[]): void {
    const first = history[0]?.offset ?? this.resumedAt + 1;
    const last = history[history.length - 1]?.offset ?? first - 1;
    if (this.brokenAfter !== null) this.missing += Math.max(0, first - this.brokenAfter - 1);
    this.brokenAfter = null;
    this.missing += last - first + 1 - history.length;
    this.missing += history.length > 0 ? Math.max(0, this.resumedAt - last) : 0;
    this.checked += history.length;

    const byOffset = new Map(this.points.map((point) => [point.offset, point]));
    for (const point of history) {
      if (!byOffset.has(point.offset)) byOffset.set(point.offset, point);
    }
    const merged = [...byOffset.values()].sort((a, b) => a.offset - b.offset);
    this.points.splice(0, this.points.length, ...merged);
    this.trim();
  }

  private trim(): void {
    if (this.points.length > this.size) this.points.splice(0, this.points.length - this.size);
  }
}
