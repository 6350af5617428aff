/** The formats and rules of the game, as in `docs/tag.md`. */

import type { Grid, Rules, SeenObject } from "@dunlin/room-client";
import { type Moving, playerOf, stepOn, tagOf, velocityOf, viewOf } from "../../arena/src/hunt";

export const NAMESPACE = "tag";
export const LOBBY_CHANNEL = "rooms:tag";

export const RUNNER = 1;
export const LABEL = 2;
export const SHOT = 3;

export const OUT = 1;
export const SAFE = 2;
export const AWAY = 3;

/** The range of a projectile in units. */
export const RANGE_UNITS = 900;
export const RELOAD_MS = 400;

const TURN_STEPS = 65_536;

export interface RunnerState extends Moving {
  readonly condition: number;
}

export type TagInput =
  | { readonly kind: "run"; readonly dx: number; readonly dy: number }
  /** `angle` in radians; `seenTick` is the tick that the page shows. */
  | { readonly kind: "shoot"; readonly seenTick: number; readonly angle: number };

export function encodeTagInput(input: TagInput): Uint8Array {
  if (input.kind === "run") return Uint8Array.of(0, input.dx & 255, input.dy & 255);
  const bytes = new Uint8Array(7);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, 1);
  view.setUint32(1, input.seenTick, true);
  view.setUint16(5, Math.round((input.angle / (2 * Math.PI)) * TURN_STEPS) & (TURN_STEPS - 1), true);
  return bytes;
}

/** The rules that a client predicts: running exactly. Shots come from the server. */
export function runningOn(grid: Grid): Rules<RunnerState, TagInput> {
  const step = stepOn(grid);
  return {
    apply: (state, input) => (input.kind === "run" ? { ...state, ...velocityOf(input.dx, input.dy) } : state),
    step: (state, tick) => (state.condition === OUT ? state : step(state, tick)),
  };
}

export interface RunnerLooks {
  readonly colour: number;
  readonly vx: number;
  readonly vy: number;
  readonly condition: number;
}

export function runnerOf(seen: SeenObject): RunnerLooks {
  const { doing, ...looks } = playerOf(seen);
  return { ...looks, condition: doing };
}

/** A label: the id of the runner's object, its points and its name. */
export const labelOf = tagOf;

export interface ShotState {
  readonly colour: number;
  /** In radians. */
  readonly angle: number;
  readonly owner: number;
}

export function shotOf({ state }: SeenObject): ShotState {
  const view = viewOf(state, 7);
  return { colour: view.getUint8(0), angle: (view.getUint16(1, true) / TURN_STEPS) * 2 * Math.PI, owner: view.getUint32(3, true) };
}
