/** The player of this page: sends its inputs and predicts its position. */

import { type Changes, type Place, Prediction, type Room, Smoothing } from "@dunlin/room-client";
import { encodeHuntInput, type HuntInput, playerOf, PURSE, type Purse, purseOf, type Walker, walkingOn } from "./hunt";

/** The shortest interval between two walk inputs; changes in between are dropped. */
const WALK_INTERVAL_MS = 50;

export class Me {
  purse: Purse | null = null;
  private prediction: Prediction<Walker, HuntInput> | null = null;
  private readonly smoothing = new Smoothing();
  private lastTick = 0;
  private lastFrameMs = 0;
  private lastWalkMs = 0;
  private walking = { dx: 0, dy: 0 };
  private wished = { dx: 0, dy: 0 };

  constructor(private readonly room: Room) {}

  /** How many ticks the page is ahead of the snapshots. */
  get aheadTicks(): number {
    return this.prediction?.aheadTicks ?? 0;
  }

  /** What the player is doing, predicted. */
  get state(): Walker | null {
    return this.prediction?.now ?? null;
  }

  forget(): void {
    this.prediction = null;
    this.purse = null;
    this.walking = this.wished = { dx: 0, dy: 0 };
  }

  /** Takes in a snapshot. */
  observe(changes: Changes): void {
    const { replica } = this.room;
    for (const seen of changes.added) if (seen.kind === PURSE) this.purse = purseOf(seen);
    for (const { after } of changes.changed) if (after.kind === PURSE) this.purse = purseOf(after);
    const avatar = replica.object(replica.avatar);
    const { grid } = replica;
    if (avatar === undefined || grid === null) return;
    if (this.prediction === null || changes.full) {
      this.prediction = new Prediction(walkingOn(grid));
      this.lastTick = Math.floor(this.room.tickNow());
    }
    this.pass();
    const before = this.place();
    const { vx, vy, doing } = playerOf(avatar);
    const state = { x: avatar.x, y: avatar.y, vx, vy, doing, energy: this.purse?.energy ?? 0 };
    this.prediction.reconcile(state, replica.tick, replica.ack);
    const after = this.place();
    if (before !== null && after !== null) this.smoothing.corrected(before, after);
  }

  /** The shown position in the frame at `nowMs`; null before the player is in the world. */
  frame(nowMs: number): Place | null {
    this.flush(nowMs);
    this.pass();
    const place = this.place();
    if (place === null) return null;
    const shown = this.smoothing.show(place, Math.min(1_000, Math.max(0, nowMs - this.lastFrameMs)));
    this.lastFrameMs = nowMs;
    return shown;
  }

  /** Changes the walking direction; -127 to 127 on both axes. */
  walk(dx: number, dy: number): void {
    this.wished = { dx, dy };
  }

  dig(): void {
    const still = { dx: 0, dy: 0 };
    // Also stops the prediction: if the server refuses the dig for lack of energy, the walk has ended as well.
    if ((this.walking.dx !== 0 || this.walking.dy !== 0) && !this.send({ kind: "walk", ...still })) return;
    this.walking = this.wished = still;
    this.send({ kind: "dig" });
  }

  wave(emote: number): void {
    this.send({ kind: "wave", emote });
  }

  private flush(nowMs: number): void {
    const { dx, dy } = this.wished;
    if (dx === this.walking.dx && dy === this.walking.dy) return;
    if (nowMs - this.lastWalkMs < WALK_INTERVAL_MS) return;
    if (!this.send({ kind: "walk", dx, dy })) return;
    this.walking = this.wished;
    this.lastWalkMs = nowMs;
  }

  private send(input: HuntInput): boolean {
    if (this.room.state !== "joined" || this.prediction === null) return false;
    this.prediction.input(this.room.send(encodeHuntInput(input)), input);
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
