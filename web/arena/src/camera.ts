/** The part of the map that the canvas shows. */

import type { Grid, Place } from "@dunlin/room-client";

/** Units along the shorter side of the canvas. */
const UNITS_ACROSS = 1_650;
const SCALE_MIN = 0.27;
const SCALE_MAX = 0.75;
/** Margin around the view in cells, when the whole view is shown. */
const MARGIN_CELLS = 0.7;
const HALF_LIFE_MS = 90;
/** How far the canvas shows what is beyond the map, in pixels: as much as the buttons in its corners cover. */
const BEYOND_PX = 90;

export class Camera {
  /** Size of the canvas in CSS pixels. */
  width = 1;
  height = 1;
  /** Pixels for a unit. */
  scale = SCALE_MIN;
  private x = 0;
  private y = 0;
  private isSet = false;

  /** Follows `to`; `whole` shows the whole view. */
  follow(to: Place, grid: Grid, whole: boolean, passedMs: number): void {
    const wanted = whole ? this.scaleOfView(grid) : this.scaleOfPlay();
    const left = this.isSet ? 0.5 ** (passedMs / HALF_LIFE_MS) : 0;
    this.scale = wanted + (this.scale - wanted) * left;
    this.x = this.along(to.x, grid.widthUnits, this.width);
    this.y = this.along(to.y, grid.heightUnits, this.height);
    this.isSet = true;
  }

  /** Jumps to the next position instead of moving there. */
  cut(): void {
    this.isSet = false;
  }

  toScreen(x: number, y: number): [number, number] {
    return [(x - this.x) * this.scale + this.width / 2, (y - this.y) * this.scale + this.height / 2];
  }

  readonly toMap = (x: number, y: number): Place => ({
    x: (x - this.width / 2) / this.scale + this.x,
    y: (y - this.height / 2) / this.scale + this.y,
  });

  /** The visible rectangle in units, with a margin. */
  bounds(marginUnits: number): { left: number; top: number; right: number; bottom: number } {
    const { x: left, y: top } = this.toMap(0, 0);
    const { x: right, y: bottom } = this.toMap(this.width, this.height);
    return { left: left - marginUnits, top: top - marginUnits, right: right + marginUnits, bottom: bottom + marginUnits };
  }

  /** The middle of the canvas on one axis: the wanted one, unless little of the map would be on one side of it. */
  private along(wanted: number, mapUnits: number, pixels: number): number {
    const half = (pixels / 2 - BEYOND_PX) / this.scale;
    // A map that is smaller than the canvas is in its middle.
    return half * 2 >= mapUnits ? mapUnits / 2 : Math.min(Math.max(wanted, half), mapUnits - half);
  }

  private scaleOfPlay(): number {
    return Math.min(SCALE_MAX, Math.max(SCALE_MIN, Math.min(this.width, this.height) / UNITS_ACROSS));
  }

  private scaleOfView(grid: Grid): number {
    const { nearCells, farCells, cellUnits, columns, rows } = grid.shape;
    const cells = Math.min(2 * (nearCells + farCells + MARGIN_CELLS) + 1, Math.max(columns, rows) + 2 * MARGIN_CELLS);
    return Math.min(this.width, this.height) / (cells * cellUnits);
  }
}
