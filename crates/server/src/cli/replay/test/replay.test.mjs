// What the page of a recording shows, without a browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Film } from '../page/film.js';
import { markWords, timeOf, wordsOf } from '../page/timeline.js';
import { distance, sightOf, whyOf } from '../page/why.js';

const PIECE_TICKS = 120;
const GRID = { columns: 10, rows: 10, cellUnits: 100, nearCells: 1, farCells: 2, farIntervalTicks: 6, nearKinds: { 5: { units: 150, cells: 2 } } };
const object = (id, cell, owner = null, kind = 1) => ({ id, kind, x: 0, y: 0, cell, owner });

test('what a player sees, and why', () => {
  const player = { id: 7, view: 22, avatar: null };
  assert.equal(distance(GRID, 22, 22), 0);
  assert.equal(distance(GRID, 22, 29), 7, 'the same row');
  assert.equal(distance(GRID, 29, 30), 9, 'neighbours in number are not neighbours on the map');
  for (const [cell, owner, sight, words, kind] of [
    [22, null, 'near', /^In view, 0 cells away/],
    [33, null, 'near', /^In view, 1 cell away/],
    [44, null, 'far', /^In a far cell, 2 cells away .* once in 6 ticks/],
    [52, null, 'far', /3 cells/],
    [62, null, 'outside', /^Outside of the view: 4 cells away, and this player sees up to 3\.$/],
    [22, 0, 'hidden', /^Nobody/],
    [22, 8, 'hidden', /^Only player 8/],
    [99, 7, 'own', /^Only this player/],
    [33, null, 'near', /^In view, 1 cell away/, 5],
    [44, null, 'far', /^In a far cell, 2 cells away/, 5],
    [52, null, 'unseen', /^In the view, 3 cells away, but its kind is visible only within 150 units: up to 2 cells away\.$/, 5],
    [62, null, 'outside', /^Outside of the view/, 5],
    [52, 7, 'own', /^Only this player/, 5],
  ]) {
    assert.equal(sightOf(GRID, player, object(1, cell, owner, kind)), sight, `cell ${cell}`);
    assert.match(whyOf(GRID, player, object(1, cell, owner, kind)), words);
  }
});

/** A film whose object 1 is at x = tick, and whose object 2 is there in every third tick. Counts what is loaded. */
function film(ticks) {
  const loads = [];
  const made = new Film(ticks, PIECE_TICKS, async (from, count) => {
    loads.push([from, count]);
    return Array.from({ length: count }, (_, at) => {
      const tick = from + at;
      const objects = [{ ...object(1, 0), x: tick }, ...(tick % 3 === 0 ? [object(2, 5)] : [])];
      return { tick, objects, removed: tick % 3 === 1 && at > 0 ? [2] : [], players: [], steps: [], events: [] };
    });
  });
  return { made, loads };
}

test('each tick is the same, whichever way it is reached', async () => {
  const { made, loads } = film(300);
  for (const tick of [1, 2, 3, 4, 200, 199, 119, 120, 121, 6, 300, 6, 7]) {
    const { objects, ...scene } = await made.scene(tick);
    assert.equal(scene.tick, tick);
    assert.equal(objects.get(1).x, tick);
    assert.equal(objects.has(2), tick % 3 === 0, `tick ${tick}`);
  }
  assert.deepEqual(loads, [[1, PIECE_TICKS], [121, PIECE_TICKS], [241, 60]]);
});

test('pieces are bounded, and what failed is loaded again', async () => {
  const { made, loads } = film(100_000);
  for (let tick = 1; tick < 60 * PIECE_TICKS; tick += PIECE_TICKS) await made.scene(tick);
  assert.ok(made.pieces.size <= 24, `${made.pieces.size} pieces`);
  await made.scene(1);
  assert.deepEqual(loads.at(-1), [1, PIECE_TICKS]);
  let fails = true;
  const flaky = new Film(1, PIECE_TICKS, async () => {
    if (fails) throw new Error('busy');
    return [{ tick: 1, objects: [], removed: [], players: [], steps: [], events: [] }];
  });
  await assert.rejects(flaky.scene(1), /busy/);
  fails = false;
  assert.equal((await flaky.scene(1)).tick, 1);
});

test('times and steps', () => {
  assert.deepEqual([0, 6, 59, 3_599, 3_600, 3_930].map((tick) => timeOf(tick, 60)), ['0:00.0', '0:00.1', '0:00.9', '0:59.9', '1:00.0', '1:05.5']);
  const visitor = { user: 'ada' };
  for (const [step, words] of [
    [{ step: 'input', player: 2, number: 7, data: '00ff' }, 'player 2 sends input 7: 00ff'],
    [{ step: 'join', visitor, player: 3, data: '' }, '"ada" joins as player 3'],
    [{ step: 'join', visitor: { user: '' }, refused: { code: 400, message: 'full' } }, 'a guest is refused: 400 full'],
    [{ step: 'kick', player: 2, reason: 'idle' }, 'player 2 is kicked: idle'],
    [{ step: 'away', player: 2 }, 'player 2 has lost its connection'],
  ]) assert.equal(wordsOf(step), words);
  assert.equal(markWords({ tick: 1, what: 'away', player: 2 }), 'player 2 loses its connection');
  assert.equal(markWords({ tick: 1, what: 'refused', player: null }), 'a join is refused');
});
