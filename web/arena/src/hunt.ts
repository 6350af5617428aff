/** The formats and rules of the treasure hunt, as in `docs/rooms.md`. */

import type { Grid, Rules, SeenObject } from "@dunlin/room-client";

export const ROOM_CHANNEL = "arena:hunt";
export const LEADERS_CHANNEL = "leaders:hunt";

export const PLAYER = 1;
export const TAG = 2;
export const CHEST = 3;
export const TREE = 4;
export const ROCK = 5;
export const CLUE = 6;
export const PURSE = 7;

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

export function playerOf({ state }: SeenObject): PlayerLooks {
  const signed = (byte: number) => (byte << 24) >> 24;
  return { colour: state[0] ?? 0, vx: signed(state[1] ?? 0), vy: signed(state[2] ?? 0), doing: state[3] ?? 0 };
}

/** The current emote of a player, as an index of `EMOTES`; null without one. */
export const emoteOf = (doing: number): number | null => (doing >= WAVING ? doing - WAVING : null);

export interface Purse {
  readonly score: number;
  readonly chests: number;
  readonly energy: number;
}

export function purseOf({ state }: SeenObject): Purse {
  const view = viewOf(state, 7);
  return { score: view.getUint32(0, true), chests: view.getUint16(4, true), energy: view.getUint8(6) };
}

export interface Tag {
  readonly player: number;
  readonly score: number;
  readonly name: string;
}

const utf8 = new TextDecoder();

export function tagOf({ state }: SeenObject): Tag {
  const view = viewOf(state, 8);
  return { player: view.getUint32(0, true), score: view.getUint32(4, true), name: utf8.decode(state.subarray(8)) };
}

/** The value of an open chest; null while it is buried. */
export function chestOf({ state }: SeenObject): { value: number; finder: number } | null {
  if (state[0] !== 1) return null;
  const view = viewOf(state, 7);
  return { value: view.getUint16(1, true), finder: view.getUint32(3, true) };
}

/** A view of at least this many bytes: missing bytes of a short state are zeros. */
export function viewOf(state: Uint8Array, least: number): DataView {
  if (state.length >= least) return new DataView(state.buffer, state.byteOffset, state.byteLength);
  const padded = new Uint8Array(least);
  padded.set(state);
  return new DataView(padded.buffer);
}
