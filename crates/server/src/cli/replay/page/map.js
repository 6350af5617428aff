/** Draws a room. */

import { fit } from "./timeline.js";
import { sightOf } from "./why.js";

/**
 * @typedef {import("./why.js").Grid} Grid
 * @typedef {import("./why.js").Player} Player
 * @typedef {import("./why.js").RoomObject} RoomObject
 * @typedef {import("./film.js").Scene} Scene
 */

/** Hues that are told apart by people with red-green blindness as well, in light and dark. */
const HUES = [205, 32, 165, 330, 52, 265, 185, 5];
const RADIUS_PIXELS = 5;
const HIT_PIXELS = 12;
const DIMMED = 0.22;

/** @param {number} kind */
export function colourOf(kind) {
  return colours()[kind % HUES.length] ?? "";
}

/** The colours of kinds 0 to 7. Further kinds have the same ones again. */
function colours() {
  const lightness = matchMedia("(prefers-color-scheme: dark)").matches ? "65%" : "40%";
  return HUES.map((hue) => `hsl(${hue} 70% ${lightness})`);
}

export class RoomMap {
  zoom = 1;
  /** The point in the middle, in units; null: the middle of the map. @type {{x: number, y: number} | null} */
  centre = null;
  /** @type {{scale: number, left: number, top: number}} */
  drawn = { scale: 1, left: 0, top: 0 };
  /** Of the last drawing. */
  colours = colours();

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Grid} grid
   */
  constructor(canvas, grid) {
    this.canvas = canvas;
    this.grid = grid;
    this.width = grid.columns * grid.cellUnits;
    this.height = grid.rows * grid.cellUnits;
  }

  /**
   * @param {Scene} scene
   * @param {Player | null} player whose view is shown
   * @param {number | null} selected the id of an object
   */
  draw(scene, player, selected) {
    const context = this.canvas.getContext("2d");
    if (context === null) return;
    const { width, height } = fit(this.canvas, context);
    const scale = Math.min(width / this.width, height / this.height) * this.zoom;
    const centre = this.centre ?? { x: this.width / 2, y: this.height / 2 };
    this.drawn = { scale, left: width / 2 - centre.x * scale, top: height / 2 - centre.y * scale };
    this.colours = colours();
    context.clearRect(0, 0, width, height);
    this.drawGround(context, player);
    for (const object of scene.objects.values()) this.drawObject(context, object, player, object.id === selected);
    if (player !== null) this.drawAvatar(context, scene, player);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Player | null} player
   */
  drawGround(context, player) {
    const { grid, drawn: { scale, left, top } } = this;
    const style = getComputedStyle(this.canvas);
    context.fillStyle = style.getPropertyValue("--sunken");
    context.fillRect(left, top, this.width * scale, this.height * scale);
    const side = grid.cellUnits * scale;
    if (player !== null) {
      this.band(context, player.view, grid.nearCells + grid.farCells, style.getPropertyValue("--far"));
      this.band(context, player.view, grid.nearCells, style.getPropertyValue("--near"));
    }
    if (side < 6) return;
    context.strokeStyle = style.getPropertyValue("--line");
    context.lineWidth = 1;
    context.beginPath();
    for (let column = 0; column <= grid.columns; column += 1) {
      context.moveTo(left + column * side, top);
      context.lineTo(left + column * side, top + this.height * scale);
    }
    for (let row = 0; row <= grid.rows; row += 1) {
      context.moveTo(left, top + row * side);
      context.lineTo(left + this.width * scale, top + row * side);
    }
    context.stroke();
  }

  /**
   * The square of the cells around a view.
   * @param {CanvasRenderingContext2D} context
   * @param {number} view
   * @param {number} cells
   * @param {string} colour
   */
  band(context, view, cells, colour) {
    const { grid, drawn: { scale, left, top } } = this;
    const clamped = (/** @type {number} */ at, /** @type {number} */ count) => Math.min(Math.max(at, 0), count);
    const [column, row] = [view % grid.columns, Math.floor(view / grid.columns)];
    const [x0, x1] = [column - cells, column + cells + 1].map((at) => clamped(at, grid.columns));
    const [y0, y1] = [row - cells, row + cells + 1].map((at) => clamped(at, grid.rows));
    const side = grid.cellUnits * scale;
    context.fillStyle = colour;
    context.fillRect(left + (x0 ?? 0) * side, top + (y0 ?? 0) * side, ((x1 ?? 0) - (x0 ?? 0)) * side, ((y1 ?? 0) - (y0 ?? 0)) * side);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {RoomObject} object
   * @param {Player | null} player
   * @param {boolean} isSelected
   */
  drawObject(context, object, player, isSelected) {
    const { scale, left, top } = this.drawn;
    const [x, y] = [left + object.x * scale, top + object.y * scale];
    const sight = player === null ? "near" : sightOf(this.grid, player, object);
    context.globalAlpha = isSelected || ["near", "own"].includes(sight) ? 1 : sight === "far" ? 0.6 : DIMMED;
    context.fillStyle = this.colours[object.kind % HUES.length] ?? "";
    context.beginPath();
    // Colour is not the only difference of kinds.
    if (object.kind % 2 === 0) {
      context.rect(x - RADIUS_PIXELS + 1, y - RADIUS_PIXELS + 1, 2 * RADIUS_PIXELS - 2, 2 * RADIUS_PIXELS - 2);
    } else {
      context.arc(x, y, RADIUS_PIXELS, 0, 2 * Math.PI);
    }
    context.fill();
    context.globalAlpha = 1;
    if (isSelected) this.ring(context, x, y, RADIUS_PIXELS + 4, "--ink");
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Scene} scene
   * @param {Player} player
   */
  drawAvatar(context, scene, player) {
    const avatar = player.avatar === null ? undefined : scene.objects.get(player.avatar);
    if (avatar === undefined) return;
    const { scale, left, top } = this.drawn;
    this.ring(context, left + avatar.x * scale, top + avatar.y * scale, RADIUS_PIXELS + 7, "--tide");
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} x
   * @param {number} y
   * @param {number} radius
   * @param {string} colour
   */
  ring(context, x, y, radius, colour) {
    context.strokeStyle = getComputedStyle(this.canvas).getPropertyValue(colour);
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.stroke();
  }

  /**
   * The object at a point of the canvas; null for none.
   * @param {Scene} scene
   * @param {number} x
   * @param {number} y
   */
  objectAt(scene, x, y) {
    const { scale, left, top } = this.drawn;
    let nearest = null;
    let least = HIT_PIXELS;
    for (const object of scene.objects.values()) {
      const away = Math.hypot(left + object.x * scale - x, top + object.y * scale - y);
      // Of objects at one place, the last that is drawn is on top.
      if (away <= least) [nearest, least] = [object, away];
    }
    return nearest;
  }
}
