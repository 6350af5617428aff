/** The direction in which the player wants to go. Sends changes at a limited rate. */

/** The shortest interval between two inputs; changes in between are dropped. */
const INTERVAL_MS = 50;

export class Direction {
  private sent = { dx: 0, dy: 0 };
  private wished = { dx: 0, dy: 0 };
  private lastMs = 0;

  /** Whether the last sent direction is not a stop. */
  get isMoving(): boolean {
    return this.sent.dx !== 0 || this.sent.dy !== 0;
  }

  /** -127 to 127 on both axes. */
  set(dx: number, dy: number): void {
    this.wished = { dx, dy };
  }

  /** Resets the state to standing, after a stop was sent or in a new room. */
  clear(): void {
    this.sent = this.wished = { dx: 0, dy: 0 };
  }

  /** Passes a change to `send`, which returns whether it was sent. */
  flush(nowMs: number, send: (dx: number, dy: number) => boolean): void {
    const { dx, dy } = this.wished;
    if ((dx === this.sent.dx && dy === this.sent.dy) || nowMs - this.lastMs < INTERVAL_MS || !send(dx, dy)) return;
    this.sent = this.wished;
    this.lastMs = nowMs;
  }
}
