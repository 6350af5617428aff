/** The formats and rules of the treasure hunt, as in `docs/rooms.md`. */

import type { Grid, Rules, SeenObject } from "@dunlin/room-client";
import { type Chest, type NameTag, type Purse, readChest, readNameTag, readPlayer, readPurse, readRock, readTree, TREE_KIND } from "./treasure_hunt";

export type { Purse } from "./treasure_hunt";

export const ROOM_CHANNEL = "arena:hunt";
export const LEADERS_CHANNEL = "leaders:hunt";

export {
  CHEST_KIND as CHEST, CLUE_MARKER_KIND as CLUE, NAME_TAG_KIND as TAG, PLAYER_KIND as PLAYER, PURSE_KIND as PURSE, ROCK_KIND as ROCK, TREE_KIND as TREE,
} from "./treasure_hunt";

export const UNITS_PER_PACE = 16;
export const DIG_REACH_UNITS = 48;
export const DIG_ENERGY = 10;
export const EMOTES = ["\u2665", "!", "?", "\u263a", "\u2605", "\u266a", "\u2713", "\u2026"] as const;

const SPEED_UNITS = 640;
const FULL = 127;

export const DIGGING = 1;
const WAVING = 2;

/** Position and velocity. */
export interface Moving {
  readonly x: number;
  readonly y: number;
  readonly vx: number;
  readonly vy: number;
}

export interface Walker extends Moving {
  /** 0, `DIGGING`, or the code of an emote. */
  readonly doing: number;
  readonly energy: number;
}

export type HuntInput =
  | { readonly kind: "walk"; readonly dx: number; readonly dy: number }
  | { readonly kind: "dig" }
  | { readonly kind: "wave"; readonly emote: number };

export function encodeHuntInput(input: HuntInput): Uint8Array {
  if (input.kind === "walk") return Uint8Array.of(0, input.dx & 255, input.dy & 255);
  return input.kind === "dig" ? Uint8Array.of(1) : Uint8Array.of(2, input.emote);
}

/** The direction that the server computes from the two bytes of a walk. */
export function velocityOf(dx: number, dy: number): { vx: number; vy: number } {
  const square = dx * dx + dy * dy;
  if (square <= FULL * FULL) return { vx: dx, vy: dy };
  const length = Math.floor(Math.sqrt(square)) + 1;
  return { vx: noMinus(Math.trunc((dx * FULL) / length)), vy: noMinus(Math.trunc((dy * FULL) / length)) };
}

/** Replaces minus zero, because a comparison of states distinguishes it from zero. */
const noMinus = (value: number): number => value + 0;

function way(velocity: number, tick: number, ticksPerSecond: number): number {
  return Math.floor((velocity * SPEED_UNITS * tick) / (FULL * ticksPerSecond));
}

/** The rules that a client predicts: walking exactly, and digging and waving as far as the state is known. */
export function walkingOn(grid: Grid): Rules<Walker, HuntInput> {
  const step = stepOn(grid);
  return {
    apply(state, input) {
      const isDigging = state.doing === DIGGING;
      if (input.kind === "walk") {
        const { vx, vy } = velocityOf(input.dx, input.dy);
        return { ...state, vx, vy, doing: isDigging && (vx !== 0 || vy !== 0) ? 0 : state.doing };
      }
      if (isDigging) return state;
      if (input.kind === "wave") return { ...state, doing: WAVING + input.emote };
      if (state.energy < DIG_ENERGY) return state;
      return { ...state, vx: 0, vy: 0, doing: DIGGING, energy: state.energy - DIG_ENERGY };
    },
    step,
  };
}

/** A step of an object that moves like a player, in this game and in others. */
export function stepOn(grid: Grid): <State extends Moving>(state: State, tick: number) => State {
  const rate = grid.shape.ticksPerSecond;
  const step = (at: number, velocity: number, tick: number, size: number) =>
    Math.min(size - 1, Math.max(0, at + way(velocity, tick, rate) - way(velocity, tick - 1, rate)));
  return (state, tick) => {
    if (state.vx === 0 && state.vy === 0) return state;
    return {
      ...state,
      x: step(state.x, state.vx, tick, grid.widthUnits),
      y: step(state.y, state.vy, tick, grid.heightUnits),
    };
  };
}

export interface PlayerLooks {
  readonly colour: number;
  readonly vx: number;
  readonly vy: number;
  readonly doing: number;
}

const NO_LOOKS: PlayerLooks = { colour: 0, vx: 0, vy: 0, doing: 0 };

export function playerOf({ state }: SeenObject): PlayerLooks {
  const player = readPlayer(state);
  return player === null ? NO_LOOKS : { colour: player.colour, vx: player.vx, vy: player.vy, doing: player.activity };
}

/** The current emote of a player, as an index of `EMOTES`; null without one. */
export const emoteOf = (doing: number): number | null => (doing >= WAVING ? doing - WAVING : null);

export function purseOf({ state }: SeenObject): Purse {
  return readPurse(state) ?? { score: 0, chests: 0, energy: 0 };
}

export function tagOf({ state }: SeenObject): NameTag {
  return readNameTag(state) ?? { player: 0, score: 0, name: "" };
}

/** 0 to 3. */
export function sizeOf({ kind, state }: SeenObject): number {
  return (kind === TREE_KIND ? readTree(state) : readRock(state))?.size ?? 0;
}

/** The chest, if it is open; null while it is buried. */
export function chestOf({ state }: SeenObject): Chest | null {
  const chest = readChest(state);
  return chest?.is_open === true ? chest : null;
}
