/** The changes of the objects that a client has in a cell: `CellUpdate.changes`, bit by bit. */

import { BitReader, bitsOf } from "./bits.js";
import { malformed, RoomError } from "./error.js";
import { joinState, readRaw, type Schema, splitState } from "./schema.js";
import type { RoomObject } from "./snapshot.js";

/** Bits of a step in each direction, by class. The class after them has the whole position. */
const STEP_BITS = [3, 5, 7];
const CLASS_BITS = 2;

/**
 * The changed objects of a cell, each with its whole state. `known` finds the object that the client has in this cell,
 * with its position in the cell. The states may have `bytesMax` bytes in all: a few bits may be a long state.
 * @throws RoomError of the kind `malformed` or `too_large`.
 */
export function readChanges(
  bytes: Uint8Array,
  schema: Schema,
  cellUnits: number,
  known: (id: number) => RoomObject | null,
  bytesMax: number,
): RoomObject[] {
  const bits = new BitReader(bytes);
  const positionBits = bitsOf(cellUnits - 1);
  const objects: RoomObject[] = [];
  let id = 0;
  let bytesLeft = bytesMax;
  let last: { readonly kind: number; readonly changed: readonly boolean[] } | null = null;
  for (let left = bits.count(); left > 0; left -= 1) {
    id += bits.count() + 1;
    const before = known(id);
    const fields = before === null ? undefined : schema.kind(before.kind)?.fields;
    if (before === null || fields === undefined) throw malformed(`object ${id} has changes, and is not known`);
    if (!bits.flag()) last = { kind: before.kind, changed: Array.from({ length: fields.length + 1 }, () => bits.flag()) };
    if (last === null || last.kind !== before.kind) throw malformed(`object ${id} has the fields of another kind`);
    const { changed }: { readonly changed: readonly boolean[] } = last;
    if (!changed.includes(true)) throw malformed(`object ${id} has no changes`);
    const [x, y] = changed[0] === true ? readPosition(bits, positionBits, before) : [before.x, before.y];
    const was = splitState(fields, before.state);
    if (was === null) throw malformed(`object ${id} has a state without fields`);
    const raws = fields.map((field, at) => (changed[at + 1] === true ? readRaw(bits, field, was[at] ?? 0) : (was[at] ?? 0)));
    const state = joinState(fields, raws);
    bytesLeft -= state.length;
    if (bytesLeft < 0) throw new RoomError("too_large", "the changes lead to too many bytes of states");
    objects.push({ id, kind: before.kind, x, y, state });
  }
  if (!bits.done) throw malformed("bytes follow the changes");
  return objects;
}

function readPosition(bits: BitReader, positionBits: number, { x, y }: RoomObject): [number, number] {
  const width = STEP_BITS[bits.take(CLASS_BITS)];
  if (width === undefined) return [bits.take(positionBits), bits.take(positionBits)];
  const to: [number, number] = [x + bits.signed(width), y + bits.signed(width)];
  if (to[0] < 0 || to[1] < 0) throw malformed("an object moves out of its cell");
  return to;
}
