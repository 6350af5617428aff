/** Keys, mouse and fingers: where the player wants to go. */

import type { Place } from "@dunlin/room-client";

export interface Wishes {
  walk(dx: number, dy: number): void;
  dig(): void;
  wave(emote: number): void;
}

const FULL = 127;
const TAP_MS = 250;
const SLOW_UNITS = 90;
const ARRIVED_UNITS = 14;

const DIRECTIONS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0],
  KeyW: [0, -1], KeyS: [0, 1], KeyA: [-1, 0], KeyD: [1, 0],
};

export class Controls {
  /** Where a tap sent the player; null when it is not on its way. */
  target: Place | null = null;
  private readonly pressed = new Set<string>();
  private pointer: { id: number; x: number; y: number; sinceMs: number } | null = null;

  /** `toMap` turns a place on the canvas, in CSS pixels, into one on the map. */
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

  /** Once a frame: says where to walk from here. */
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
    // Slower on the last paces, in few steps: each change of speed is an input.
    const speed = distance >= SLOW_UNITS ? FULL : Math.ceil((distance / SLOW_UNITS) * 4) * (FULL / 4);
    // Sixteenths of a right angle are fine enough for a hand, and keep a trembling one from sending inputs.
    const angle = (Math.round((Math.atan2(way.y, way.x) / Math.PI) * 32) / 32) * Math.PI;
    this.wishes.walk(Math.round(Math.cos(angle) * speed), Math.round(Math.sin(angle) * speed));
  }

  /** Stands still until the next wish. */
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
      // Not when it repeats: after a dig a key that is still held does not walk off.
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
    // A tap sends there; who held the pointer led the player, and stops where the hand stops.
    const wasTap = event.timeStamp - this.pointer.sinceMs < TAP_MS;
    this.target = wasTap ? this.toMap(event.offsetX, event.offsetY) : null;
    this.pointer = null;
  }
}
