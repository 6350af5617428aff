import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { decodeBase64, decodeSnapshot, encodeBase64, Replica, RoomError, snapshotFromJson } from '../../dist/index.js';
import { cell, object, randomFrom, snapshot, toJson, toProtobuf } from '../support/snapshots.mjs';

const TYPED = JSON.parse(readFileSync(new URL('../../../../schema/vectors/room/typed.json', import.meta.url), 'utf8'));

const FULL = snapshot({
  ack: 7, avatar: 300, view: 9, own: [object(5, 4095, 3071, 7, [1, 2, 255])], tick: 100_000,
  cells: [cell(9, { full: true, upserts: [object(300, 511, 0, 1, [0]), object(4_294_967_295, 0, 511)] })],
});
const DELTA = snapshot({
  ack: 4_294_967_295, tick: 70, base: 68, view: 9, own: [],
  cells: [cell(8, { departed: [1, 300, 70_000] }), cell(9, { departed: [2], upserts: [object(300, 1, 2)] })],
});

test('a snapshot is read from both encodings alike', () => {
  for (const wanted of [FULL, DELTA, snapshot({})]) {
    assert.deepEqual(decodeSnapshot(toProtobuf(wanted)), wanted);
    assert.deepEqual(snapshotFromJson(JSON.parse(JSON.stringify(toJson(wanted)))), wanted);
  }
});

test('fields of a later version are passed over', () => {
  const later = [0xd2, 0x0f, 3, 1, 2, 3, 0xd8, 0x0f, 200, 1, 0xd9, 0x0f, 1, 2, 3, 4, 5, 6, 7, 8, 0xdd, 0x0f, 1, 2, 3, 4];
  assert.deepEqual(decodeSnapshot(Uint8Array.from([...toProtobuf(FULL), ...later])), FULL);
  assert.deepEqual(snapshotFromJson({ ...toJson(FULL), later: [1] }), FULL);
});

test('what is cut off anywhere is an error or another snapshot, never anything else', () => {
  const bytes = toProtobuf(FULL);
  let errors = 0;
  for (let length = 0; length < bytes.length; length += 1) errors += isRefused(() => decodeSnapshot(bytes.subarray(0, length)));
  assert.ok(errors > bytes.length / 2);
});

test('random and damaged bytes end in a RoomError or a snapshot that a replica takes or refuses', () => {
  const random = randomFrom(20_261_121);
  const seeds = [toProtobuf(FULL), toProtobuf(DELTA)];
  for (let round = 0; round < 20_000; round += 1) {
    const seed = seeds[round % 2];
    const bytes = round % 4 < 2 ? Uint8Array.from(seed) : new Uint8Array(random() % 96);
    const damages = round % 4 < 2 ? 1 + (random() % 4) : bytes.length;
    for (let count = 0; count < damages && bytes.length > 0; count += 1) bytes[random() % bytes.length] = random() & 255;
    const replica = new Replica({ objectsMax: 100, stateBytesMax: 1_000 });
    isRefused(() => replica.apply(decodeSnapshot(bytes)));
    assert.ok(replica.size <= 100);
  }
});

test('a schema has at most 64 KiB, in JSON as well', () => {
  const given = (bytes) => {
    const schema = { kinds: [], note: '' };
    schema.note = 'é'.repeat(1) + 'a'.repeat(bytes - JSON.stringify(schema).length - 2);
    return { tick: 1, time_us: 1, view: 0, cells: [], grid: { columns: 1, rows: 1, cell_units: 1, far_interval_ticks: 1, ticks_per_second: 1 }, schema };
  };
  assert.equal(snapshotFromJson(given(65_536)).schema.kinds.length, 0);
  assert.throws(() => snapshotFromJson(given(65_537)), { kind: 'malformed' });
});

test('damaged changes and schemas end in a RoomError or a snapshot that a replica takes or refuses', () => {
  const random = randomFrom(20_261_129);
  for (const { steps } of TYPED.vectors) {
    const good = steps.map(({ protobuf }) => Uint8Array.from(Buffer.from(protobuf, 'hex')));
    for (let round = 0; round < 2_000; round += 1) {
      const replica = new Replica({ objectsMax: 100, stateBytesMax: 10_000 });
      const damaged = random() % good.length;
      for (const [at, bytes] of good.entries()) {
        const sent = Uint8Array.from(bytes);
        // Most of the first snapshot is the schema, and most of the others are changes.
        if (at === damaged) for (let count = 1 + (random() % 3); count > 0; count -= 1) sent[random() % sent.length] ^= 1 << (random() & 7);
        if (isRefused(() => replica.apply(decodeSnapshot(sent)))) break;
        for (const object of replica.objects()) replica.fields(object);
      }
      assert.ok(replica.size <= 100);
    }
  }
});

test('values that are not of the format are refused, each with its reason', () => {
  const good = toJson(FULL);
  const cases = [
    [null, /no object/], [[], /no object/], ['x', /no object/],
    [{ ...good, tick: 0 }, /no tick/], [{ ...good, tick: -1 }, /tick is no whole/], [{ ...good, tick: 1.5 }, /tick is no whole/],
    [{ ...good, tick: 2 ** 32 }, /tick is no whole/], [{ ...good, time_us: 2 ** 53 }, /time_us/], [{ ...good, ack: '1' }, /ack/],
    [{ ...good, base: good.tick + 1, grid: undefined }, /later tick/], [{ ...good, grid: undefined }, /lacks the map/],
    [{ ...good, grid: { ...good.grid, columns: 0 } }, /a map of/], [{ ...good, grid: { ...good.grid, rows: 1025 } }, /a map of/],
    [{ ...good, grid: { ...good.grid, cell_units: 65_537 } }, /units/], [{ ...good, grid: { ...good.grid, far_interval_ticks: 0 } }, /interval/],
    [{ ...good, cells: {} }, /cells is no array/], [{ ...good, cells: [1] }, /a cell is no object/],
    [{ ...good, cells: [{ cell: 9, full: 1 }] }, /full/], [{ ...good, cells: [{ cell: 9, departed: [-1] }] }, /id/],
    [{ ...good, cells: [{ cell: 9, upserts: [{ kind: 1 }] }] }, /no id/],
    [{ ...good, cells: [{ cell: 9, upserts: [{ id: 1, state: 'AB' }] }] }, /padding/],
  ];
  for (const [value, message] of cases) {
    assert.throws(() => snapshotFromJson(value), (error) => error instanceof RoomError && message.test(error.message), JSON.stringify(value));
  }
});

test('a number over 32 bits, a varint without end and a length past the end are refused', () => {
  for (const bytes of [
    [0x20, 0x80, 0x80, 0x80, 0x80, 0x10], [0x20, ...Array(10).fill(0x80), 0], [0x20, ...Array(12).fill(0xff)],
    [0x1a, 0xff, 0xff, 0xff, 0xff, 0x0f], [0x31, 0, 0, 0, 0, 0, 0, 0x20, 0], [0x0a, 0], [0x00, 0], [0x23], [0x0d, 1, 2],
  ]) {
    assert.ok(isRefused(() => decodeSnapshot(Uint8Array.from(bytes))), bytes.join(' '));
  }
});

test('base64 agrees with the platform, and takes no other form', () => {
  const random = randomFrom(7);
  for (let length = 0; length < 40; length += 1) {
    const bytes = Uint8Array.from({ length }, () => random() & 255);
    const text = Buffer.from(bytes).toString('base64');
    assert.equal(encodeBase64(bytes), text);
    assert.deepEqual(decodeBase64(text), bytes);
  }
  for (const text of ['A', 'AA', 'AAA', 'AA=A', 'A===', '====', 'AB==', 'AAB=', 'AA\n=', 'AA-_', 'AAA\u00e9', '\ud83d\ude00AA']) {
    assert.ok(isRefused(() => decodeBase64(text)), text);
  }
});

/** Whether the function throws a RoomError. Other errors are passed on. */
function isRefused(act) {
  try {
    act();
    return 0;
  } catch (error) {
    if (error instanceof RoomError) return 1;
    throw error;
  }
}
