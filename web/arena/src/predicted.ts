/** The player's own object, predicted: sends inputs, and shows the position that the server will confirm. */

import { type Changes, type Grid, type Place, Prediction, type Room, type Rules, Smoothing } from "@dunlin/room-client";

export class Predicted<State extends Place, Input> {
  private prediction: Prediction<State, Input> | null = null;
  private readonly smoothing = new Smoothing();
  private lastTick = 0;
  private lastFrameMs = 0;

  constructor(
    private readonly room: Room,
    private readonly rulesOn: (grid: Grid) => Rules<State, Input>,
    private readonly encode: (input: Input) => Uint8Array,
  ) {}

  /** How many ticks the page is ahead of the snapshots. */
  get aheadTicks(): number {
    return this.prediction?.aheadTicks ?? 0;
  }

  /** The predicted state; null before the player is in the world. */
  get state(): State | null {
    return this.prediction?.now ?? null;
  }

  forget(): void {
    this.prediction = null;
  }

  /** Processes a snapshot, in which the player had this state. */
  reconcile({ full }: Changes, state: State): void {
    const { replica } = this.room;
    const { grid } = replica;
    if (grid === null) return;
    if (this.prediction === null || full) {
      this.prediction = new Prediction(this.rulesOn(grid));
      this.lastTick = Math.floor(this.room.tickNow());
    }
    this.pass();
    const before = this.place();
    this.prediction.reconcile(state, replica.tick, replica.ack);
    const after = this.place();
    if (before !== null && after !== null) this.smoothing.corrected(before, after);
  }

  /** The shown position in the frame at `nowMs`; null before the player is in the world. */
  frame(nowMs: number): Place | null {
    this.pass();
    const place = this.place();
    if (place === null) return null;
    const shown = this.smoothing.show(place, Math.min(1_000, Math.max(0, nowMs - this.lastFrameMs)));
    this.lastFrameMs = nowMs;
    return shown;
  }

  /** Sends an input; returns whether the player is in the room. */
  send(input: Input): boolean {
    if (this.room.state !== "joined" || this.prediction === null) return false;
    this.prediction.input(this.room.send(this.encode(input)), input);
    return true;
  }

  /** Advances the prediction to the current tick of the server's clock. */
  private pass(): void {
    const tick = Math.floor(this.room.tickNow());
    if (tick <= this.lastTick) return;
    this.prediction?.advance(tick - this.lastTick);
    this.lastTick = tick;
  }

  private place(): Place | null {
    const { before, now } = this.prediction ?? { before: null, now: null };
    if (before === null || now === null) return null;
    const share = Math.min(1, Math.max(0, this.room.tickNow() - this.lastTick));
    return { x: before.x + (now.x - before.x) * share, y: before.y + (now.y - before.y) * share };
  }
}
