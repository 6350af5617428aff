/** The trail of one player and a heat map of all players, from the paths that the server has stored. */

import type { Grid } from "@dunlin/room-client";
import { byId } from "../../ticker/src/dom";
import type { Camera } from "./camera";
import type { Colours } from "./colours";
import { keepRecent, type PathPoint, type PathsAnswer, readAnswer } from "./path_answer";

const PATHS_PATH = "paths";
const EVERY_MS = 2_000;
const PAST_MS = 5 * 60_000;
const TRAIL_INTERVAL_MS = 200;
const HEAT_INTERVAL_MS = 2_000;
/** Squares of the heat map in each direction. */
const HEAT_SIDE = 96;
/** Maximum number of requested pages. More points would not change the picture. */
const PAGES_MAX = 16;
/** Blocks of other players are stored with this delay, so the newest points are requested again. */
const LATE_MS = 10_000;
/** A longer distance between two points is a jump, because the player has joined again. */
const JUMP_UNITS = 1_024;

export class Trails {
  /** The player whose trail is shown; null for the visitor's own. */
  private chosen: number | null = null;
  private shown = 0;
  private showTrail = false;
  private showHeat = false;
  private trail: PathPoint[] = [];
  private heat: PathPoint[] = [];
  private isAsking = false;
  private askedMs = -EVERY_MS;
  private readonly heatCanvas = document.createElement("canvas");

  /** `avatarOf` returns the visitor's own object. */
  constructor(private readonly avatarOf: () => number) {
    this.heatCanvas.width = this.heatCanvas.height = HEAT_SIDE;
    this.toggle("toggle-trails", () => (this.showTrail = !this.showTrail));
    this.toggle("toggle-heat", () => (this.showHeat = !this.showHeat));
  }

  /** Shows another player's trail. A second call with the same player shows the visitor's own. */
  choose(avatar: number): void {
    this.chosen = this.chosen === avatar ? null : avatar;
    if (!this.showTrail) byId("toggle-trails", HTMLButtonElement).click();
  }

  /** The player whose trail is shown; 0 for none. */
  get avatar(): number {
    return this.showTrail ? (this.chosen ?? this.avatarOf()) : 0;
  }

  /** How many points the trail and the heat map have. */
  get counts(): { trail: string; heat: string } {
    return { trail: String(this.trail.length), heat: String(this.heat.length) };
  }

  /** Requests the missing points from the server, if it is time. */
  update(grid: Grid, nowMs: number): void {
    if (!(this.showTrail || this.showHeat) || this.isAsking || nowMs - this.askedMs < EVERY_MS) return;
    if (document.visibilityState === "hidden") return;
    this.isAsking = true;
    this.askedMs = nowMs;
    void this.ask(grid).finally(() => (this.isAsking = false));
  }

  /** Drawn above the ground and below everything else. */
  drawHeat(canvas: CanvasRenderingContext2D, camera: Camera, grid: Grid): void {
    if (!this.showHeat || this.heat.length === 0) return;
    const [left, top] = camera.toScreen(0, 0);
    canvas.imageSmoothingEnabled = true;
    canvas.drawImage(this.heatCanvas, left, top, grid.widthUnits * camera.scale, grid.heightUnits * camera.scale);
  }

  drawTrail(canvas: CanvasRenderingContext2D, camera: Camera, paint: Colours): void {
    const { trail } = this;
    if (!this.showTrail || trail.length < 2) return;
    const now = trail.at(-1)?.[0] ?? 0;
    canvas.lineCap = canvas.lineJoin = "round";
    canvas.lineWidth = Math.max(2, 9 * camera.scale);
    canvas.strokeStyle = paint.gold;
    for (let index = 1; index < trail.length; index += 1) {
      const [[, fromX, fromY], [toMs, toX, toY]] = [trail[index - 1] as PathPoint, trail[index] as PathPoint];
      if (Math.hypot(toX - fromX, toY - fromY) > JUMP_UNITS) continue;
      canvas.globalAlpha = 0.15 + 0.7 * Math.max(0, 1 - (now - toMs) / PAST_MS);
      canvas.beginPath();
      canvas.moveTo(...camera.toScreen(fromX, fromY));
      canvas.lineTo(...camera.toScreen(toX, toY));
      canvas.stroke();
    }
    canvas.globalAlpha = 1;
  }

  /** Draws on the minimap; `at` converts positions. */
  drawOnMap(canvas: CanvasRenderingContext2D, grid: Grid, at: (x: number, y: number) => [number, number], paint: Colours): void {
    if (this.showHeat && this.heat.length > 0) {
      const [[left, top], [right, bottom]] = [at(0, 0), at(grid.widthUnits, grid.heightUnits)];
      canvas.drawImage(this.heatCanvas, left, top, right - left, bottom - top);
    }
    if (!this.showTrail) return;
    canvas.strokeStyle = paint.gold;
    canvas.lineWidth = 2.5;
    canvas.beginPath();
    this.trail.forEach(([, x, y], index) => {
      const [, lastX, lastY] = this.trail[index - 1] ?? [0, x, y];
      if (Math.hypot(x - lastX, y - lastY) > JUMP_UNITS) canvas.moveTo(...at(x, y));
      else canvas.lineTo(...at(x, y));
    });
    canvas.stroke();
  }

  private async ask(grid: Grid): Promise<void> {
    if (this.showTrail) {
      if (this.avatar !== this.shown) [this.trail, this.shown] = [[], this.avatar];
      const points = await this.points(this.trail, `&interval_ms=${TRAIL_INTERVAL_MS}&avatar=${this.shown}`);
      if (points === null) return;
      this.trail = points;
    }
    if (this.showHeat) {
      const points = await this.points(this.heat, `&interval_ms=${HEAT_INTERVAL_MS}`);
      if (points === null) return;
      this.heat = points;
      this.paintHeat(grid);
    }
  }

  /** The known points that are not too old, and newer ones; null if the server provides none. */
  private async points(known: readonly PathPoint[], query: string): Promise<PathPoint[] | null> {
    const sinceMs = Math.max(Date.now() - PAST_MS, (known.at(-1)?.[0] ?? 0) - LATE_MS);
    const points = known.filter(([timeMs]) => timeMs < sinceMs);
    let cursor: string | undefined = "";
    for (let page = 0; page < PAGES_MAX && cursor !== undefined; page += 1) {
      const answer: PathsAnswer | null = await this.page(`from_ms=${Math.floor(sinceMs)}${query}&cursor=${cursor}`);
      if (answer === null) return null;
      for (const path of answer.paths) for (const point of path) points.push(point);
      cursor = answer.more;
    }
    return keepRecent(points.sort(([a], [b]) => a - b), PAST_MS);
  }

  private async page(query: string): Promise<PathsAnswer | null> {
    try {
      const response = await fetch(`${PATHS_PATH}?${query}`, { cache: "no-store", signal: AbortSignal.timeout(10_000) });
      // If paths are not stored now, they will not be stored two seconds later either.
      if (response.status >= 400 && response.status < 500) this.off();
      return response.ok ? readAnswer(await response.json()) : null;
    } catch {
      return null;
    }
  }

  /** Counts points in squares; each colour means twice as many points as the previous one. */
  private paintHeat(grid: Grid): void {
    const context = this.heatCanvas.getContext("2d");
    if (context === null) return;
    const counts = new Float32Array(HEAT_SIDE * HEAT_SIDE);
    const square = (at: number, size: number) => Math.min(HEAT_SIDE - 1, Math.floor((at / size) * HEAT_SIDE));
    let most = 1;
    for (const [, x, y] of this.heat) {
      const index = square(y, grid.heightUnits) * HEAT_SIDE + square(x, grid.widthUnits);
      counts[index] = (counts[index] ?? 0) + 1;
      most = Math.max(most, counts[index] ?? 0);
    }
    const image = context.createImageData(HEAT_SIDE, HEAT_SIDE);
    counts.forEach((count, index) => {
      if (count === 0) return;
      const warmth = Math.log2(1 + count) / Math.log2(1 + most);
      image.data.set([225 - 20 * warmth, 150 - 120 * warmth, 40, 70 + 140 * warmth], index * 4);
    });
    context.putImageData(image, 0, 0);
  }

  private toggle(id: string, change: () => boolean): void {
    const button = byId(id, HTMLButtonElement);
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(change()));
      this.askedMs = -EVERY_MS;
    });
  }

  /** Shows the reason why the buttons have no effect. */
  private off(): void {
    this.showTrail = this.showHeat = false;
    for (const id of ["toggle-trails", "toggle-heat"]) {
      const button = byId(id, HTMLButtonElement);
      button.setAttribute("aria-pressed", "false");
      button.disabled = true;
    }
    byId("paths-off", HTMLElement).hidden = false;
  }
}
