/** The last values of a measurement, in order of size as well, so that neither a copy nor a sort is needed to know a quantile. */
export class Recent {
  /** A ring: the next value replaces the oldest one. */
  private readonly values: Float64Array;
  private readonly sorted: Float64Array;
  private count = 0;
  private next = 0;

  constructor(capacity: number) {
    this.values = new Float64Array(capacity);
    this.sorted = new Float64Array(capacity);
  }

  push(value: number): void {
    const { values, sorted } = this;
    // The place of the oldest value becomes free, and moves to where the new one belongs.
    let free = this.count;
    if (this.count < values.length) this.count += 1;
    else free = Math.max(0, sorted.indexOf(values[this.next] ?? 0));
    values[this.next] = value;
    this.next = (this.next + 1) % values.length;
    for (; free > 0 && (sorted[free - 1] ?? 0) > value; free -= 1) sorted[free] = sorted[free - 1] ?? 0;
    for (; free + 1 < this.count && (sorted[free + 1] ?? 0) < value; free += 1) sorted[free] = sorted[free + 1] ?? 0;
    sorted[free] = value;
  }

  /** The value that covers this share of them; 0 if there is none. */
  covering(share: number): number {
    return this.count === 0 ? 0 : this.sorted[Math.min(this.count - 1, Math.floor(this.count * share))] ?? 0;
  }

  clear(): void {
    this.count = this.next = 0;
  }
}
