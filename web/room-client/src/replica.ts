/** A client's copy of the visible objects, updated by snapshots. */

import { malformed, RoomError } from "./error.js";
import { readChanges } from "./changes.js";
import { FAR_ZONE, Grid } from "./grid.js";
import type { FieldValues, Schema } from "./schema.js";
import { FULL_RATE_PERMILLE, type RoomObject, type Snapshot, waitTicks, withState } from "./snapshot.js";

/** An object that the player sees. It is immutable: a change creates a new one. */
export interface SeenObject {
  readonly id: number;
  readonly kind: number;
  /** Units from the map's corner. */
  readonly x: number;
  readonly y: number;
  /** In the game's own format. */
  readonly state: Uint8Array;
  /** Null for objects that only this player receives. */
  readonly cell: number | null;
}

/** The changes of one snapshot. An object that only moved to another cell is changed, not removed and added. */
export interface Changes {
  readonly snapshot: Snapshot;
  /** Whether the snapshot was full; `removed` and `added` are the difference to the state before. */
  readonly full: boolean;
  readonly added: readonly SeenObject[];
  readonly changed: readonly { readonly before: SeenObject; readonly after: SeenObject }[];
  readonly removed: readonly SeenObject[];
}

export interface ReplicaLimits {
  /** Maximum number of objects. */
  readonly objectsMax: number;
  /** Maximum total size of the objects' states in bytes. */
  readonly stateBytesMax: number;
}

export const REPLICA_LIMITS: ReplicaLimits = { objectsMax: 1_000_000, stateBytesMax: 256 << 20 };

/** The new states of the objects in a snapshot; null for removed objects. */
type Outcome = Map<number, SeenObject | null>;

export class Replica {
  private readonly seen = new Map<number, SeenObject>();
  private readonly cells = new Map<number, Set<number>>();
  /** Objects that only this player receives; some may have moved to a cell since. */
  private own: readonly number[] = [];
  private map: Grid | null = null;
  private known: Schema | null = null;
  private stateBytes = 0;
  private last: Snapshot | null = null;
  private readonly limits: ReplicaLimits;

  constructor(limits: Partial<ReplicaLimits> = {}) {
    this.limits = { ...REPLICA_LIMITS, ...limits };
  }

  /** The current tick; 0 before the first snapshot. */
  get tick(): number {
    return this.last?.tick ?? 0;
  }

  /** The Unix time of that tick at the server, in microseconds. */
  get timeUs(): number {
    return this.last?.timeUs ?? 0;
  }

  /** The rate of the room's clock at that tick, in thousandths: 1,000 is real time. An overloaded room runs slower. */
  get ratePermille(): number {
    return this.last?.ratePermille ?? FULL_RATE_PERMILLE;
  }

  /**
   * For each zone of the view, by how many ticks before the base of the last snapshot its cells were sent last. All are 0
   * if no cells have waited for a bandwidth limit.
   */
  get waitedTicks(): readonly number[] {
    const { last } = this;
    return Array.from({ length: FAR_ZONE + 1 }, (_, zone) => (last === null ? 0 : waitTicks(last, zone) ?? 0));
  }

  /** The number of ticks in a second of real time at that rate; 0 before the first snapshot. */
  get ticksPerSecond(): number {
    return ((this.map?.shape.ticksPerSecond ?? 0) * this.ratePermille) / 1_000;
  }

  /**
   * The tick that the world showed at this server time, which `Interpolation.advance` returns; 0 before the first
   * snapshot. A game whose server rewinds the world to this tick sends it with the input.
   */
  tickAt(serverTimeMs: number): number {
    const later = Math.round(((serverTimeMs - this.timeUs / 1_000) * this.ticksPerSecond) / 1_000);
    return this.last === null ? 0 : Math.min(Math.max(this.tick + later, 1), 0xffff_ffff);
  }

  /** The number of the last input that the room had applied. */
  get ack(): number {
    return this.last?.ack ?? 0;
  }

  /** The id of the player's own object; 0 for none. */
  get avatar(): number {
    return this.last?.avatar ?? 0;
  }

  /** The cell of the player's viewpoint. */
  get view(): number {
    return this.last?.view ?? 0;
  }

  /** The map, after the first full snapshot. */
  get grid(): Grid | null {
    return this.map;
  }

  /** The number of objects. */
  get size(): number {
    return this.seen.size;
  }

  object(id: number): SeenObject | undefined {
    return this.seen.get(id);
  }

  objects(): IterableIterator<SeenObject> {
    return this.seen.values();
  }

  /** What the states are made of; null if the room has not told. */
  get schema(): Schema | null {
    return this.known;
  }

  /** The fields of an object's state; null if its kind has none, or its state is not made of them. */
  fields(object: SeenObject): FieldValues | null {
    return this.known?.values(object.kind, object.state) ?? null;
  }

  /** Ids of the objects in a cell. */
  inCell(cell: number): ReadonlySet<number> {
    return this.cells.get(cell) ?? NOTHING;
  }

  /** Removes all objects. */
  clear(): void {
    this.seen.clear();
    this.cells.clear();
    this.own = [];
    this.map = null;
    this.known = null;
    this.stateBytes = 0;
    this.last = null;
  }

  /** Applies a snapshot completely. @throws RoomError; the replica is unchanged then. */
  apply(snapshot: Snapshot): Changes {
    const full = snapshot.base === 0;
    if (!full && snapshot.base !== this.tick) {
      throw new RoomError("wrong_base", `tick ${snapshot.tick} has base ${snapshot.base}, but the replica is at tick ${this.tick}`);
    }
    const grid = this.gridOf(snapshot);
    if (snapshot.view >= grid.length) throw new RoomError("wrong_cell", `the view ${snapshot.view} is not on the map`);
    checkCells(snapshot, grid);
    const schema = snapshot.schema ?? this.known;
    const outcome = this.outcomeOf(this.whole(snapshot, schema, grid, full), grid, full);
    this.checkSize(outcome);
    if (full || snapshot.own !== null) this.own = (snapshot.own ?? []).map(({ id }) => id);
    this.map = grid;
    this.known = schema;
    this.last = snapshot;
    return this.take(snapshot, full, outcome);
  }

  /** The snapshot with whole states only: changes and values become the objects that they lead to. */
  private whole(snapshot: Snapshot, schema: Schema | null, grid: Grid, full: boolean): Snapshot {
    const { cellUnits } = grid.shape;
    let bytesLeft = this.limits.stateBytesMax;
    const cells = snapshot.cells.map((update) => {
      const { cell, changes } = update;
      const upserts = update.upserts.map((object) => withState(object, schema));
      if (changes === undefined) return { ...update, upserts };
      if (full || update.full || this.known === null) throw malformed(`cell ${cell} has changes without a base`);
      const left = grid.column(cell) * cellUnits;
      const top = grid.row(cell) * cellUnits;
      const known = (id: number) => {
        const seen = this.seen.get(id);
        return seen === undefined || seen.cell !== cell ? null : { ...seen, x: seen.x - left, y: seen.y - top };
      };
      const changed = readChanges(changes, this.known, cellUnits, known, bytesLeft);
      for (const { state } of changed) bytesLeft -= state.length;
      return { ...update, upserts: [...upserts, ...changed] };
    });
    const own = snapshot.own?.map((object) => withState(object, schema)) ?? null;
    return { ...snapshot, own, cells };
  }

  private gridOf(snapshot: Snapshot): Grid {
    const { grid } = snapshot;
    // Only a full snapshot contains the map; a delta has the map of its base.
    if (snapshot.base !== 0 || grid === null) {
      if (this.map === null) throw malformed("no snapshot has set the map");
      return this.map;
    }
    return this.map !== null && this.map.equals(grid) ? this.map : new Grid(grid);
  }

  private outcomeOf(snapshot: Snapshot, grid: Grid, full: boolean): Outcome {
    const outcome: Outcome = new Map();
    if (full) for (const id of this.seen.keys()) outcome.set(id, null);
    if (snapshot.own !== null) this.replaceOwn(snapshot.own, grid, outcome);
    if (!full && snapshot.view !== this.view) {
      for (const [cell, ids] of this.cells) if (grid.band(snapshot.view, cell) === null) forget(ids, outcome);
    }
    for (const { cell, full: isFull, departed } of snapshot.cells) {
      if (isFull) forget(this.inCell(cell), outcome);
      for (const id of departed) if (!outcome.has(id) && this.seen.get(id)?.cell === cell) outcome.set(id, null);
    }
    upserts(snapshot, grid, outcome);
    return outcome;
  }

  private replaceOwn(own: readonly RoomObject[], grid: Grid, outcome: Outcome): void {
    for (const id of this.own) if (this.seen.get(id)?.cell === null) outcome.set(id, null);
    for (const object of own) {
      if (object.x >= grid.widthUnits || object.y >= grid.heightUnits) {
        throw malformed(`object ${object.id} lies outside the map`);
      }
      outcome.set(object.id, { ...object, cell: null });
    }
  }

  private checkSize(outcome: Outcome): void {
    let objects = this.seen.size;
    let bytes = this.stateBytes;
    for (const [id, after] of outcome) {
      const before = this.seen.get(id);
      objects += (after === null ? 0 : 1) - (before === undefined ? 0 : 1);
      bytes += (after?.state.length ?? 0) - (before?.state.length ?? 0);
    }
    if (objects > this.limits.objectsMax) throw new RoomError("too_large", `the snapshot would make it ${objects} objects`);
    if (bytes > this.limits.stateBytesMax) throw new RoomError("too_large", `the snapshot would make it ${bytes} bytes`);
  }

  private take(snapshot: Snapshot, full: boolean, outcome: Outcome): Changes {
    const added: SeenObject[] = [];
    const changed: { before: SeenObject; after: SeenObject }[] = [];
    const removed: SeenObject[] = [];
    for (const [id, after] of outcome) {
      const before = this.seen.get(id);
      if (before === undefined) {
        if (after !== null) added.push(after);
      } else if (after === null) removed.push(before);
      else if (!isSame(before, after)) changed.push({ before, after });
      this.put(id, before, after);
    }
    return { snapshot, full, added, changed, removed };
  }

  private put(id: number, before: SeenObject | undefined, after: SeenObject | null): void {
    if (before !== undefined) {
      this.stateBytes -= before.state.length;
      this.seen.delete(id);
      if (before.cell !== null && before.cell !== after?.cell) this.leave(before.cell, id);
    }
    if (after === null) return;
    this.stateBytes += after.state.length;
    this.seen.set(id, after);
    if (after.cell === null) return;
    const ids = this.cells.get(after.cell);
    if (ids === undefined) this.cells.set(after.cell, new Set([id]));
    else ids.add(id);
  }

  private leave(cell: number, id: number): void {
    const ids = this.cells.get(cell);
    ids?.delete(id);
    if (ids?.size === 0) this.cells.delete(cell);
  }
}

const NOTHING: ReadonlySet<number> = new Set();

/** Removes objects, except those that the snapshot has already updated. */
function forget(ids: Iterable<number>, outcome: Outcome): void {
  for (const id of ids) if (!outcome.has(id)) outcome.set(id, null);
}

/** Checks that cells are visible and ascending. A cell may occur twice: in full first, then as a delta. */
function checkCells({ cells, view }: Snapshot, grid: Grid): void {
  for (const { cell } of cells) {
    if (cell >= grid.length || grid.band(view, cell) === null) {
      throw new RoomError("wrong_cell", `cell ${cell} is outside the view of cell ${view}`);
    }
  }
  for (const [at, next] of cells.entries()) {
    const one = cells[at - 1];
    if (one === undefined || one.cell < next.cell || (one.cell === next.cell && one.full && !next.full)) continue;
    throw malformed(`cell ${next.cell} comes after cell ${one.cell}`);
  }
}

function upserts(snapshot: Snapshot, grid: Grid, outcome: Outcome): void {
  const { cellUnits } = grid.shape;
  for (const { cell, upserts: objects } of snapshot.cells) {
    const left = grid.column(cell) * cellUnits;
    const top = grid.row(cell) * cellUnits;
    for (const object of objects) {
      if (object.x >= cellUnits || object.y >= cellUnits) throw malformed(`object ${object.id} lies outside its cell`);
      outcome.set(object.id, { ...object, x: left + object.x, y: top + object.y, cell });
    }
  }
}

function isSame(a: SeenObject, b: SeenObject): boolean {
  return (
    a.kind === b.kind && a.x === b.x && a.y === b.y && a.cell === b.cell && a.state.length === b.state.length &&
    a.state.every((byte, at) => byte === b.state[at])
  );
}
