/**
 * The visitors as a flock with one bird per session. All birds follow one path, each slightly behind the one in front.
 * The animation stops while it is not visible.
 */

import { palette, type Surface, surface } from "./canvas";
import { reducedMotion } from "./dom";

export type Kind = "you" | "yours" | "other";

interface Bird {
  readonly client: string;
  /** Place in the flock; small numbers are in the middle. */
  readonly slot: number;
  kind: Kind;
  /** 0 outside the picture, 1 in its place. */
  presence: number;
  leaving: boolean;
}

/** Maximum number of drawn birds; the count beside the flock is exact. */
const BIRDS_MAX = 160;
const GOLDEN_ANGLE = 2.39996;
const ARRIVAL_MS = 900;

export class Flock {
  private readonly surface: Surface;
  private birds: Bird[] = [];
  private isVisible = true;
  private isRunning = false;
  private lastMs = 0;
  private clockMs = 20_000;
  private stilled = false;

  constructor(canvas: HTMLCanvasElement) {
    this.surface = surface(canvas, () => this.wake());
    new IntersectionObserver(([entry]) => {
      this.isVisible = entry?.isIntersecting ?? true;
      this.wake();
    }).observe(canvas);
    document.addEventListener("visibilitychange", () => this.wake());
    reducedMotion.addEventListener("change", () => this.wake());
  }

  /** Shows these sessions; new birds fly in, removed birds fly off. */
  show(present: ReadonlySet<string>, kindOf: (client: string) => Kind): void {
    for (const bird of this.birds) {
      bird.leaving = !present.has(bird.client);
      bird.kind = kindOf(bird.client);
    }
    const known = new Set(this.birds.map(({ client }) => client));
    const taken = new Set(this.birds.map(({ slot }) => slot));
    let slot = 0;
    for (const client of present) {
      if (known.has(client)) continue;
      if (this.birds.length >= BIRDS_MAX) break;
      while (taken.has(slot)) slot += 1;
      taken.add(slot);
      this.birds.push({ client, slot, kind: kindOf(client), presence: 0, leaving: false });
    }
    this.wake();
  }

  /** While the network is cut, presence is unknown, so the flock is paused and pale. */
  still(stilled: boolean): void {
    this.stilled = stilled;
    this.wake();
  }

  private wake(): void {
    if (this.isRunning || !this.isVisible || document.hidden) return;
    this.isRunning = true;
    this.lastMs = performance.now();
    requestAnimationFrame((nowMs) => this.frame(nowMs));
  }

  private frame(nowMs: number): void {
    const elapsedMs = Math.min(64, Math.max(0, nowMs - this.lastMs));
    this.lastMs = nowMs;
    const isStill = this.stilled || reducedMotion.matches;
    if (!isStill) this.clockMs += elapsedMs;
    this.settle(reducedMotion.matches ? ARRIVAL_MS : elapsedMs);
    this.draw();
    this.isRunning = !isStill && this.isVisible && !document.hidden && this.birds.length > 0;
    if (this.isRunning) requestAnimationFrame((nextMs) => this.frame(nextMs));
  }

  private settle(elapsedMs: number): void {
    for (const bird of this.birds) {
      const step = elapsedMs / ARRIVAL_MS;
      bird.presence = Math.min(1, Math.max(0, bird.presence + (bird.leaving ? -step : step)));
    }
    this.birds = this.birds.filter((bird) => !(bird.leaving && bird.presence === 0));
  }

  private draw(): void {
    const { context, width, height } = this.surface;
    context.clearRect(0, 0, width, height);
    if (width === 0) return;
    const colours = palette();
    const size = Math.max(0.8, Math.min(1.9, 5.4 / Math.sqrt(this.birds.length + 1) + 0.55));
    for (const bird of this.birds) {
      const place = this.place(bird, width, height);
      const eased = 1 - (1 - bird.presence) ** 3;
      const away = 1 - eased;
      context.globalAlpha = eased * (this.stilled ? 0.35 : 1) * (bird.kind === "other" ? 0.8 : 1);
      context.fillStyle =
        bird.kind === "you" ? colours.flare : bird.kind === "yours" ? colours.tide : colours.ink;
      const x = place.x + (bird.leaving ? away * 90 : -away * 90);
      const y = place.y - away * height * 0.6;
      this.drawBird(x, y, place.heading, place.flap, bird.kind === "you" ? size * 1.3 : size);
    }
    context.globalAlpha = 1;
  }

  private place(bird: Bird, width: number, height: number) {
    const radius = Math.sqrt(bird.slot) * 1.15;
    const angle = bird.slot * GOLDEN_ANGLE;
    const lagMs = bird.slot * 9;
    const t = (this.clockMs - lagMs) / 1000;
    const at = path(t, width, height);
    const next = path(t + 0.05, width, height);
    // The flock stretches on straight parts of its path, and contracts in turns.
    const breath = 1 + 0.22 * Math.sin(t * 0.9);
    const spread = Math.min(15, Math.max(9, height / 15));
    return {
      x: at.x + Math.cos(angle) * radius * spread * 1.7 * breath,
      y: at.y + (Math.sin(angle) * radius * spread * 0.72) / breath,
      heading: Math.atan2(next.y - at.y, next.x - at.x),
      flap: Math.sin(t * 12 + bird.slot * 1.7),
    };
  }

  /** A bird from the side: a lens of a body, and two pointed wings that beat. */
  private drawBird(x: number, y: number, heading: number, flap: number, size: number): void {
    const { context } = this.surface;
    const facesLeft = Math.cos(heading) < 0;
    context.save();
    context.translate(x, y);
    context.scale(facesLeft ? -size : size, size);
    context.rotate(Math.asin(Math.sin(heading)) * 0.7);
    const tip = -1.2 - flap * 5.4;
    context.beginPath();
    context.moveTo(-6.2, 0.5);
    context.quadraticCurveTo(-1.5, 2.1, 3.2, 0.9);
    context.lineTo(6.4, 1);
    context.quadraticCurveTo(3.4, -1.9, -1.2, -0.9);
    context.fill();
    context.beginPath();
    context.moveTo(2.4, -0.4);
    context.quadraticCurveTo(1.6, tip * 0.55, -2.6, tip - 1);
    context.quadraticCurveTo(-1.9, tip * 0.35, -1.8, 0.1);
    context.fill();
    context.beginPath();
    context.moveTo(2.8, -0.5);
    context.quadraticCurveTo(3.4, tip * 0.5, 1.4, tip * 0.85 - 0.6);
    context.quadraticCurveTo(0.6, tip * 0.3, 0.4, -0.2);
    context.fill();
    context.restore();
  }
}

function path(t: number, width: number, height: number): { x: number; y: number } {
  return {
    x: width * (0.5 + 0.26 * Math.sin(t * 0.43) + 0.07 * Math.sin(t * 1.07 + 1)),
    y: height * (0.52 + 0.15 * Math.sin(t * 0.71 + 0.6) + 0.07 * Math.sin(t * 1.6)),
  };
}
