/** The canvas: draws a frame of the player's view. */

import type { Changes, Place, Replica, SeenObject } from "@dunlin/room-client";
import { type Colours, colours, playerColour } from "../../arena/src/colours";
import { drawFog, drawGrid, drawGround } from "../../arena/src/ground";
import { MapCanvas } from "../../arena/src/map_canvas";
import { Names } from "../../arena/src/names";
import { drawBird } from "../../arena/src/sprites";
import { Walks } from "../../arena/src/walks";
import { LABEL, labelOf, RUNNER, runnerOf, SHOT, shotOf } from "./rules";

export interface TagFrame {
  readonly replica: Replica;
  /** The target of the camera: the player's own runner, or the runner that a spectator watches. */
  readonly me: Place;
  readonly isMine: boolean;
  readonly placeOf: (id: number) => Place | null;
  /** The direction of the next shot in radians; null without a mouse. */
  readonly aim: number | null;
  readonly nowMs: number;
}

/** Runners are never drawn smaller than this many pixels for a unit. */
const RUNNER_SCALE_MIN = 0.24;
const MARGIN_UNITS = 160;
/** Opacity of runners that do not take part. */
const DIMMED = 0.32;
const BURST_MS = 500;
const BURSTS_MAX = 32;

interface Burst extends Place {
  readonly sinceMs: number;
}

export class TagScene extends MapCanvas {
  private readonly names = new Names();
  private readonly walks = new Walks();
  private readonly points = new Map<number, number>();
  private bursts: Burst[] = [];

  /** Processes the changes of a snapshot. */
  observe({ added, changed, removed }: Changes): void {
    for (const seen of removed) {
      if (seen.kind === LABEL) {
        const { runner: player } = labelOf(seen);
        this.names.forget(player);
        this.points.delete(player);
      }
      if (seen.kind === RUNNER) this.walks.forget(seen.id);
    }
    for (const seen of [...added, ...changed.map(({ after }) => after)]) {
      if (seen.kind !== LABEL) continue;
      const { runner: player, name, score } = labelOf(seen);
      this.names.set(player, name);
      this.points.set(player, score);
    }
  }

  forget(): void {
    this.names.clear();
    this.walks.clear();
    this.points.clear();
    this.bursts = [];
    this.camera.cut();
  }

  /** The points of a runner in view. */
  pointsOf(player: number): number {
    return this.points.get(player) ?? 0;
  }

  /** Shows that a runner was tagged. */
  burst(place: Place, nowMs: number): void {
    this.bursts.push({ ...place, sinceMs: nowMs });
    if (this.bursts.length > BURSTS_MAX) this.bursts.shift();
  }

  draw(frame: TagFrame): void {
    const { grid } = frame.replica;
    if (grid === null) return;
    const { context, camera } = this;
    const paint = colours();
    this.begin(frame.me, grid, false, frame.nowMs);
    drawGround(context, camera, grid, paint);
    drawGrid(context, camera, grid, paint, false);
    if (frame.aim !== null && frame.isMine) this.drawAim(frame.me, frame.aim, paint);
    const runners = [...this.visible(frame, RUNNER)].map((seen) => {
      const isMe = seen.id === frame.replica.avatar && frame.isMine;
      return { seen, isMe, place: isMe ? frame.me : (frame.placeOf(seen.id) ?? seen) };
    });
    for (const { seen, isMe, place } of runners) this.drawRunner(seen, isMe, place, paint, frame.nowMs);
    for (const shot of this.visible(frame, SHOT)) this.drawShot(shot, frame.placeOf(shot.id) ?? shot, paint);
    this.drawBursts(frame.nowMs, paint);
    drawFog(context, camera, grid, frame.replica.view, paint, false);
    const named = runners.map(({ seen, isMe, place }) => ({ id: seen.id, place, isMe, colour: runnerOf(seen).colour }));
    this.names.draw(context, camera, named, frame.me, paint);
  }

  private *visible(frame: TagFrame, kind: number): Generator<SeenObject> {
    for (const seen of this.inView(frame.replica.objects(), MARGIN_UNITS)) {
      if (seen.kind === kind) yield seen;
    }
  }

  private drawRunner(seen: SeenObject, isMe: boolean, place: Place, paint: Colours, nowMs: number): void {
    const { context } = this;
    const { colour, condition } = runnerOf(seen);
    const walk = this.walks.moved(seen.id, place);
    this.at(place, () => {
      context.globalAlpha = condition === "Tagged" || condition === "Away" ? DIMMED : 1;
      // `drawBird` resets the transparency for its ring only, so the ring is drawn for a runner that takes part.
      drawBird(context, paint, colour, walk.heading, walk.stride, isMe && context.globalAlpha === 1);
      if (condition === "Safe") this.drawShield(paint, nowMs);
    }, Math.max(RUNNER_SCALE_MIN, this.camera.scale));
    context.globalAlpha = 1;
  }

  private drawShield(paint: Colours, nowMs: number): void {
    const { context } = this;
    context.strokeStyle = paint.gold;
    context.lineWidth = 5;
    context.setLineDash([14, 12]);
    context.lineDashOffset = nowMs / 30;
    context.beginPath();
    context.arc(0, 0, 58, 0, 2 * Math.PI);
    context.stroke();
    context.setLineDash([]);
  }

  private drawShot(seen: SeenObject, place: Place, paint: Colours): void {
    const { context } = this;
    const { colour, angle } = shotOf(seen);
    this.at(place, () => {
      context.rotate(angle);
      context.lineCap = "round";
      for (const [width, style] of [[18, paint.plate], [11, playerColour(colour)]] as const) {
        context.strokeStyle = style;
        context.lineWidth = width;
        context.beginPath();
        context.moveTo(-34, 0);
        context.lineTo(8, 0);
        context.stroke();
      }
    }, Math.max(RUNNER_SCALE_MIN, this.camera.scale));
  }

  private drawAim(from: Place, angle: number, paint: Colours): void {
    const { context } = this;
    this.at(from, () => {
      context.rotate(angle);
      context.strokeStyle = paint.far;
      context.lineWidth = 4;
      context.setLineDash([4, 26]);
      context.lineCap = "round";
      context.beginPath();
      context.moveTo(70, 0);
      context.lineTo(340, 0);
      context.stroke();
      context.setLineDash([]);
    });
  }

  private drawBursts(nowMs: number, paint: Colours): void {
    const { context } = this;
    this.bursts = this.bursts.filter(({ sinceMs }) => nowMs - sinceMs < BURST_MS);
    for (const burst of this.bursts) {
      const share = Math.max(0, (nowMs - burst.sinceMs) / BURST_MS);
      this.at(burst, () => {
        context.globalAlpha = 1 - share;
        context.strokeStyle = paint.gold;
        context.lineWidth = 9;
        context.lineCap = "round";
        for (let ray = 0; ray < 9; ray += 1) {
          const angle = (ray / 9) * 2 * Math.PI;
          const [inner, outer] = [24 + share * 50, 44 + share * 90];
          context.beginPath();
          context.moveTo(Math.cos(angle) * inner, Math.sin(angle) * inner);
          context.lineTo(Math.cos(angle) * outer, Math.sin(angle) * outer);
          context.stroke();
        }
      });
    }
    context.globalAlpha = 1;
  }
}
