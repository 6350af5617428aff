// Parsing of listings on the lobby's page.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasPlace, listingOf } from '../dist/test/listed.mjs';

const listing = (metadata, counts = {}) => listingOf({ room: 'tag:1', players: 3, max_players: 8, ...counts, ...(metadata === undefined ? {} : { metadata }) });
const roundOf = (metadata) => listing(metadata).listed.round;

test('a listing has a room, its players and its round', () => {
  assert.deepEqual(listing({ round: 2, phase: 'playing' }), { room: 'tag:1', listed: { players: 3, maxPlayers: 8, round: 'round 2' } });
});

test('the phase is shown in words', () => {
  assert.equal(roundOf({ round: 2, phase: 'over' }), 'round 2 is over');
  assert.equal(roundOf({ round: 3, phase: 'last' }), 'the last round');
  assert.equal(roundOf({ round: 1, phase: 'last' }), 'the only round');
});

test('metadata of another game shows no round', () => {
  for (const metadata of [undefined, null, 'round 2', [], {}, { round: 2 }, { phase: 'over' }, { round: '2', phase: 'over' }, { round: 2, phase: 'paused' }]) {
    assert.equal(roundOf(metadata), '', JSON.stringify(metadata));
  }
});

test('a room without a free place offers none', () => {
  const offered = (players) => hasPlace(listing(undefined, { players }).listed);
  assert.deepEqual([offered(0), offered(7), offered(8), offered(9)], [true, true, false, false]);
});

test('a room that is closed or has become locked is taken off the list', () => {
  assert.deepEqual(listingOf({ room: 'tag:1', closed: true }), { room: 'tag:1', listed: null });
});

test('what is no listing is ignored', () => {
  for (const data of [null, 7, 'tag:1', [], {}, { room: '' }, { room: 7, players: 1 }]) {
    assert.equal(listingOf(data), null, JSON.stringify(data));
  }
});
