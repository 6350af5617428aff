// The vectors that all languages share: schema/vectors/room.
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { decodeSnapshot, encodeInput, Replica, RoomError, snapshotFromJson } from '../../dist/index.js';
import { decodeSchema, splitState } from '../../dist/schema.js';
import { bitsOf } from '../../dist/bits.js';
import { play } from '../support/movement.mjs';

const VECTORS = new URL('../../../../schema/vectors/room/', import.meta.url);
const read = (name) => JSON.parse(readFileSync(new URL(name, VECTORS), 'utf8'));
const hex = (text) => Uint8Array.from(Buffer.from(text, 'hex'));

const KINDS = { Malformed: 'malformed', WrongBase: 'wrong_base', WrongCell: 'wrong_cell', TooLarge: 'too_large' };

/** The encodings of a step or a vector, each with a function that creates its snapshot. */
function* forms({ json, protobuf }) {
  if (json !== null && json !== undefined) yield ['JSON', () => snapshotFromJson(parsed(json))];
  if (protobuf !== null && protobuf !== undefined) yield ['Protobuf', () => decodeSnapshot(hex(protobuf))];
}

/** The SDK parses a JSON session's messages, and closes the connection if one is not JSON. */
function parsed(json) {
  try {
    return JSON.parse(json);
  } catch {
    throw new RoomError('malformed', 'no JSON');
  }
}

/** A replica in the format of the vectors; with the fields of objects for those that have them. */
function written(replica, hasFields = false) {
  const { tick, timeUs, ack, avatar, view, grid, ratePermille } = replica;
  const shape = grid?.shape;
  const objects = [...replica.objects()].sort((a, b) => a.id - b.id);
  return {
    tick, time_us: timeUs, ack, avatar, view, ...(ratePermille === 1_000 ? {} : { rate: ratePermille }),
    ...(replica.waitedTicks.every((ticks) => ticks === 0) ? {} : { waited: replica.waitedTicks }),
    grid: shape === undefined ? null : {
      columns: shape.columns, rows: shape.rows, cell_units: shape.cellUnits, near_cells: shape.nearCells,
      far_cells: shape.farCells, far_interval_ticks: shape.farIntervalTicks, ticks_per_second: shape.ticksPerSecond,
    },
    objects: objects.map((object) => ({
      ...object, state: Buffer.from(object.state).toString('hex'), ...(hasFields ? { fields: whole(replica, object) } : {}),
    })),
  };
}

/** The fields of an object. In the vectors, fixed-point numbers are integers, as in JSON. */
function whole(replica, object) {
  const fields = replica.fields(object);
  const kind = replica.schema?.kind(object.kind);
  const steps = new Map(kind?.fields.map(({ name, perUnit }) => [name, perUnit]));
  const values = Object.entries(fields ?? {}).map(([name, value]) => [name, typeof value === 'number' ? Math.round(value * steps.get(name)) : value]);
  return fields === null ? null : Object.fromEntries(values);
}

for (const name of ['snapshots.json', 'snapshots-lenient.json', 'typed.json']) {
  for (const vector of read(name).vectors) {
    for (const encoding of ['JSON', 'Protobuf']) {
      const steps = vector.steps.map((step) => [new Map(forms(step)).get(encoding), step.replica]);
      if (steps.some(([make]) => make === undefined)) continue;
      test(`${name}: ${vector.name}, ${encoding}`, () => {
        const replica = new Replica();
        for (const [make, wanted] of steps) {
          replica.apply(make());
          assert.deepEqual(written(replica, name === 'typed.json'), wanted);
        }
      });
    }
  }
}

/** Vectors that only the JSON parser can refuse. Here, the SDK parses JSON. */
const PARSED_AWAY = ['JSON, a name twice'];

for (const name of ['snapshots-malformed.json', 'typed-malformed.json']) {
  const malformed = read(name);
  const firsts = new Map(forms(malformed.first));
  for (const vector of malformed.vectors) {
    if (PARSED_AWAY.includes(vector.name)) continue;
    for (const [encoding, make] of forms(vector)) {
      test(`${name}: ${vector.name}, ${encoding}`, () => {
        const replica = new Replica();
        replica.apply(firsts.get(encoding)());
        assert.throws(() => replica.apply(make()), { name: 'RoomError', kind: KINDS[vector.error] });
        assert.deepEqual(written(replica, name === 'typed-malformed.json'), malformed.replica);
      });
    }
  }
}

const encoded = (text) => new TextEncoder().encode(text);

for (const { name, document, error } of read('schemas.json').vectors) {
  test(`schemas.json: ${name}`, () => {
    const decode = () => decodeSchema(encoded(JSON.stringify(document)));
    if (error === null) decode();
    else assert.throws(decode, { name: 'RoomError', kind: 'malformed' });
  });
}

test('a schema is at most 64 KiB long', () => {
  const text = (bytes) => JSON.stringify({ kinds: [], about: 'x'.repeat(bytes) });
  const most = 65_536 - text(0).length;
  decodeSchema(encoded(text(most)));
  assert.throws(() => decodeSchema(encoded(text(most + 1))), { name: 'RoomError', kind: 'malformed' });
});

test('texts keep a byte order mark, and are UTF-8', () => {
  const schema = decodeSchema(encoded('{"kinds":[{"kind":1,"name":"K","fields":[{"name":"t","type":"text","count_max":9}]}]}'));
  assert.deepEqual(schema.values(1, encoded('\ufeffa')), { t: '\ufeffa' });
  assert.equal(schema.values(1, Uint8Array.of(0x61, 0xff)), null);
  assert.equal(splitState(schema.kind(1).fields, Uint8Array.of(0xc3)), null);
});

test('a number has as many bits as it needs', () => {
  const numbers = [0, 1, 2, 3, 255, 256, 2 ** 29 - 1, 2 ** 29, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1];
  assert.deepEqual(numbers.map(bitsOf), [0, 1, 2, 2, 8, 9, 29, 30, 31, 32, 32]);
});

for (const { name, meaning, json, protobuf } of read('inputs.json').vectors) {
  test(`inputs.json: ${name}`, () => {
    const { number, data, room } = meaning;
    assert.deepEqual(Buffer.from(encodeInput('protobuf', number, hex(data), room)).toString('hex'), protobuf);
    assert.equal(JSON.stringify(encodeInput('json', number, hex(data), room)), json);
  });
}

for (const vector of read('movement.json').vectors) {
  test(`movement.json: ${vector.name}`, () => {
    for (const [at, numbers] of play(vector).entries()) {
      assert.equal(numbers.length, vector.gives[at].length, `step ${at}`);
      for (const [index, number] of numbers.entries()) assert.ok(Math.abs(number - vector.gives[at][index]) < 1e-6, `step ${at}: ${numbers}`);
    }
  });
}
