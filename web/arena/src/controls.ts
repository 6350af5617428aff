/** Keyboard, mouse and touch: the direction in which the player wants to go. */

import type { Place } from "@dunlin/room-client";

export interface Wishes {
  walk(dx: number, dy: number): void;
  dig(): void;
  wave(emote: number): void;
}

export const FULL = 127;
const TAP_MS = 250;
const SLOW_UNITS = 90;
const ARRIVED_UNITS = 14;

export const DIRECTIONS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0],
  KeyW: [0, -1], KeyS: [0, 1], KeyA: [-1, 0], KeyD: [1, 0],
};

export class Controls {
  /** The target of the last tap; null once the player has arrived or turned. */
  target: Place | null = null;
  private readonly pressed = new Set<string>();
  private pointer: { id: number; x: number; y: number; sinceMs: number } | null = null;

  /** `toMap` converts a position on the canvas, in CSS pixels, to a position on the map. */
  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly toMap: (x: number, y: number) => Place,
    private readonly wishes: Wishes,
  ) {
    addEventListener("keydown", (event) => this.keyDown(event));
    addEventListener("keyup", (event) => this.pressed.delete(event.code));
    addEventListener("blur", () => this.release());
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", () => this.release());
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  }

  /** Called once per frame: the direction to walk in from here. */
  steer(from: Place): void {
    const [dx, dy] = this.keys();
    if (dx !== 0 || dy !== 0) {
      this.target = null;
      const length = Math.hypot(dx, dy);
      this.wishes.walk(Math.trunc((dx / length) * FULL), Math.trunc((dy / length) * FULL));
      return;
    }
    if (this.pointer !== null) this.target = this.toMap(this.pointer.x, this.pointer.y);
    if (this.target === null) {
      this.wishes.walk(0, 0);
      return;
    }
    const way = { x: this.target.x - from.x, y: this.target.y - from.y };
    const distance = Math.hypot(way.x, way.y);
    if (distance <= ARRIVED_UNITS) {
      if (this.pointer === null) this.target = null;
      this.wishes.walk(0, 0);
      return;
    }
    // Near the target, the player slows down in few steps, because each change of speed is an input.
    const speed = distance >= SLOW_UNITS ? FULL : Math.ceil((distance / SLOW_UNITS) * 4) * (FULL / 4);
    // A sixteenth of a right angle is precise enough, and small movements of the pointer cause no inputs.
    const angle = (Math.round((Math.atan2(way.y, way.x) / Math.PI) * 32) / 32) * Math.PI;
    this.wishes.walk(Math.round(Math.cos(angle) * speed), Math.round(Math.sin(angle) * speed));
  }

  /** Stops until the next key, tap or drag. */
  release(): void {
    this.pressed.clear();
    this.pointer = null;
    this.target = null;
  }

  dig(): void {
    this.release();
    this.wishes.dig();
  }

  private keys(): [number, number] {
    let [dx, dy] = [0, 0];
    for (const code of this.pressed) {
      const [x, y] = DIRECTIONS[code] ?? [0, 0];
      dx += x;
      dy += y;
    }
    return [Math.sign(dx), Math.sign(dy)];
  }

  private keyDown(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const onControl = event.target instanceof HTMLElement && event.target.closest("button, a, input, summary") !== null;
    if (DIRECTIONS[event.code] !== undefined) {
      // Key repeats are ignored, so that a key held during a dig does not start a walk.
      if (!event.repeat) this.pressed.add(event.code);
      event.preventDefault();
    } else if (event.code === "Space" && !onControl) {
      event.preventDefault();
      if (!event.repeat) this.dig();
    } else if (/^Digit[1-8]$/.test(event.code) && !event.repeat && !onControl) {
      this.wishes.wave(Number(event.code.slice(5)) - 1);
    }
  }

  private down(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.pointer = { id: event.pointerId, x: event.offsetX, y: event.offsetY, sinceMs: event.timeStamp };
  }

  private move(event: PointerEvent): void {
    if (this.pointer?.id !== event.pointerId) return;
    this.pointer.x = event.offsetX;
    this.pointer.y = event.offsetY;
  }

  private up(event: PointerEvent): void {
    if (this.pointer?.id !== event.pointerId) return;
    // A tap sets a target. After a drag, the player stops where the pointer was released.
    const wasTap = event.timeStamp - this.pointer.sinceMs < TAP_MS;
    this.target = wasTap ? this.toMap(event.offsetX, event.offsetY) : null;
    this.pointer = null;
  }
}
