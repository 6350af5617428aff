// The duration of ticks, from a metrics page.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tickHistogramOf, tickTimeBetween } from '../dist/test/tick_time.mjs';

/** A metrics page with a histogram for each thread: bounds with cumulative counts, and a sum. */
const page = (...threads) => [
  '# HELP dunlin_room_tick_seconds How long ticks took.',
  '# TYPE dunlin_room_tick_seconds histogram',
  ...threads.flatMap(({ buckets, sumS }, thread) => [
    ...Object.entries(buckets).map(([le, count]) => `dunlin_room_tick_seconds_bucket{thread="${thread}",le="${le}"} ${count}`),
    `dunlin_room_tick_seconds_sum{thread="${thread}"} ${sumS}`,
    `dunlin_room_tick_seconds_count{thread="${thread}"} ${buckets['+Inf']}`,
  ]),
  'dunlin_room_tick_lateness_seconds_bucket{thread="0",le="0.0001"} 77',
  'dunlin_room_tick_lateness_seconds_sum{thread="0"} 7.5',
  'dunlin_room_tick_lateness_seconds_count{thread="0"} 78',
  'dunlin_rooms{thread="0"} 1',
  '',
].join('\n');

const histogram = (...threads) => tickHistogramOf(page(...threads));
const none = { buckets: { '0.00005': 0, '0.0001': 0, '0.001': 0, '+Inf': 0 }, sumS: 0 };

test('the threads are summed, and other histograms are left alone', () => {
  assert.deepEqual(histogram({ buckets: { '0.0001': 5, '+Inf': 8 }, sumS: 0.25 }, { buckets: { '0.0001': 1, '+Inf': 2 }, sumS: 0.5 }), {
    count: 10, sumS: 0.75, atMost: new Map([[0.0001, 6], [Infinity, 10]]),
  });
});

test('what is no metrics, or has no ticks among them, has no histogram', () => {
  for (const text of ['', '<!doctype html>', 'dunlin_rooms{thread="0"} 1', 'dunlin_room_tick_seconds_count{thread="0"} many']) {
    assert.equal(tickHistogramOf(text), null, text);
  }
});

test('only the ticks between two looks count', () => {
  const before = histogram({ buckets: { '0.00005': 0, '0.0001': 0, '0.001': 900, '+Inf': 1000 }, sumS: 9 });
  const after = histogram({ buckets: { '0.00005': 60, '0.0001': 99, '0.001': 1000, '+Inf': 1100 }, sumS: 9.005 });
  const { meanMs, p99Ms } = tickTimeBetween(before, after);
  assert.ok(Math.abs(meanMs - 0.05) < 1e-9, `${meanMs}`);
  assert.equal(p99Ms, 0.1, '99 of 100 are just enough');
});

test('one tick more above a bound, and the next bound it is', () => {
  const at = (atMost) => tickTimeBetween(histogram(none), histogram({
    buckets: { '0.00005': 0, '0.0001': atMost, '0.001': 100, '+Inf': 100 }, sumS: 0.01,
  })).p99Ms;
  assert.deepEqual([at(99), at(98)], [0.1, 1]);
});

test('beyond the last bound nothing is known', () => {
  const after = histogram({ buckets: { '0.00005': 0, '0.0001': 0, '0.001': 90, '+Inf': 100 }, sumS: 3 });
  assert.equal(tickTimeBetween(histogram(none), after).p99Ms, Infinity);
});

test('no ticks, or another server', () => {
  const some = histogram({ buckets: { '0.0001': 5, '+Inf': 8 }, sumS: 0.25 });
  assert.equal(tickTimeBetween(some, some), null);
  assert.equal(tickTimeBetween(some, histogram({ buckets: { '0.0001': 5, '+Inf': 7 }, sumS: 0.2 })), null);
});
