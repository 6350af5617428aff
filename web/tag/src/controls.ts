/** Keyboard, mouse and touch. A mouse aims and shoots; a touch sets the direction. */

import type { Place } from "@dunlin/room-client";
import { DIRECTIONS, FULL } from "../../arena/src/controls";

const ARRIVED_UNITS = 30;

export class TagControls {
  /** The position of the mouse on the canvas in CSS pixels; null without one. */
  mouse: { readonly x: number; readonly y: number } | null = null;
  /** Whether the player wants to shoot now. */
  isShooting = false;
  private wasShot = false;
  private readonly pressed = new Set<string>();
  private finger: { id: number; x: number; y: number } | null = null;

  /** `toMap` converts a position on the canvas to a position on the map. */
  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly toMap: (x: number, y: number) => Place,
  ) {
    addEventListener("keydown", (event) => this.keyDown(event));
    addEventListener("keyup", (event) => this.keyUp(event));
    addEventListener("blur", () => this.release());
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", () => this.release());
    canvas.addEventListener("pointerleave", () => (this.mouse = null));
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  }

  /** The direction to run in from here; -127 to 127 on both axes. */
  direction(from: Place): [number, number] {
    let [x, y] = [0, 0];
    for (const code of this.pressed) {
      const [dx, dy] = DIRECTIONS[code] ?? [0, 0];
      x += dx;
      y += dy;
    }
    if (this.finger !== null && x === 0 && y === 0) {
      const to = this.toMap(this.finger.x, this.finger.y);
      [x, y] = [to.x - from.x, to.y - from.y];
      if (Math.hypot(x, y) < ARRIVED_UNITS) return [0, 0];
      // Small movements of the finger cause no inputs.
      const angle = (Math.round((Math.atan2(y, x) / Math.PI) * 16) / 16) * Math.PI;
      [x, y] = [Math.cos(angle), Math.sin(angle)];
    }
    const length = Math.hypot(x, y);
    return length === 0 ? [0, 0] : [Math.trunc((x / length) * FULL), Math.trunc((y / length) * FULL)];
  }

  /** Whether to shoot in this frame. A short press shoots once. */
  takeShot(): boolean {
    const shoots = this.isShooting || this.wasShot;
    this.wasShot = false;
    return shoots;
  }

  /** Shoots once. */
  shootOnce(): void {
    this.wasShot = true;
  }

  /** Stops until the next key or touch. */
  release(): void {
    this.pressed.clear();
    this.finger = null;
    this.isShooting = this.wasShot = false;
  }

  private keyDown(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const onControl = event.target instanceof HTMLElement && event.target.closest("button, a, input, summary") !== null;
    if (DIRECTIONS[event.code] !== undefined) {
      if (!event.repeat) this.pressed.add(event.code);
      event.preventDefault();
    } else if (event.code === "Space" && !onControl) {
      event.preventDefault();
      if (!event.repeat) this.isShooting = this.wasShot = true;
    }
  }

  private keyUp(event: KeyboardEvent): void {
    this.pressed.delete(event.code);
    if (event.code === "Space") this.isShooting = false;
  }

  private down(event: PointerEvent): void {
    if (event.pointerType === "mouse") {
      if (event.button !== 0) return;
      this.mouse = { x: event.offsetX, y: event.offsetY };
      this.isShooting = this.wasShot = true;
      return;
    }
    this.canvas.setPointerCapture(event.pointerId);
    this.finger = { id: event.pointerId, x: event.offsetX, y: event.offsetY };
  }

  private move(event: PointerEvent): void {
    if (event.pointerType === "mouse") this.mouse = { x: event.offsetX, y: event.offsetY };
    else if (this.finger?.id === event.pointerId) this.finger = { id: event.pointerId, x: event.offsetX, y: event.offsetY };
  }

  private up(event: PointerEvent): void {
    if (event.pointerType === "mouse") this.isShooting = false;
    else if (this.finger?.id === event.pointerId) this.finger = null;
  }
}
