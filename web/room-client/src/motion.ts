/** What to show of an object's fields between two known states. */

import type { Field, FieldValue, FieldValues, Kind } from "./schema.js";

/**
 * The fields between two states of an object of this kind: `share` is 0 at the first, and 1 at the second. Fields that neither
 * move nor turn have the value of the first state until the second one is reached.
 */
export function fieldsBetween(kind: Kind, from: FieldValues, to: FieldValues, share: number): FieldValues {
  if (share >= 1) return to;
  const between = kind.fields.map((field): [string, FieldValue] => {
    const [first, second] = [from[field.name] ?? 0, to[field.name] ?? 0];
    if (typeof first !== "number" || typeof second !== "number") return [field.name, first];
    return [field.name, numberBetween(field, first, second, share)];
  });
  return Object.fromEntries(between);
}

function numberBetween(field: Field, from: number, to: number, share: number): number {
  if (field.type !== "integer" || field.motion === "step") return from;
  if (field.motion === "linear") return from + (to - from) * share;
  const turn = (field.max - field.min + 1) / field.perUnit;
  const min = field.min / field.perUnit;
  // The shorter way round.
  const way = modulo(to - from, turn);
  return min + modulo(from + (way > turn / 2 ? way - turn : way) * share - min, turn);
}

function modulo(value: number, turn: number): number {
  return ((value % turn) + turn) % turn;
}
