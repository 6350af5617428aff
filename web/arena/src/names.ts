/** Names beside players on the canvas. */

import type { Place } from "@dunlin/room-client";
import type { Camera } from "./camera";
import { type Colours, playerColour } from "./colours";

/** The number of names that stay legible; the nearest are shown. */
const NAMES_MAX = 16;
/** In pixels. */
const PLATE_HEIGHT = 18;
/** Below this scale, names would be larger than players. */
const SCALE_MIN = 0.2;

export interface Named {
  readonly id: number;
  readonly place: Place;
  readonly isMe: boolean;
  readonly colour: number;
}

export class Names {
  private readonly names = new Map<number, string>();

  set(id: number, name: string): void {
    this.names.set(id, name);
  }

  get(id: number): string | undefined {
    return this.names.get(id);
  }

  forget(id: number): void {
    this.names.delete(id);
  }

  clear(): void {
    this.names.clear();
  }

  draw(context: CanvasRenderingContext2D, camera: Camera, players: readonly Named[], me: Place, paint: Colours): void {
    if (camera.scale < SCALE_MIN) return;
    const near = players
      .map((named) => ({ ...named, far: Math.hypot(named.place.x - me.x, named.place.y - me.y) }))
      .sort((a, b) => a.far - b.far)
      .slice(0, NAMES_MAX);
    context.font = "600 11px ui-sans-serif, system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    // The nearest first, without overlaps: a few legible names are better than many illegible ones.
    const taken: [number, number, number][] = [];
    for (const { id, place, isMe, colour } of near) {
      const name = this.names.get(id);
      if (name === undefined) continue;
      const text = isMe ? `${name} (you)` : name;
      const [x, top] = camera.toScreen(place.x, place.y);
      const y = top + 46 * camera.scale + 12;
      const half = context.measureText(text).width / 2 + 5;
      if (taken.some(([otherX, otherY, other]) => Math.abs(x - otherX) < half + other && Math.abs(y - otherY) < PLATE_HEIGHT)) continue;
      taken.push([x, y, half]);
      drawPlate(context, text, x, y, isMe ? playerColour(colour) : paint.plate, isMe ? "#fff" : paint.ink);
    }
  }
}

/** A text on a rounded background, centred at a position in pixels. */
export function drawPlate(context: CanvasRenderingContext2D, text: string, x: number, y: number, back: string, ink: string): void {
  const width = context.measureText(text).width + 10;
  context.fillStyle = back;
  context.beginPath();
  context.roundRect(x - width / 2, y - PLATE_HEIGHT / 2, width, PLATE_HEIGHT, PLATE_HEIGHT / 2);
  context.fill();
  context.fillStyle = ink;
  context.fillText(text, x, y + 0.5);
}
