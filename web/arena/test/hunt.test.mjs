// The hunt's formats and rules, compared with docs/rooms.md.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chestOf, emoteOf, encodeHuntInput, playerOf, purseOf, tagOf, velocityOf, walkingOn } from '../dist/test/hunt.mjs';
import { leadersOf, newsOf } from '../dist/test/news.mjs';

const seen = (state) => ({ id: 1, kind: 1, x: 0, y: 0, cell: 0, state: Uint8Array.from(state) });
const grid = { shape: { ticksPerSecond: 60 }, widthUnits: 64 * 512, heightUnits: 32 * 512 };
const rules = walkingOn(grid);
const start = { x: 10_000, y: 10_000, vx: 0, vy: 0, doing: 0, energy: 100 };

const walked = (state, from, to) => {
  let now = state;
  for (let tick = from; tick <= to; tick += 1) now = rules.step(now, tick);
  return now;
};

test('inputs', () => {
  assert.deepEqual([...encodeHuntInput({ kind: 'walk', dx: 127, dy: -127 })], [0, 127, 129]);
  assert.deepEqual([...encodeHuntInput({ kind: 'dig' })], [1]);
  assert.deepEqual([...encodeHuntInput({ kind: 'wave', emote: 7 })], [2, 7]);
});

test('no velocity is longer than full speed, and short ones stay', () => {
  for (let dx = -128; dx <= 127; dx += 1) {
    for (let dy = -128; dy <= 127; dy += 1) {
      const { vx, vy } = velocityOf(dx, dy);
      const square = vx * vx + vy * vy;
      assert.ok(square <= 127 * 127 && (square >= 124 * 124 || (vx === dx && vy === dy)), `${dx} ${dy}: ${vx} ${vy}`);
      assert.ok(Number.isInteger(vx) && !Object.is(vx, -0) && !Object.is(vy, -0));
    }
  }
  assert.deepEqual(velocityOf(127, 127), { vx: 89, vy: 89 });
});

test('a second at full speed is 640 units from any tick', () => {
  for (const first of [1, 2, 59, 1_000_001, 4_294_967_000]) {
    const end = walked({ ...start, vx: 127, vy: -63 }, first, first + 59);
    assert.equal(end.x, 10_640);
    assert.ok(end.y === 9_682 || end.y === 9_683, String(end.y));
  }
});

test('a walk over ticks a + 1 to b is way(b) - way(a), and ends at the edges', () => {
  const way = (velocity, tick) => Math.floor((velocity * 640 * tick) / (127 * 60));
  const end = walked({ ...start, vx: -77, vy: 33 }, 101, 200);
  assert.deepEqual([end.x - start.x, end.y - start.y], [way(-77, 200) - way(-77, 100), way(33, 200) - way(33, 100)]);
  const corner = walked({ ...start, vx: -127, vy: 0 }, 1, 2_000);
  assert.equal(corner.x, 0);
  assert.equal(walked({ ...start, vx: 0, vy: 127 }, 1, 2_000).y, 32 * 512 - 1);
});

test('digging stands still, takes energy, and ends with a walk', () => {
  const walking = { ...start, vx: 50, vy: 0 };
  const digging = rules.apply(walking, { kind: 'dig' });
  assert.deepEqual(digging, { ...start, doing: 1, energy: 90 });
  assert.equal(rules.apply(digging, { kind: 'dig' }), digging, 'not twice');
  assert.equal(rules.apply(digging, { kind: 'wave', emote: 1 }), digging, 'nor waving');
  assert.equal(rules.apply(digging, { kind: 'walk', dx: 0, dy: 0 }).doing, 1);
  assert.equal(rules.apply(digging, { kind: 'walk', dx: 1, dy: 0 }).doing, 0);
  assert.deepEqual(rules.apply({ ...walking, energy: 9 }, { kind: 'dig' }), { ...walking, energy: 9 });
  assert.equal(emoteOf(rules.apply(walking, { kind: 'wave', emote: 5 }).doing), 5);
});

test('states', () => {
  assert.deepEqual(playerOf(seen([3, 255, 127, 2])), { colour: 3, vx: -1, vy: 127, doing: 2 });
  assert.deepEqual(tagOf(seen([1, 1, 0, 0, 135, 0, 0, 0, 0xc3, 0xa9])), { player: 257, score: 135, name: '\u00e9' });
  assert.equal(chestOf(seen([0])), null);
  assert.deepEqual(chestOf(seen([1, 35, 1, 2, 0, 0, 0])), { is_open: true, value: 291, finder: 2 });
  assert.deepEqual(purseOf(seen([1, 0, 0, 1, 2, 0, 99])), { score: 0x1000001, chests: 2, energy: 99 });
  assert.deepEqual([emoteOf(0), emoteOf(1), emoteOf(2), emoteOf(9)], [null, null, 0, 7]);
});

test('a state that is too short is no error', () => {
  for (let length = 0; length < 8; length += 1) {
    const short = seen(Array(length).fill(1));
    for (const read of [playerOf, tagOf, chestOf, purseOf]) assert.doesNotThrow(() => read(short));
  }
});

test('news, and what is none', () => {
  const clue = { x: 512, y: 7, treasure: 99, shares: 10, value: 100, until: 5400 };
  assert.deepEqual(newsOf({ welcome: { player: 17, name: 'Ada', colour: 3, clue } }), { kind: 'welcome', name: 'Ada', clue });
  assert.equal(newsOf({ welcome: { player: 17, name: 'Ada', colour: 3, clue: null } }).clue, null);
  assert.deepEqual(newsOf({ clue }), { kind: 'clue', clue });
  assert.deepEqual(newsOf({ clue_over: { treasure: 99, found: true } }), { kind: 'clue_over', treasure: 99, found: true });
  assert.deepEqual(newsOf({ found: { player: 17, name: 'Ada', treasure: 99, value: 35, x: 512, y: 7 } }), {
    kind: 'found', player: 17, name: 'Ada', value: 35, x: 512, y: 7,
  });
  assert.deepEqual(newsOf({ left: { player: 17, name: 'Ada' } }), { kind: 'left', name: 'Ada' });
  for (const nothing of [null, 1, 'x', [], {}, { other: 1 }]) assert.equal(newsOf(nothing), null);
  assert.deepEqual(leadersOf({ leaders: [{ player: 17, name: 'Ada', colour: 3, score: 135 }, null], players: 301 }), {
    players: 301, objects: null, leaders: [{ player: 17, name: 'Ada', colour: 3, score: 135 }, { player: 0, name: '', colour: 0, score: 0 }],
  });
  assert.deepEqual(leadersOf({ leaders: [], players: 301, objects: 6312 }), { players: 301, objects: 6312, leaders: [] });
  assert.equal(leadersOf({ players: 1 }), null);
});
