/** The player of this page: sends its inputs and predicts its position. */

import type { Changes, Place, Room } from "@dunlin/room-client";
import { Direction } from "./direction";
import { encodeHuntInput, type HuntInput, playerOf, PURSE, type Purse, purseOf, type Walker, walkingOn } from "./hunt";
import { Predicted } from "./predicted";

export class Me {
  purse: Purse | null = null;
  private readonly predicted: Predicted<Walker, HuntInput>;
  private readonly direction = new Direction();

  constructor(private readonly room: Room) {
    this.predicted = new Predicted(room, walkingOn, encodeHuntInput);
  }

  /** How many ticks the page is ahead of the snapshots. */
  get aheadTicks(): number {
    return this.predicted.aheadTicks;
  }

  /** The predicted action of the player. */
  get state(): Walker | null {
    return this.predicted.state;
  }

  forget(): void {
    this.predicted.forget();
    this.purse = null;
    this.direction.clear();
  }

  /** Processes a snapshot. */
  observe(changes: Changes): void {
    const { replica } = this.room;
    for (const seen of changes.added) if (seen.kind === PURSE) this.purse = purseOf(seen);
    for (const { after } of changes.changed) if (after.kind === PURSE) this.purse = purseOf(after);
    const avatar = replica.object(replica.avatar);
    if (avatar === undefined) return;
    const { vx, vy, doing } = playerOf(avatar);
    this.predicted.reconcile(changes, { x: avatar.x, y: avatar.y, vx, vy, doing, energy: this.purse?.energy ?? 0 });
  }

  /** The shown position in the frame at `nowMs`; null before the player is in the world. */
  frame(nowMs: number): Place | null {
    this.direction.flush(nowMs, (dx, dy) => this.predicted.send({ kind: "walk", dx, dy }));
    return this.predicted.frame(nowMs);
  }

  /** Changes the walking direction; -127 to 127 on both axes. */
  walk(dx: number, dy: number): void {
    this.direction.set(dx, dy);
  }

  dig(): void {
    // Also stops the prediction: if the server refuses the dig for lack of energy, the walk has ended as well.
    if (this.direction.isMoving && !this.predicted.send({ kind: "walk", dx: 0, dy: 0 })) return;
    this.direction.clear();
    this.predicted.send({ kind: "dig" });
  }

  wave(emote: number): void {
    this.predicted.send({ kind: "wave", emote });
  }
}
