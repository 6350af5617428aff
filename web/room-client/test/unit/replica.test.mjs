import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Replica, snapshotFromJson } from '../../dist/index.js';
import { cell, object, snapshot, toJson } from '../support/snapshots.mjs';

// The grid has 8 × 6 cells. The player's view is cell 9 (column 1, row 1): it sees columns 0 to 3 and rows 0 to 3.
const start = (parts = {}) => {
  const replica = new Replica(parts.limits);
  const changes = replica.apply(snapshot({
    tick: 1, view: 9, own: [object(90, 5, 5, 7)],
    cells: [cell(9, { full: true, upserts: [object(1, 10, 20), object(2, 30, 40)] }), cell(10, { full: true, upserts: [object(3, 0, 0)] })],
  }));
  return { replica, changes };
};
const delta = (parts) => snapshot({ tick: 2, base: 1, view: 9, ...parts });
const ids = (objects) => objects.map(({ id }) => id).sort((a, b) => a - b);

test('a full snapshot adds everything, at places on the map', () => {
  const { replica, changes } = start();
  assert.ok(changes.full);
  assert.deepEqual(ids(changes.added), [1, 2, 3, 90]);
  assert.deepEqual(replica.object(1), { ...object(1, 522, 532), cell: 9 });
  assert.deepEqual(replica.object(90), { ...object(90, 5, 5, 7), cell: null });
  assert.equal(replica.size, 4);
});

test('an object that crosses into another cell is changed, whatever the order of the cells', () => {
  for (const [from, to, id] of [[9, 10, 1], [10, 9, 3]]) {
    const { replica } = start();
    const cells = [cell(from, { departed: [id] }), cell(to, { upserts: [object(id, 7, 7)] })].sort((a, b) => a.cell - b.cell);
    const changes = replica.apply(delta({ cells }));
    assert.deepEqual([ids(changes.added), ids(changes.removed)], [[], []]);
    assert.deepEqual(changes.changed.map(({ before, after }) => [before.cell, after.cell]), [[from, to]]);
    assert.ok(replica.inCell(to).has(id) && !replica.inCell(from).has(id));
  }
});

test('a departure counts only for an object in that cell', () => {
  const { replica } = start();
  const changes = replica.apply(delta({ cells: [cell(9, { departed: [3, 77] }), cell(10, { departed: [1] })] }));
  assert.deepEqual(changes.removed, []);
  assert.equal(replica.size, 4);
});

test('a repeated object without a difference is not a change', () => {
  const { replica } = start();
  const changes = replica.apply(delta({ own: [object(90, 5, 5, 7)], cells: [cell(9, { full: true, upserts: [object(1, 10, 20), object(2, 30, 41)] })] }));
  assert.deepEqual([changes.added, changes.removed], [[], []]);
  assert.deepEqual(changes.changed.map(({ after }) => [after.id, after.y]), [[2, 553]]);
});

test('a full cell forgets what it does not tell', () => {
  const { replica } = start();
  assert.deepEqual(ids(replica.apply(delta({ cells: [cell(9, { full: true, upserts: [object(2, 30, 40)] })] })).removed), [1]);
  assert.deepEqual(ids(replica.apply(snapshot({ tick: 3, base: 2, view: 9, cells: [cell(9, { full: true })] })).removed), [2]);
  assert.equal(replica.inCell(9).size, 0);
});

test('a view that moves drops the cells that it no longer includes', () => {
  const { replica } = start();
  const changes = replica.apply(delta({ view: 12, cells: [cell(12, { full: true, upserts: [object(4, 1, 1)] })] }));
  assert.deepEqual([ids(changes.removed), ids(changes.added)], [[1, 2], [4]]);
  assert.deepEqual(ids([...replica.objects()]), [3, 4, 90]);
});

test("a player's own objects are replaced as a whole, and kept when nothing is said of them", () => {
  const { replica } = start();
  assert.deepEqual(replica.apply(delta({})).removed, []);
  const changes = replica.apply(snapshot({ tick: 3, base: 2, view: 9, own: [object(91, 1, 1)] }));
  assert.deepEqual([ids(changes.removed), ids(changes.added)], [[90], [91]]);
});

test('a full snapshot later tells the difference', () => {
  const { replica } = start();
  const changes = replica.apply(snapshot({ tick: 9, view: 9, cells: [cell(9, { full: true, upserts: [object(1, 10, 20), object(8, 1, 1)] })] }));
  assert.deepEqual([ids(changes.added), ids(changes.removed), changes.changed], [[8], [2, 3, 90], []]);
});

test('after an error the replica is what it was', () => {
  const cases = [
    ['wrong_base', delta({ tick: 3, base: 2 })], ['wrong_base', snapshot({ tick: 8, base: 7, view: 9 })],
    ['wrong_cell', delta({ view: 48 })], ['wrong_cell', delta({ cells: [cell(9, { departed: [1] }), cell(12)] })],
    ['wrong_cell', delta({ cells: [cell(48)] })], ['malformed', delta({ cells: [cell(9, { departed: [1], upserts: [object(5, 512, 0)] })] })],
    ['malformed', delta({ own: [object(5, 8 * 512, 0)] })],
    ['too_large', delta({ cells: [cell(9, { departed: [1], upserts: [object(5, 0, 0), object(6, 0, 0)] })] })],
    ['too_large', delta({ cells: [cell(9, { upserts: [object(1, 10, 20, 1, [1, 2, 3, 4, 5])] })] })],
    ['too_large', delta({ own: [object(90, 5, 5, 7), object(91, 0, 0)] })],
  ];
  for (const [kind, bad] of cases) {
    const { replica } = start({ limits: { objectsMax: 4, stateBytesMax: 4 } });
    const before = [...replica.objects()];
    assert.throws(() => replica.apply(bad), { name: 'RoomError', kind });
    assert.deepEqual([...replica.objects()], before);
    assert.equal(replica.tick, 1);
  }
  const { replica } = start({ limits: { objectsMax: 4, stateBytesMax: 4 } });
  replica.apply(delta({ cells: [cell(9, { departed: [1], upserts: [object(5, 0, 0, 1, [1, 2, 3, 4])] })] }));
  assert.equal(replica.size, 4, 'at the limit is not over it');
});

test('changes end at the limit of bytes', () => {
  // Of a list of one number, a change has only the length: 11 bits for 4 KiB.
  const items = { name: 'items', type: 'list', bytes: 4, min: 5, max: 5, count_min: 0, count_max: 1024 };
  const schema = { kinds: [{ kind: 1, name: 'Bag', fields: [items] }] };
  const first = { ...toJson(snapshot({ cells: [cell(0, { upserts: [object(1, 0, 0), object(2, 0, 0), object(3, 0, 0)] })] })), schema };
  // The number of objects; then for both its id, the set of changed things, and the length.
  const changesOf = (count) => bytesOf([[1, 2], [count - 1, 4], [0, 1], [0, 1], [2, 2], [1024, 11], [0, 1], [1, 1], [1024, 11]]);
  const outcome = (count, stateBytesMax) => {
    const replica = new Replica({ objectsMax: 10, stateBytesMax });
    replica.apply(snapshotFromJson(first));
    try {
      replica.apply(snapshot({ tick: 2, base: 1, cells: [cell(0, { changes: changesOf(count) })] }));
    } catch (error) {
      return error.kind;
    }
    return replica.object(2).state.length;
  };
  assert.equal(outcome(2, 8192), 4096, 'at the limit');
  assert.equal(outcome(3, 8191), 'too_large', 'the third object, which is missing, is not looked for');
  assert.equal(outcome(3, 8192), 'malformed');
});

/** Numbers in some bits each. */
function bytesOf(numbers) {
  const bits = numbers.flatMap(([number, count]) => Array.from({ length: count }, (_, bit) => (number >> bit) & 1));
  const bytes = new Uint8Array(Math.ceil(bits.length / 8));
  bits.forEach((bit, at) => { bytes[at >> 3] |= bit << (at & 7); });
  return bytes;
}

test('a replica without a map takes no delta', () => {
  assert.throws(() => new Replica().apply(snapshot({ tick: 2, base: 1 })), { kind: 'wrong_base' });
});

test('the tick that was shown follows from the shown time', () => {
  assert.equal(new Replica().tickAt(1_790_000_000_000), 0);
  const replica = new Replica();
  replica.apply(snapshot({ tick: 600, view: 9 }));
  const now = replica.timeUs / 1_000;
  for (const [agoMs, tick] of [[0, 600], [8, 600], [9, 599], [100, 594], [-17, 601], [60_000, 1]]) {
    assert.equal(replica.tickAt(now - agoMs), tick, `${agoMs} ms ago`);
  }
});

test('the tick that was shown in a room that is slowed', () => {
  const replica = new Replica();
  assert.deepEqual([replica.ratePermille, replica.ticksPerSecond], [1_000, 0]);
  replica.apply(snapshot({ tick: 600, view: 9, ratePermille: 500 }));
  const now = replica.timeUs / 1_000;
  for (const [agoMs, tick] of [[0, 600], [33, 599], [100, 597], [-34, 601]]) {
    assert.equal(replica.tickAt(now - agoMs), tick, `${agoMs} ms ago`);
  }
});
