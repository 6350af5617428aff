/** The formats and rules of the game, as in `docs/tag.md`. */

import type { Grid, Rules, SeenObject } from "@dunlin/room-client";
import { type Moving, stepOn, velocityOf } from "../../arena/src/hunt";
import { type Label, type Projectile, readLabel, readProjectile, readRunner, type Runner } from "./states";

export { LABEL_KIND as LABEL, PROJECTILE_KIND as SHOT, RUNNER_KIND as RUNNER } from "./states";

export const NAMESPACE = "tag";
export const LOBBY_CHANNEL = "rooms:tag";

export type Condition = Runner["condition"];

/** The range of a projectile in units. */
export const RANGE_UNITS = 900;
export const RELOAD_MS = 400;

const TURN_STEPS = 65_536;

export interface RunnerState extends Moving {
  readonly condition: Condition;
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
    step: (state, tick) => (state.condition === "Tagged" ? state : step(state, tick)),
  };
}

export function runnerOf({ state }: SeenObject): Runner {
  return readRunner(state) ?? { colour: 0, vx: 0, vy: 0, condition: "Running" };
}

/** A label: the id of the runner's object, its points and its name. */
export function labelOf({ state }: SeenObject): Label {
  return readLabel(state) ?? { runner: 0, score: 0, name: "" };
}

/** A projectile, with its angle in radians. */
export function shotOf({ state }: SeenObject): Projectile {
  const { angle, ...shot } = readProjectile(state) ?? { colour: 0, angle: 0, owner: 0 };
  return { ...shot, angle: (angle / TURN_STEPS) * 2 * Math.PI };
}
