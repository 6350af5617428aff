// Compares the small Protobuf codec with the SDK's own on the vectors of the client protocol, and checks the size of
// the bundle.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { ProtobufCodec } from '../../dist/protobuf_codec.js';

const BUNDLE_BYTES_MAX = 40 * 1024;
const VECTORS = new URL('../../../../schema/vectors/protocol/', import.meta.url);
// The SDK's ES modules import a file without its extension, which Node does not find.
const { Centrifuge } = createRequire(import.meta.url)('centrifuge/build/protobuf');
const official = new Centrifuge('ws://127.0.0.1:1', {})._codec;
const codec = new ProtobufCodec();
/** An empty map is equivalent to an absent one. */
const MAPS = new Set(['tags', 'subs', 'headers', 'presence']);
const PAYLOADS = new Set(['data', 'conn_info', 'chan_info']);

/** Fields that differ from their default, with bytes in hexadecimal and numbers as doubles. */
function plain(value) {
  if (value instanceof Uint8Array) return Buffer.from(value).toString('hex');
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  if (typeof value.toNumber === 'function') return value.toNumber();
  const isSet = ([name, field]) => field !== '' && field !== 0 && field !== false && !(Array.isArray(field) && field.length === 0) && !(MAPS.has(name) && Object.keys(field).length === 0);
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, plain(field)]).filter(isSet));
}

/** The meaning of a vector in the form that the SDK passes to a codec. */
function given(value, name) {
  if (PAYLOADS.has(name)) return Uint8Array.from(typeof value === 'string' ? Buffer.from(value) : Buffer.from(value.hex, 'hex'));
  if (Array.isArray(value)) return value.map((item) => given(item));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, field]) => [key, given(field, key)]));
}

const isExact = (value) => typeof value === 'number' ? Number.isSafeInteger(value) : typeof value !== 'object' || value === null || Object.values(value).every(isExact);

function frames(name) {
  const { vectors } = JSON.parse(readFileSync(new URL(name, VECTORS), 'utf8'));
  return vectors.filter(({ protobuf, error, differs }) => typeof protobuf === 'string' && !error && !differs)
    .map((vector) => [vector.name, Uint8Array.from(Buffer.from(vector.protobuf, 'hex')), vector.meaning]);
}

for (const file of ['replies.json', 'pushes.json']) {
  test(`${file}: frames of the server are read as the SDK reads them`, () => {
    const all = frames(file);
    assert.ok(all.length > 20);
    for (const [name, frame, meaning] of all.filter((one) => isExact(one[2]))) assert.deepEqual(codec.decodeReplies(frame).map(plain), official.decodeReplies(frame).map(plain), `${name} ${JSON.stringify(meaning)}`);
  });
}

test('commands.json: commands are written as the SDK writes them', () => {
  let compared = 0;
  for (const [name, frame, meaning] of frames('commands.json')) {
    if (!isExact(meaning)) continue;
    assert.equal(Buffer.from(codec.encodeCommands(meaning.map((command) => given(command)))).toString('hex'), Buffer.from(frame).toString('hex'), name);
    compared += 1;
  }
  assert.ok(compared > 40, `${compared}`);
});

test('negative numbers take ten bytes, as int32 does in Protobuf', () => {
  const history = (limit) => Buffer.from(codec.encodeCommands([{ id: 1, history: { channel: 'c', limit } }])).toString('hex');
  for (const limit of [-1, -2_147_483_648, 1, 2_147_483_647]) {
    assert.equal(history(limit), Buffer.from(official.encodeCommands([{ id: 1, history: { channel: 'c', limit } }])).toString('hex'));
  }
});

test('what is no frame is an error, and a name of a map reaches no prototype', () => {
  for (const bytes of [[5], [2, 8], [2, 13, 0], [3, 34, 1, 255], [1, 7]]) {
    assert.throws(() => codec.decodeReplies(Uint8Array.from(bytes)), { name: 'RoomError' }, `${bytes}`);
  }
  const entry = [10, 9, ...Buffer.from('__proto__'), 18, 3, 10, 1, 120];
  const frame = Uint8Array.from([4 + entry.length, 74, 2 + entry.length, 10, entry.length, ...entry]);
  const [{ presence }] = codec.decodeReplies(frame);
  assert.deepEqual(Object.keys(presence.presence), ['__proto__']);
  assert.equal(Object.getPrototypeOf(presence.presence), Object.prototype);
});

test(`the bundle has at most ${BUNDLE_BYTES_MAX} bytes with gzip`, async () => {
  const path = new URL('../../dist/room-client.min.js', import.meta.url);
  const bytes = gzipSync(readFileSync(path), { level: 9 }).length;
  assert.ok(bytes <= BUNDLE_BYTES_MAX, `${bytes}`);
  // The bundle is complete.
  const bundle = await import(path);
  assert.equal(new bundle.Centrifuge('ws://127.0.0.1:1')._codec.name(), 'protobuf');
  for (const name of ['Room', 'Replica', 'Interpolation', 'Prediction']) assert.equal(typeof bundle[name], 'function');
});
