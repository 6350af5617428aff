/** The runner of this page: sends its inputs and predicts its position. */

import type { Changes, Place, Room } from "@dunlin/room-client";
import { Direction } from "../../arena/src/direction";
import { Predicted } from "../../arena/src/predicted";
import { encodeTagInput, RELOAD_MS, type RunnerState, runningOn, runnerOf, type TagInput } from "./rules";

export class Me {
  private readonly predicted: Predicted<RunnerState, TagInput>;
  private readonly direction = new Direction();
  private lastShotMs = Number.NEGATIVE_INFINITY;

  constructor(private readonly room: Room) {
    this.predicted = new Predicted(room, runningOn, encodeTagInput);
  }

  get state(): RunnerState | null {
    return this.predicted.state;
  }

  forget(): void {
    this.predicted.forget();
    this.direction.clear();
  }

  /** Processes a snapshot. */
  observe(changes: Changes): void {
    const { replica } = this.room;
    const avatar = replica.object(replica.avatar);
    if (avatar === undefined) return;
    const { vx, vy, condition } = runnerOf(avatar);
    this.predicted.reconcile(changes, { x: avatar.x, y: avatar.y, vx, vy, condition });
  }

  /** The shown position in the frame at `nowMs`; null before the runner is in the world. */
  frame(nowMs: number): Place | null {
    this.direction.flush(nowMs, (dx, dy) => this.predicted.send({ kind: "run", dx, dy }));
    return this.predicted.frame(nowMs);
  }

  /** Changes the direction; -127 to 127 on both axes. */
  run(dx: number, dy: number): void {
    this.direction.set(dx, dy);
  }

  /** Shoots in a direction. `shownMs` is the server time that the page shows. The server judges the shot at this time. */
  shoot(angle: number, shownMs: number, nowMs: number): void {
    if (nowMs - this.lastShotMs < RELOAD_MS) return;
    if (this.predicted.send({ kind: "shoot", seenTick: this.room.replica.tickAt(shownMs), angle })) this.lastShotMs = nowMs;
  }
}
