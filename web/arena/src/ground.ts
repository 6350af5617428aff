/** The ground, and the shading outside the view. */

import type { Grid } from "@dunlin/room-client";
import type { Camera } from "./camera";
import type { Colours } from "./colours";

type Canvas = CanvasRenderingContext2D;

const TUFTS_PER_CELL = 6;
/** Below this scale, tufts of grass are too small to be drawn. */
const TUFT_SCALE_MIN = 0.16;

export function drawGround(canvas: Canvas, camera: Camera, grid: Grid, colours: Colours): void {
  canvas.fillStyle = colours.water;
  canvas.fillRect(0, 0, camera.width, camera.height);
  const [left, top] = camera.toScreen(0, 0);
  const [width, height] = [grid.widthUnits * camera.scale, grid.heightUnits * camera.scale];
  canvas.fillStyle = colours.sandDark;
  canvas.beginPath();
  canvas.roundRect(left - 10, top - 10, width + 20, height + 20, 22);
  canvas.fill();
  canvas.fillStyle = colours.sand;
  canvas.beginPath();
  canvas.roundRect(left, top, width, height, 14);
  canvas.fill();
  if (camera.scale >= TUFT_SCALE_MIN) drawTufts(canvas, camera, grid, colours);
}

function drawTufts(canvas: Canvas, camera: Camera, grid: Grid, colours: Colours): void {
  // A fixed square size, because the grid of a world may have only one cell.
  const side = 512;
  const { left, top, right, bottom } = camera.bounds(0);
  canvas.strokeStyle = colours.tuft;
  canvas.lineWidth = Math.max(1, 4.5 * camera.scale);
  canvas.lineCap = "round";
  canvas.beginPath();
  for (let row = Math.max(0, Math.floor(top / side)); row * side < Math.min(bottom, grid.heightUnits); row += 1) {
    for (let column = Math.max(0, Math.floor(left / side)); column * side < Math.min(right, grid.widthUnits); column += 1) {
      let seed = (column * 73_856_093) ^ (row * 19_349_663);
      for (let tuft = 0; tuft < TUFTS_PER_CELL; tuft += 1) {
        seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
        const x = column * side + 20 + (seed % (side - 40));
        const y = row * side + 20 + ((seed >>> 12) % (side - 40));
        if (x > grid.widthUnits || y > grid.heightUnits) continue;
        const [sx, sy] = camera.toScreen(x, y);
        const blade = 15 * camera.scale;
        for (const lean of [-0.7, 0, 0.7]) {
          canvas.moveTo(sx, sy);
          canvas.lineTo(sx + lean * blade, sy - blade * (lean === 0 ? 1.1 : 0.8));
        }
      }
    }
  }
  canvas.stroke();
}

/** The grid's lines; with the numbers of the cells, if `isNumbered`. */
export function drawGrid(canvas: Canvas, camera: Camera, grid: Grid, colours: Colours, isNumbered = true): void {
  const { cellUnits, columns, rows } = grid.shape;
  const { left, top, right, bottom } = camera.bounds(0);
  const first = { column: Math.max(0, Math.floor(left / cellUnits)), row: Math.max(0, Math.floor(top / cellUnits)) };
  const last = { column: Math.min(columns, Math.ceil(right / cellUnits)), row: Math.min(rows, Math.ceil(bottom / cellUnits)) };
  canvas.strokeStyle = colours.line;
  canvas.lineWidth = 1;
  canvas.beginPath();
  for (let column = first.column; column <= last.column; column += 1) {
    const [x] = camera.toScreen(column * cellUnits, 0);
    canvas.moveTo(Math.round(x) + 0.5, camera.toScreen(0, first.row * cellUnits)[1]);
    canvas.lineTo(Math.round(x) + 0.5, camera.toScreen(0, last.row * cellUnits)[1]);
  }
  for (let row = first.row; row <= last.row; row += 1) {
    const [, y] = camera.toScreen(0, row * cellUnits);
    canvas.moveTo(camera.toScreen(first.column * cellUnits, 0)[0], Math.round(y) + 0.5);
    canvas.lineTo(camera.toScreen(last.column * cellUnits, 0)[0], Math.round(y) + 0.5);
  }
  canvas.stroke();
  if (!isNumbered) return;
  canvas.fillStyle = colours.lineText;
  canvas.font = "11px ui-monospace, monospace";
  canvas.textAlign = "left";
  canvas.textBaseline = "top";
  for (let row = first.row; row < last.row; row += 1) {
    for (let column = first.column; column < last.column; column += 1) {
      const [x, y] = camera.toScreen(column * cellUnits, row * cellUnits);
      canvas.fillText(String(row * columns + column), x + 5, y + 5);
    }
  }
}

/** A rectangle of whole cells on the canvas. */
function rectangle(camera: Camera, grid: Grid, view: number, reach: number): [number, number, number, number] {
  const { cellUnits } = grid.shape;
  const { left, top, right, bottom } = grid.around(view, reach);
  const [x, y] = camera.toScreen(left * cellUnits, top * cellUnits);
  const side = cellUnits * camera.scale;
  return [x, y, (right - left + 1) * side, (bottom - top + 1) * side];
}

/** Shades what the player does not see. `outlined` also draws the two borders of the view. */
export function drawFog(canvas: Canvas, camera: Camera, grid: Grid, view: number, colours: Colours, outlined: boolean): void {
  const { nearCells, farCells } = grid.shape;
  const far = rectangle(camera, grid, view, nearCells + farCells);
  canvas.fillStyle = colours.fog;
  canvas.beginPath();
  canvas.rect(0, 0, camera.width, camera.height);
  canvas.rect(...far);
  canvas.fill("evenodd");
  if (!outlined) return;
  canvas.lineWidth = 2;
  canvas.strokeStyle = colours.far;
  canvas.setLineDash([7, 6]);
  canvas.strokeRect(...far);
  canvas.setLineDash([]);
  canvas.strokeStyle = colours.near;
  canvas.strokeRect(...rectangle(camera, grid, view, nearCells));
  canvas.globalAlpha = 0.09;
  canvas.fillStyle = colours.near;
  canvas.fillRect(...rectangle(camera, grid, view, 0));
  canvas.globalAlpha = 1;
}
