// What the page of a recording shows, without a browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Film } from '../page/film.js';
import { markWords, timeOf, wordsOf } from '../page/timeline.js';
import { distance, hadOf, sightOf, whyOf, zoneOf } from '../page/why.js';

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

test('what a player had, as far as its connection is concerned', () => {
  const had = (had, tick = 815) => hadOf({ id: 1, view: 0, avatar: null, ...(had === null ? {} : { had }) }, tick, 900, 820);
  assert.equal(had(null, 820), 'Player 1 had tick 820, the newest.');
  assert.equal(had(null, 821), 'Player 1 had tick 821, the newest, unless it got nothing more until the end of the recording.');
  const gap = { tick: 812, from: 813, to: 820 };
  for (const [why, words] of [
    ['connection', 'its connection had not taken the last snapshot'],
    ['bandwidth', 'its bandwidth limit (room.player_bandwidth_limit) was used up'],
    ['pace', 'it asks for fewer snapshots per second than the room has ticks'],
  ]) assert.equal(had({ ...gap, why }), `Player 1 had tick 812: ${words} (ticks 813 to 820 skipped).`);
  assert.match(had({ ...gap, why: 'shard', to: 813 }), /at once, and it gets the newest \(tick 813 skipped\)\.$/);
  assert.match(had({ ...gap, why: 'away', to: 4_294_967_294 }), /it had no connection \(ticks 813 to 900 skipped\)\.$/);
  assert.match(had({ tick: 0, why: 'connection', from: 3, to: 5 }, 4), /^Player 1 had no snapshot yet: /);
  assert.match(had({ tick: 815, why: 'other_node', from: 3, to: 900 }), /another node of the cluster: what it was sent is not recorded\.$/);
  const zones = [null, null, 805, 801];
  const waits = 'Zone 2 of its view waits since tick 805 for its bandwidth limit. Its far cells wait since tick 801 for its bandwidth limit.';
  assert.equal(had({ tick: 815, zones }), `Player 1 had tick 815. ${waits}`);
  assert.match(had({ ...gap, why: 'bandwidth', zones }), / skipped\)\. Zone 2 of its view waits /);
});

test('an object says for which zone it waits', () => {
  const grid = { ...GRID, nearCells: 4, farCells: 1 };
  assert.deepEqual([0, 1, 2, 3, 4, 5].map((cells) => zoneOf(grid, cells)), [0, 0, 1, 2, 2, 3]);
  assert.deepEqual([0, 1, 2].map((cells) => zoneOf({ ...grid, nearCells: 0 }, cells)), [0, 3, 3]);
  const player = { id: 7, view: 44, avatar: null, had: { tick: 815, zones: [null, null, 805, 801] } };
  assert.equal(whyOf(grid, player, object(1, 45)), 'In view, 1 cell away: each snapshot has its changes.');
  assert.equal(whyOf(grid, player, object(1, 47)), 'In view, 3 cells away. Zone 2 of its view waits since tick 805 for its bandwidth limit.');
  assert.equal(whyOf(grid, player, object(1, 49)), 'In a far cell, 5 cells away. Its far cells wait since tick 801 for its bandwidth limit.');
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
