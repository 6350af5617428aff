// Checks the TypeScript client on recorded snapshots: check.mjs FILE. schema/vectors/room/README.md has the format.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { decodeSnapshot, Replica, RoomError, snapshotFromJson } from '../../web/room-client/dist/index.js';

const MAGIC = 'dunlin-snapshots-1\n';
const HEAD_BYTES = 10;

const TABLE = Uint32Array.from({ length: 256 }, (_, index) => {
  let crc = index;
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  return crc;
});

function crc32(text) {
  let crc = 0xffffffff;
  for (let at = 0; at < text.length; at += 1) crc = (crc >>> 8) ^ TABLE[(crc ^ text.charCodeAt(at)) & 255];
  return ~crc >>> 0;
}

function picture(replica) {
  const lines = [`${replica.tick} ${replica.timeUs} ${replica.ack} ${replica.avatar} ${replica.view}\n`];
  for (const { id, kind, x, y, cell, state } of [...replica.objects()].sort((a, b) => a.id - b.id)) {
    lines.push(`${id} ${kind} ${x} ${y} ${cell ?? '-'} ${Buffer.from(state).toString('hex')}\n`);
  }
  return lines.join('');
}

function applied(replica, kind, data) {
  try {
    replica.apply(kind === 1 ? snapshotFromJson(JSON.parse(data.toString())) : decodeSnapshot(data));
    return true;
  } catch (error) {
    assert.ok(error instanceof RoomError && error.kind === 'wrong_base', error);
    return false;
  }
}

const file = readFileSync(process.argv[2]);
assert.equal(file.subarray(0, MAGIC.length).toString(), MAGIC);
const replicas = new Map();
let [at, snapshots, refused] = [MAGIC.length, 0, 0];
while (at < file.length) {
  const [client, kind, isApplied, length] = [file.readUInt32LE(at), file[at + 4], file[at + 5] === 1, file.readUInt32LE(at + 6)];
  const data = file.subarray(at + HEAD_BYTES, at + HEAD_BYTES + length);
  const checksum = file.readUInt32LE(at + HEAD_BYTES + length);
  at += HEAD_BYTES + length + 4;
  if (kind === 0) {
    replicas.set(client, new Replica());
    continue;
  }
  snapshots += 1;
  const replica = replicas.get(client);
  assert.equal(applied(replica, kind, data), isApplied, `snapshot ${snapshots}`);
  if (!isApplied) refused += 1;
  const text = picture(replica);
  assert.equal(crc32(text), checksum, `snapshot ${snapshots} of client ${client} shows something else:\n${text}`);
}
assert.ok(snapshots > 0 && refused > 0, `${snapshots} snapshots, ${refused} refused`);
console.log(`recording: ${snapshots} snapshots are shown as in Rust, of which ${refused} were refused`);
