/** A canvas that shows a part of a map. Its size follows the page, and its camera follows a position. */

import type { Grid, Place } from "@dunlin/room-client";
import { Camera } from "./camera";

/** A longer pause between two frames moves the camera no further. */
const PAUSE_MS_MAX = 250;
const DENSITY_MAX = 2;

export class MapCanvas {
  readonly camera = new Camera();
  protected readonly context: CanvasRenderingContext2D;
  private lastMs = 0;

  constructor(private readonly canvas: HTMLCanvasElement) {
    const context = canvas.getContext("2d", { alpha: false });
    if (context === null) throw new Error("this browser has no canvas");
    this.context = context;
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
  }

  /** Begins a frame in CSS pixels, and moves the camera toward `to`. `whole` shows the whole view. */
  protected begin(to: Place, grid: Grid, whole: boolean, nowMs: number): void {
    this.camera.follow(to, grid, whole, Math.min(PAUSE_MS_MAX, Math.max(0, nowMs - this.lastMs)));
    this.lastMs = nowMs;
    const density = this.canvas.width / this.camera.width;
    this.context.setTransform(density, 0, 0, density, 0, 0);
  }

  /** The positions that are visible, or at most `margin` units outside. */
  protected *inView<P extends Place>(places: Iterable<P>, margin: number): Generator<P> {
    const { left, top, right, bottom } = this.camera.bounds(margin);
    for (const place of places) {
      if (place.x >= left && place.x <= right && place.y >= top && place.y <= bottom) yield place;
    }
  }

  /** Draws with a position as the origin. */
  protected at(place: Place, draw: () => void, scale = this.camera.scale): void {
    const [x, y] = this.camera.toScreen(place.x, place.y);
    this.context.save();
    this.context.translate(x, y);
    this.context.scale(scale, scale);
    draw();
    this.context.restore();
  }

  private resize(): void {
    const density = Math.min(DENSITY_MAX, devicePixelRatio);
    this.camera.width = Math.max(1, this.canvas.clientWidth);
    this.camera.height = Math.max(1, this.canvas.clientHeight);
    this.canvas.width = Math.round(this.camera.width * density);
    this.canvas.height = Math.round(this.camera.height * density);
  }
}
