/** Snapshots as a room sends them: `schema/room.proto`, in Protobuf and in JSON. */

import { decodeBase64 } from "./base64.js";
import { malformed } from "./error.js";
import { FIXED32, FIXED64, LENGTH, Reader, VARINT } from "./protobuf.js";
import { decodeSchema, joinState, rawsFromJson, type Schema, schemaFromJson } from "./schema.js";

/** An object in a `CellUpdate`, or in the part for one player. */
export interface RoomObject {
  readonly id: number;
  readonly kind: number;
  /** In units from the cell's corner; from the map's corner in the part for one player. */
  readonly x: number;
  readonly y: number;
  /** In the game's own format. */
  readonly state: Uint8Array;
  /** In a JSON session with fields, instead of the state. */
  readonly values?: Readonly<Record<string, unknown>>;
}

export interface CellUpdate {
  readonly cell: number;
  readonly full: boolean;
  readonly departed: readonly number[];
  readonly upserts: readonly RoomObject[];
  /** The changes of objects in the cell, as bits. */
  readonly changes?: Uint8Array;
}

/** A map of columns × rows square cells, numbered row by row. */
export interface GridShape {
  readonly columns: number;
  readonly rows: number;
  readonly cellUnits: number;
  readonly nearCells: number;
  readonly farCells: number;
  readonly farIntervalTicks: number;
  readonly ticksPerSecond: number;
}

export interface Snapshot {
  readonly ack: number;
  readonly avatar: number;
  /** Null if the part for this player did not change. */
  readonly own: readonly RoomObject[] | null;
  readonly tick: number;
  readonly base: number;
  /** Unix time in microseconds, on the server's clock. */
  readonly timeUs: number;
  /** The rate of the room's clock at this tick, in thousandths, if it is not 1,000. An overloaded room runs slower. */
  readonly ratePermille?: number;
  /** The waits of the zones of the view as one number, if cells have waited for a bandwidth limit (see `waitTicks`). */
  readonly waited?: number;
  /** Whether the room has moved to another node since the last snapshot. This one is full. */
  readonly moved?: boolean;
  readonly grid: GridShape | null;
  /** What states are made of; in the first snapshot of a client that asked for it. */
  readonly schema?: Schema;
  readonly view: number;
  readonly cells: readonly CellUpdate[];
}

const NO_STATE = new Uint8Array(0);

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

const UINT32_MAX = 0xffff_ffff;
const KIND_MAX = 0xffff;
/** Upper bound of cell numbers and ticks. */
const MAP_NUMBER_MAX = 0xffff;
const FAR_INTERVAL_TICKS_MAX = 15;
const CELLS_PER_SIDE_MAX = 1_024;
const CELL_UNITS_MAX = 65_536;
/** The rate of a room that runs in real time. */
export const FULL_RATE_PERMILLE = 1_000;

/** @throws RoomError of the kind `malformed`, and no other error, for any bytes. */
export function decodeSnapshot(bytes: Uint8Array): Snapshot {
  const reader = new Reader(bytes);
  const cells: CellUpdate[] = [];
  const snapshot: Mutable<Snapshot> = {
    ack: 0, avatar: 0, own: null, tick: 0, base: 0, timeUs: 0, grid: null, view: 0, cells,
  };
  while (!reader.done) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | FIXED32)) snapshot.ack = reader.fixed32();
    else if (tag === ((2 << 3) | FIXED32)) snapshot.avatar = reader.fixed32();
    else if (tag === ((3 << 3) | LENGTH)) snapshot.own = decodeOwn(reader.inner());
    else if (tag === ((4 << 3) | VARINT)) snapshot.tick = reader.uint32();
    else if (tag === ((5 << 3) | VARINT)) snapshot.base = reader.uint32();
    else if (tag === ((6 << 3) | FIXED64)) snapshot.timeUs = reader.fixed64();
    else if (tag === ((7 << 3) | LENGTH)) snapshot.grid = decodeGrid(reader.inner());
    else if (tag === ((8 << 3) | VARINT)) snapshot.view = reader.uint32();
    else if (tag === ((9 << 3) | LENGTH)) cells.push(decodeCell(reader.inner()));
    else if (tag === ((10 << 3) | LENGTH)) snapshot.schema = decodeSchema(reader.blob());
    else if (tag === ((11 << 3) | VARINT)) snapshot.ratePermille = reader.uint32();
    else if (tag === ((12 << 3) | VARINT)) snapshot.waited = reader.uint32();
    else if (tag === ((13 << 3) | VARINT)) snapshot.moved = reader.bool();
    else skipUnknown(reader, tag, 13);
  }
  return checked(snapshot);
}

/** Takes a snapshot from a JSON session, already parsed. @throws RoomError of the kind `malformed`. */
export function snapshotFromJson(value: unknown): Snapshot {
  const fields = object(value, "the snapshot");
  const own = fields["own"];
  const grid = fields["grid"];
  const schema = fields["schema"];
  return checked({
    ...(schema === undefined || schema === null ? {} : { schema: schemaFromJson(schema) }),
    ...(fields["rate"] === undefined ? {} : { ratePermille: uint32(fields, "rate") }),
    ...(fields["waited"] === undefined ? {} : { waited: uint32(fields, "waited") }),
    ...(fields["moved"] === undefined ? {} : { moved: flag(fields, "moved") }),
    ack: uint32(fields, "ack"),
    avatar: uint32(fields, "avatar"),
    own: own === undefined || own === null ? null : list(object(own, "own"), "objects").map(objectFromJson),
    tick: uint32(fields, "tick"),
    base: uint32(fields, "base"),
    timeUs: whole(fields, "time_us", Number.MAX_SAFE_INTEGER),
    grid: grid === undefined || grid === null ? null : gridFromJson(object(grid, "grid")),
    view: uint32(fields, "view"),
    cells: list(fields, "cells").map(cellFromJson),
  });
}

/** By how many ticks before the base the client's cells of a zone were sent last; null if the snapshot does not say. */
export function waitTicks({ waited = 0 }: Snapshot, zone: number): number | null {
  return waited === 0 ? null : (waited >>> (4 * zone)) & 15;
}

function checked(snapshot: Snapshot): Snapshot {
  const { tick, base, grid, ratePermille = FULL_RATE_PERMILLE } = snapshot;
  for (const { departed } of snapshot.cells) if (departed.includes(0)) throw malformed("an object without an id departed");
  if (tick === 0) throw malformed("it has no tick");
  if (base > tick) throw malformed(`tick ${tick} builds on the later tick ${base}`);
  if (ratePermille < 1 || ratePermille > FULL_RATE_PERMILLE) throw malformed(`a rate of ${ratePermille} thousandths`);
  if (base === 0 && grid === null) throw malformed("a full snapshot lacks the map");
  if (grid !== null) checkGrid(grid);
  return snapshot;
}

function checkGrid({ columns, rows, cellUnits, nearCells, farCells, farIntervalTicks, ticksPerSecond }: GridShape): void {
  const isSide = (cells: number) => cells >= 1 && cells <= CELLS_PER_SIDE_MAX;
  if (!isSide(columns) || !isSide(rows)) throw malformed(`a map of ${columns} × ${rows} cells`);
  if (cellUnits < 1 || cellUnits > CELL_UNITS_MAX) throw malformed(`cells of ${cellUnits} units`);
  if (nearCells > MAP_NUMBER_MAX || farCells > MAP_NUMBER_MAX) throw malformed(`a view of ${nearCells} and ${farCells} cells`);
  if (farIntervalTicks < 1 || farIntervalTicks > FAR_INTERVAL_TICKS_MAX) {
    throw malformed(`an interval of ${farIntervalTicks} ticks for far cells`);
  }
  if (ticksPerSecond < 1) throw malformed("a room that never ticks");
}

function decodeOwn(reader: Reader): RoomObject[] {
  const objects: RoomObject[] = [];
  while (!reader.done) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | LENGTH)) objects.push(decodeObject(reader.inner()));
    else skipUnknown(reader, tag, 1);
  }
  return objects;
}

function decodeGrid(reader: Reader): GridShape {
  const numbers = [0, 0, 0, 0, 0, 0, 0, 0];
  while (!reader.done) {
    const tag = reader.tag();
    const field = tag >>> 3;
    if (field <= 7 && (tag & 7) === VARINT) numbers[field] = reader.uint32();
    else skipUnknown(reader, tag, 7);
  }
  const [, columns = 0, rows = 0, cellUnits = 0, nearCells = 0, farCells = 0, farIntervalTicks = 0, ticks = 0] = numbers;
  return { columns, rows, cellUnits, nearCells, farCells, farIntervalTicks, ticksPerSecond: ticks };
}

function decodeCell(reader: Reader): CellUpdate {
  const departed: number[] = [];
  const upserts: RoomObject[] = [];
  let cell = 0;
  let full = false;
  let changes: Uint8Array = NO_STATE;
  while (!reader.done) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | VARINT)) cell = reader.uint32();
    else if (tag === ((2 << 3) | VARINT)) full = reader.bool();
    else if (tag === ((3 << 3) | LENGTH)) {
      const packed = reader.inner();
      while (!packed.done) departed.push(packed.uint32());
    } else if (tag === ((3 << 3) | VARINT)) departed.push(reader.uint32());
    else if (tag === ((4 << 3) | LENGTH)) upserts.push(decodeObject(reader.inner()));
    else if (tag === ((5 << 3) | LENGTH)) changes = reader.blob();
    else skipUnknown(reader, tag, 5);
  }
  return { cell, full, departed, upserts, ...(changes.length === 0 ? {} : { changes }) };
}

function decodeObject(reader: Reader): RoomObject {
  const made: Mutable<RoomObject> = { id: 0, kind: 0, x: 0, y: 0, state: NO_STATE };
  while (!reader.done) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | VARINT)) made.id = reader.uint32();
    else if (tag === ((2 << 3) | VARINT)) made.kind = reader.uint32();
    else if (tag === ((3 << 3) | VARINT)) made.x = reader.uint32();
    else if (tag === ((4 << 3) | VARINT)) made.y = reader.uint32();
    else if (tag === ((5 << 3) | LENGTH)) made.state = reader.blob();
    else skipUnknown(reader, tag, 5);
  }
  return identified(made);
}

function identified(object: RoomObject): RoomObject {
  if (object.id === 0) throw malformed("an object has no id");
  if (object.kind > KIND_MAX) throw malformed(`object ${object.id} is of kind ${object.kind}`);
  return object;
}

/** Unknown fields are skipped; known fields must have their type. */
function skipUnknown(reader: Reader, tag: number, known: number): void {
  const field = tag >>> 3;
  if (field <= known) throw malformed(`field ${field} has the wrong type`);
  reader.skip(tag & 7);
}

type Fields = Readonly<Record<string, unknown>>;

function object(value: unknown, what: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw malformed(`${what} is no object`);
  return value as Fields;
}

function list(fields: Fields, name: string): readonly unknown[] {
  const value = fields[name];
  if (value === undefined) return [];
  if (!Array.isArray(value)) throw malformed(`${name} is no array`);
  return value;
}

function whole(fields: Fields, name: string, max: number): number {
  const value = fields[name];
  if (value === undefined) return 0;
  if (typeof value !== "number" || !Number.isInteger(value) || value < 0 || value > max) {
    throw malformed(`${name} is no whole number from 0 to ${max}`);
  }
  return value;
}

const uint32 = (fields: Fields, name: string): number => whole(fields, name, UINT32_MAX);

function gridFromJson(fields: Fields): GridShape {
  return {
    columns: uint32(fields, "columns"),
    rows: uint32(fields, "rows"),
    cellUnits: uint32(fields, "cell_units"),
    nearCells: uint32(fields, "near_cells"),
    farCells: uint32(fields, "far_cells"),
    farIntervalTicks: uint32(fields, "far_interval_ticks"),
    ticksPerSecond: uint32(fields, "ticks_per_second"),
  };
}

function flag(fields: Fields, name: string): boolean {
  const value = fields[name] ?? false;
  if (typeof value !== "boolean") throw malformed(`${name} is neither true nor false`);
  return value;
}

function cellFromJson(value: unknown): CellUpdate {
  const fields = object(value, "a cell");
  return {
    cell: uint32(fields, "cell"),
    full: flag(fields, "full"),
    departed: list(fields, "departed").map((id) => uint32({ id }, "id")),
    upserts: list(fields, "upserts").map(objectFromJson),
  };
}

function objectFromJson(value: unknown): RoomObject {
  const fields = object(value, "an object");
  const state = fields["state"] ?? "";
  if (typeof state !== "string") throw malformed("state is no text");
  const values = fields["fields"];
  if (values !== undefined && values !== null && state !== "") throw malformed("an object has a state and fields");
  return identified({
    ...(values === undefined || values === null ? {} : { values: object(values, "fields") }),
    id: uint32(fields, "id"),
    kind: uint32(fields, "kind"),
    x: uint32(fields, "x"),
    y: uint32(fields, "y"),
    state: state === "" ? NO_STATE : decodeBase64(state),
  });
}

/** An object of a JSON session with its state instead of its values. @throws RoomError of the kind `malformed`. */
export function withState(object: RoomObject, schema: Schema | null): RoomObject {
  const { id, kind, x, y, values } = object;
  if (values === undefined) return object;
  const fields = schema?.kind(kind)?.fields;
  if (fields === undefined) throw malformed(`object ${id} has fields, and its kind has none`);
  return { id, kind, x, y, state: joinState(fields, rawsFromJson(fields, values)) };
}
