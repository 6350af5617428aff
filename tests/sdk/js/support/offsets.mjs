// Maps offsets to publications of a channel. On one node, the first publication has offset 1, the second one 2, and so
// on. In a cluster, the channels of a namespace share a stream: the offsets of a channel rise and have gaps, so a
// publication is found by the offset that the HTTP API returned for it.
import assert from 'node:assert/strict';

/** Whether the server under test is several nodes of a cluster. */
export const IS_CLUSTER = Boolean(process.env.DUNLIN_CLUSTER);

/** In a cluster: the offsets that the HTTP API returned, by channel. */
const returned = new Map();

/** Records the result of publishing into a channel. */
export function recordPosition(channel, { offset } = {}) {
  if (!IS_CLUSTER || !offset) return;
  const offsets = returned.get(channel) ?? [];
  if (offsets.includes(offset)) return; // the idempotency key was used before
  assert.ok(offset > (offsets.at(-1) ?? 0), `offset ${offset} of ${channel} comes after ${offsets}`);
  returned.set(channel, [...offsets, offset]);
}

/** The number of the publication with this offset: 1 for the first one of the channel, 0 if there is none. */
export function numberOf(channel, offset) {
  if (!IS_CLUSTER) return offset;
  const offsets = returned.get(channel) ?? [];
  const number = offsets.indexOf(offset) + 1;
  // The position of a channel without publications is a position of its stream.
  assert.ok(number || !(offset >= offsets[0]), `no publication of ${channel} has offset ${offset}, but ${offsets}`);
  return number;
}

/** The offset of the publication with this number. */
export const offsetOf = (channel, number) => (IS_CLUSTER ? returned.get(channel)[number - 1] : number);

/** Checks the offsets of the first publications of a channel, in their order. */
export function checkFirstOffsets(offsets) {
  const dense = offsets.map((_, index) => index + 1);
  if (!IS_CLUSTER) assert.deepEqual(offsets, dense);
  assert.deepEqual(offsets, [...new Set(offsets)].sort((a, b) => a - b));
  assert.ok(offsets[0] > 0);
}
