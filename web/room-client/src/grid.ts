/** The grid: the positions of cells, and the cells that a player sees. */

import type { GridShape } from "./snapshot.js";

export type Band = "near" | "far" | null;

/** The zone of the far cells. Near cells have the zones 0 to 2, the nearest first. */
export const FAR_ZONE = 3;

export class Grid {
  constructor(readonly shape: GridShape) {}

  /** The number of cells. */
  get length(): number {
    return this.shape.columns * this.shape.rows;
  }

  get widthUnits(): number {
    return this.shape.columns * this.shape.cellUnits;
  }

  get heightUnits(): number {
    return this.shape.rows * this.shape.cellUnits;
  }

  column(cell: number): number {
    return cell % this.shape.columns;
  }

  row(cell: number): number {
    return Math.floor(cell / this.shape.columns);
  }

  /** How often `cell` is updated for a player with the view `view`; null if the player does not see it. */
  band(view: number, cell: number): Band {
    const { nearCells, farCells } = this.shape;
    const distance = this.distance(view, cell);
    if (distance <= nearCells) return "near";
    return distance <= nearCells + farCells ? "far" : null;
  }

  /** The zone of a visible cell: cells that wait together if the server limits the player's bandwidth. */
  zone(view: number, cell: number): number {
    const { nearCells } = this.shape;
    const distance = this.distance(view, cell);
    if (distance <= Math.min(nearCells, 1)) return 0;
    if (distance <= Math.ceil(nearCells / 2)) return 1;
    return distance <= nearCells ? 2 : FAR_ZONE;
  }

  private distance(view: number, cell: number): number {
    return Math.max(
      Math.abs(this.column(view) - this.column(cell)),
      Math.abs(this.row(view) - this.row(cell)),
    );
  }

  /** The rectangle of cells within `reach` cells of `view`, in cells: both ends included. */
  around(view: number, reach: number): { left: number; top: number; right: number; bottom: number } {
    const { columns, rows } = this.shape;
    return {
      left: Math.max(0, this.column(view) - reach),
      top: Math.max(0, this.row(view) - reach),
      right: Math.min(columns - 1, this.column(view) + reach),
      bottom: Math.min(rows - 1, this.row(view) + reach),
    };
  }

  equals(shape: GridShape): boolean {
    const mine = this.shape;
    return (Object.keys(mine) as (keyof GridShape)[]).every((key) => mine[key] === shape[key]);
  }
}
