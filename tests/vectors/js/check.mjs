// Compares the vectors of schema/vectors/protocol with the codecs of the official JavaScript SDK:
//   node check.mjs FOLDER
// It writes every command and reads every reply and push; in Protobuf it also reads commands and writes replies.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

// The package's ES modules import a file without its extension, which Node does not find.
const require = createRequire(import.meta.url);
const { Centrifuge } = require('centrifuge');
const { Centrifuge: CentrifugeProtobuf } = require('centrifuge/build/protobuf');

// For each file: the type of its messages, and whether official encoders write identical frames.
const KINDS = {
  'commands.json': { isCommand: true, canonical: true },
  'commands-lenient.json': { isCommand: true, canonical: false },
  'commands-malformed.json': { isCommand: true, canonical: false },
  'replies.json': { isCommand: false, canonical: true },
  'pushes.json': { isCommand: false, canonical: true },
};
// Fields that are maps. `presence` of a result is also a map.
const MAPS = new Set(['tags', 'subs', 'headers']);
const PAYLOADS = new Set(['data', 'conn_info', 'chan_info']);

const json = new Centrifuge('ws://127.0.0.1:1', {})._codec;
const protobuf = new CentrifugeProtobuf('ws://127.0.0.1:1', {})._codec;
assert.deepEqual([json.name(), protobuf.name()], ['json', 'protobuf']);

const folder = process.argv[2];
const names = readdirSync(folder).filter(name => name.endsWith('.json')).sort();
assert.deepEqual(names, Object.keys(KINDS).sort(), 'exactly the known files');

let checked = 0;
let failures = 0;
for (const name of names) {
  for (const vector of JSON.parse(readFileSync(join(folder, name), 'utf8')).vectors) {
    // Frames that a server must reject do not concern a client.
    if (vector.error || vector.differs) continue;
    for (const check of [checkJson, checkProtobuf]) {
      try {
        checked += check(vector, KINDS[name]);
      } catch (error) {
        failures += 1;
        console.error(`${name}: ${vector.name}: ${error.message.slice(0, 600)}`);
      }
    }
  }
}
// Patches, as text for a JSON session and as bytes for a Protobuf session.
let patches = 0;
for (const { name, old, new: made, patch } of JSON.parse(readFileSync(join(folder, '../delta/patches.json'), 'utf8')).vectors) {
  if (patch === null) continue;
  const bytes = text => new Uint8Array(Buffer.from(text));
  const isJson = /^[[{"]/.test(old) && /^[[{"].*[\]}"]$/.test(made);
  for (const [codec, convert] of [[json, text => text], [protobuf, bytes]]) {
    // A text frame contains only JSON.
    if (codec === json && !isJson) continue;
    try {
      const previous = codec.applyDeltaIfNeeded({ data: convert(codec === json ? JSON.stringify(old) : old) }, null).newPrevValue;
      const before = codec === json ? bytes(old) : previous;
      const applied = codec.applyDeltaIfNeeded({ data: convert(patch), delta: true }, before).newPrevValue;
      assert.equal(Buffer.from(applied).toString(), made);
      patches += 1;
    } catch (error) {
      failures += 1;
      console.error(`patches.json: ${name}: ${error.message.slice(0, 600)}`);
    }
  }
}
if (failures > 0) {
  console.error(`${failures} frames differ from the official JavaScript codecs`);
  process.exit(1);
}
console.log(`JavaScript: ${checked} frames and ${patches} patches agree`);

function checkJson(vector, { isCommand, canonical }) {
  if (typeof vector.json !== 'string') return 0;
  const meaning = vector.meaning.map(message => mapPayloads(message, payload => JSON.parse(payload)));
  if (!isCommand) {
    assert.deepEqual(json.decodeReplies(vector.json).map(message => withoutZeros(message)), meaning.map(message => withoutZeros(message)));
    return 1;
  }
  if (!canonical) return 0;
  const written = json.encodeCommands(meaning);
  assert.deepEqual(written.split('\n').map(line => JSON.parse(line)), vector.json.split('\n').map(line => JSON.parse(line)));
  return 1;
}

function checkProtobuf(vector, { isCommand, canonical }) {
  if (typeof vector.protobuf !== 'string') return 0;
  const frame = new Uint8Array(Buffer.from(vector.protobuf, 'hex'));
  const messages = isCommand ? protobuf.decodeCommands(frame) : protobuf.decodeReplies(frame);
  const meaning = vector.meaning.map(message => mapPayloads(message, payloadBytes));
  assert.deepEqual(messages.map(plain).map(message => withoutZeros(message)), meaning.map(plain).map(message => withoutZeros(message)));
  if (canonical && meaning.every(numbersFit)) {
    const written = isCommand ? protobuf.encodeCommands(meaning) : protobuf.encodeReplies(meaning);
    assert.equal(Buffer.from(written).toString('hex'), vector.protobuf, 'the bytes the SDK writes');
  }
  return 1;
}

function payloadBytes(payload) {
  return new Uint8Array(typeof payload === 'string' ? Buffer.from(payload) : Buffer.from(payload.hex, 'hex'));
}

// `value` with each payload converted by `convert`.
function mapPayloads(value, convert) {
  if (Array.isArray(value)) return value.map(item => mapPayloads(item, convert));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, field]) =>
      PAYLOADS.has(name) ? [name, convert(field)] : [name, mapPayloads(field, convert)],
    ),
  );
}

// Only own fields; bytes as hexadecimal digits; 64-bit integers as JavaScript numbers.
function plain(value) {
  if (value instanceof Uint8Array) return Buffer.from(value).toString('hex');
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  if (typeof value.toNumber === 'function') return value.toNumber();
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, plain(field)]));
}

// A message without fields that are equivalent to absent ones. The check with the Go codec covers which of them are written.
function withoutZeros(message, parent = '') {
  const kept = {};
  for (const [name, field] of Object.entries(message)) {
    if (PAYLOADS.has(name)) {
      // Empty bytes are equivalent to absent ones. (In JSON '' is a value; no vector has it as the payload of a reply.)
      if (field !== '') kept[name] = field;
    } else if (MAPS.has(name) || (name === 'presence' && parent === 'presence')) {
      const entries = Object.entries(field).map(([key, entry]) => [key, withoutZerosIn(entry ?? {}, name)]);
      if (entries.length > 0) kept[name] = Object.fromEntries(entries);
    } else if (!isZero(field)) {
      kept[name] = withoutZerosIn(field, name);
    }
  }
  return kept;
}

function withoutZerosIn(value, name) {
  if (Array.isArray(value)) return value.map(item => withoutZerosIn(item, name));
  return typeof value === 'object' && value !== null ? withoutZeros(value, name) : value;
}

function isZero(field) {
  return field === '' || field === 0 || field === false || (Array.isArray(field) && field.length === 0);
}

// A double has 53 bits of precision: the SDK cannot represent larger numbers.
function numbersFit(value) {
  if (typeof value === 'number') return Number.isSafeInteger(value);
  return typeof value !== 'object' || value === null || value instanceof Uint8Array || Object.values(value).every(numbersFit);
}
