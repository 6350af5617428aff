// Creates snapshots in both encodings from one description, as a room encodes them.
import { Writer } from '../../dist/protobuf.js';
import { encodeBase64 } from '../../dist/index.js';

export const GRID = {
  columns: 8, rows: 6, cellUnits: 512, nearCells: 1, farCells: 1, farIntervalTicks: 6, ticksPerSecond: 60,
};
export const START_US = 1_790_000_000_000_000;

/** A snapshot with defaults for all fields that the description omits. */
export function snapshot(parts) {
  const tick = parts.tick ?? 1;
  const base = parts.base ?? 0;
  return {
    ack: 0, avatar: 0, own: null, tick, base, view: 0, cells: [],
    timeUs: START_US + Math.round((tick * 1_000_000) / 60),
    grid: base === 0 ? GRID : null,
    ...parts,
  };
}

export const object = (id, x, y, kind = 1, state = []) => ({ id, kind, x, y, state: Uint8Array.from(state) });

export const cell = (number, parts) => ({ cell: number, full: false, departed: [], upserts: [], ...parts });

export function toProtobuf(value) {
  const writer = new Writer().fixed32(1, value.ack).fixed32(2, value.avatar);
  if (value.own !== null) writer.message(3, list(value.own.map(objectBytes)));
  writer.uint32(4, value.tick).uint32(5, value.base).fixed64(6, value.timeUs);
  if (value.grid !== null) {
    const { columns, rows, cellUnits, nearCells, farCells, farIntervalTicks, ticksPerSecond } = value.grid;
    const grid = new Writer().uint32(1, columns).uint32(2, rows).uint32(3, cellUnits).uint32(4, nearCells);
    writer.message(7, grid.uint32(5, farCells).uint32(6, farIntervalTicks).uint32(7, ticksPerSecond).finish());
  }
  writer.uint32(8, value.view);
  if (value.ratePermille !== undefined) writer.uint32(11, value.ratePermille);
  if (value.moved) writer.bool(13, true);
  for (const { cell, full, departed, upserts } of value.cells) {
    const update = new Writer().uint32(1, cell).bool(2, full).packed(3, departed);
    for (const upsert of upserts) update.message(4, objectBytes(upsert));
    writer.message(9, update.finish());
  }
  return writer.finish();
}

export function toJson(value) {
  const { ack, avatar, own, tick, base, timeUs, ratePermille, moved, grid, view, cells } = value;
  return {
    ack, avatar, tick, base, time_us: timeUs, view,
    ...(ratePermille === undefined ? {} : { rate: ratePermille }),
    ...(moved === undefined ? {} : { moved }),
    ...(own === null ? {} : { own: { objects: own.map(objectJson) } }),
    ...(grid === null ? {} : {
      grid: {
        columns: grid.columns, rows: grid.rows, cell_units: grid.cellUnits, near_cells: grid.nearCells,
        far_cells: grid.farCells, far_interval_ticks: grid.farIntervalTicks, ticks_per_second: grid.ticksPerSecond,
      },
    }),
    cells: cells.map((update) => ({ ...update, upserts: update.upserts.map(objectJson) })),
  };
}

function list(messages) {
  const writer = new Writer();
  for (const message of messages) writer.message(1, message);
  return writer.finish();
}

const objectBytes = ({ id, kind, x, y, state }) =>
  new Writer().uint32(1, id).uint32(2, kind).uint32(3, x).uint32(4, y).blob(5, state).finish();

const objectJson = (value) => ({ ...value, state: encodeBase64(value.state) });

/** Numbers below 2^32 that a seed determines (xorshift). */
export function randomFrom(seed) {
  let state = seed | 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
}
