/** The whole map in a corner, with the player, its view and the clue. */

import type { Grid, Place } from "@dunlin/room-client";
import { colours } from "./colours";
import type { Clue } from "./news";
import type { Trails } from "./trails";

const DENSITY = 2;

export class Minimap {
  private readonly context: CanvasRenderingContext2D | null;

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.context = canvas.getContext("2d");
  }

  draw(grid: Grid, view: number, me: Place, clue: Clue | null, trails: Trails, nowMs: number): void {
    const { context, canvas } = this;
    if (context === null || canvas.clientWidth === 0) return;
    const [width, height] = [canvas.clientWidth * DENSITY, canvas.clientHeight * DENSITY];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const paint = colours();
    const scale = Math.min(width / grid.widthUnits, height / grid.heightUnits);
    const at = (x: number, y: number): [number, number] => [
      x * scale + (width - grid.widthUnits * scale) / 2,
      y * scale + (height - grid.heightUnits * scale) / 2,
    ];
    context.clearRect(0, 0, width, height);
    context.fillStyle = paint.sandDark;
    context.fillRect(...at(0, 0), grid.widthUnits * scale, grid.heightUnits * scale);
    trails.drawOnMap(context, grid, at, paint);
    const { cellUnits, nearCells, farCells } = grid.shape;
    const { left, top, right, bottom } = grid.around(view, nearCells + farCells);
    const side = cellUnits * scale;
    context.globalAlpha = 0.22;
    context.fillStyle = paint.me;
    context.fillRect(...at(left * cellUnits, top * cellUnits), (right - left + 1) * side, (bottom - top + 1) * side);
    context.globalAlpha = 1;
    if (clue !== null) this.dot(at(clue.x, clue.y), 5 + 3 * Math.sin(nowMs / 180), paint.gold);
    this.dot(at(me.x, me.y), 6, paint.me);
  }

  private dot([x, y]: [number, number], radius: number, colour: string): void {
    const { context } = this;
    if (context === null) return;
    context.fillStyle = colour;
    context.beginPath();
    context.arc(x, y, Math.max(2, radius), 0, Math.PI * 2);
    context.fill();
  }
}
