// Clock, interpolation and prediction, on scripted clocks.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AHEAD_TICKS_MAX, Clock, fieldsBetween, Grid, Interpolation, Prediction, Replica, Smoothing, snapshotFromJson } from '../../dist/index.js';
import { limitedSnapshots } from '../support/movement.mjs';
import { cell, GRID, object, randomFrom, snapshot, START_US } from '../support/snapshots.mjs';

const TICK_MS = 1000 / 60;
const timeMs = (tick) => START_US / 1000 + tick * TICK_MS;

test('the clock follows the arrival that took least, and forgets it after a while', () => {
  const clock = new Clock();
  const random = randomFrom(1);
  for (let tick = 1; tick <= 300; tick += 1) {
    const late = tick === 100 ? 0 : random() % 30;
    const reported = clock.observe(timeMs(tick) * 1000, timeMs(tick) - 5_000_000 + 20 + late);
    if (tick > 100) assert.ok(Math.abs(reported - late) < 1e-3);
  }
  assert.ok(Math.abs(clock.offsetMs - (5_000_000 - 20)) < 1e-3);
  // The latency has increased by 50 ms, which the clock detects within two windows of 5 s.
  for (let tick = 301; tick <= 1_000; tick += 1) clock.observe(timeMs(tick) * 1000, timeMs(tick) - 5_000_000 + 70);
  assert.ok(Math.abs(clock.offsetMs - (5_000_000 - 70)) < 1e-3);
  // The clock was changed by an hour.
  clock.observe(timeMs(1_001) * 1000, timeMs(1_001) - 1_400_000);
  assert.ok(Math.abs(clock.offsetMs - 1_400_000) < 1e-3);
});

/** A replica and its interpolation, fed with an object that walks 10 units a tick in the near band, or the far one. */
function follow(options = {}) {
  const replica = new Replica();
  const interpolation = new Interpolation(options);
  const grid = new Grid(GRID);
  const feed = (parts, arrivedMs) => {
    const changes = replica.apply(snapshot({ view: 9, ...parts }));
    interpolation.observe(changes, grid, arrivedMs ?? timeMs(parts.tick));
  };
  return { interpolation, feed };
}

test('objects are followed as long as there is room for their samples', () => {
  const { interpolation, feed } = follow();
  const state = new Uint8Array(1 << 20);
  const cells = (y) => [cell(9, { full: y === 0, upserts: Array.from({ length: 70 }, (_, at) => ({ ...object(at + 1, y, 0), state })) })];
  const followed = (atMs) => Array.from({ length: 70 }, (_, at) => interpolation.place(at + 1, atMs)).filter((place) => place !== null);
  feed({ tick: 1, cells: cells(0) });
  assert.equal(followed(timeMs(1)).length, 63, 'of 64 MiB, each takes one and a little');
  feed({ tick: 2, base: 1, cells: cells(5) });
  const shown = followed(timeMs(2));
  assert.deepEqual([shown.length, new Set(shown.map(({ x }) => x)).size], [63, 1], 'a sample in place of the one before');
  feed({ tick: 3, base: 2, cells: [cell(9, { full: true, upserts: [{ ...object(70, 9, 0), state }] })] });
  assert.equal(interpolation.size, 1);
  assert.notEqual(interpolation.place(70, timeMs(3)), null, 'there is room again');
});

test('a place lies between the two that are known', () => {
  const { interpolation, feed } = follow();
  feed({ tick: 1, cells: [cell(9, { full: true, upserts: [object(1, 100, 50)] })] });
  feed({ tick: 2, base: 1, cells: [cell(9, { upserts: [object(1, 110, 50)] })] });
  const at = (tick) => interpolation.place(1, timeMs(tick));
  assert.deepEqual([at(1).x, at(1).y], [612, 562]);
  assert.ok(Math.abs(at(1.25).x - 614.5) < 0.01);
  assert.ok(Math.abs(at(1.5).x - 617) < 0.01);
  assert.equal(at(3).x, 622, 'nothing is made up beyond what is known');
  assert.equal(interpolation.place(2, timeMs(1)), null);
});

test('states that change are shown between, also of an object that stands', () => {
  const { interpolation, feed } = follow();
  const states = [[250], [4], [10]].map((bytes) => Uint8Array.from(bytes));
  const turned = (state) => ({ ...object(1, 100, 50), state });
  feed({ tick: 1, cells: [cell(9, { full: true, upserts: [turned(states[0])] })] });
  feed({ tick: 2, base: 1, cells: [cell(9, { upserts: [turned(states[1])] })] });
  for (let tick = 3; tick < 10; tick += 1) feed({ tick, base: tick - 1 });
  feed({ tick: 10, base: 9, cells: [cell(9, { upserts: [{ ...turned(states[2]), x: 110 }] })] });
  const at = (tick) => {
    const { from, to, share } = interpolation.shown(1, timeMs(tick));
    // Between two equal states, the share does not matter.
    return [from[0], to[0], from[0] === to[0] ? 0 : Math.round(share * 100)];
  };
  assert.deepEqual(at(1.25), [250, 4, 25]);
  assert.deepEqual(at(5), [4, 4, 0], 'it had this state until the tick before the next change');
  assert.deepEqual(at(9.5), [4, 10, 50]);
  assert.deepEqual(at(11), [10, 10, 0]);
  assert.equal(interpolation.shown(2, timeMs(1)), null);
});

test('fields between two states move and turn as they are declared', () => {
  const field = (name, motion, parts) => (
    { name, type: 'integer', bytes: 2, min: -100, max: 259, deltaBits: 0, perUnit: 1, optional: false, motion, ...parts });
  const kind = { kind: 1, name: 'Ship', fields: [
    field('heading', 'angle', {}), field('fine', 'angle', { perUnit: 10 }), field('fuel', 'linear', {}), field('shots', 'step', {}),
    { ...field('name', 'linear', {}), type: 'text', countMax: 9 },
  ] };
  const from = { heading: 250, fine: 25, fuel: 10, shots: 1, name: 'a' };
  const to = { heading: -80, fine: -8, fuel: 20, shots: 2, name: 'b' };
  // A turn has 360 steps, so the way from 250 to -80 is 30 steps long, over 259.
  assert.deepEqual(fieldsBetween(kind, from, to, 0.5), { heading: -95, fine: -9.5, fuel: 15, shots: 1, name: 'a' });
  assert.deepEqual(fieldsBetween(kind, to, from, 0.5), { heading: -95, fine: -9.5, fuel: 15, shots: 2, name: 'b' });
  assert.deepEqual(fieldsBetween(kind, from, to, 0), from);
  assert.deepEqual(fieldsBetween(kind, from, to, 1), to);
});

test('a field in steps is shown with the delay, as the place is', () => {
  const kind = { kind: 1, name: 'Ship', fields: [{ name: 'shots', type: 'integer', bytes: 1, min: 0, max: 255, deltaBits: 0, perUnit: 1, optional: false, motion: 'step' }] };
  const { interpolation, feed } = follow();
  const ship = (x, shots) => cell(9, { upserts: [{ ...object(1, x, 50), state: Uint8Array.of(shots) }] });
  feed({ tick: 1, cells: [{ ...ship(100, 7), full: true }] });
  feed({ tick: 2, base: 1, cells: [ship(110, 8)] });
  const at = (tick) => {
    const { x, from, to, share } = interpolation.shown(1, timeMs(tick));
    const { shots } = fieldsBetween(kind, { shots: from[0] }, { shots: to[0] }, share);
    assert.equal(shots, share < 1 ? from[0] : to[0]);
    return [Math.round(x * 10) / 10, shots];
  };
  assert.deepEqual([at(1), at(1.25), at(1.99), at(2), at(9)], [[612, 7], [614.5, 7], [621.9, 7], [622, 8], [622, 8]]);
});

test('an object that stood still does not creep to where it goes next', () => {
  const { interpolation, feed } = follow();
  feed({ tick: 1, cells: [cell(9, { full: true, upserts: [object(1, 100, 50)] })] });
  for (let tick = 2; tick < 40; tick += 1) feed({ tick, base: tick - 1 });
  feed({ tick: 40, base: 39, cells: [cell(9, { upserts: [object(1, 110, 50)] })] });
  assert.equal(interpolation.place(1, timeMs(20)).x, 612);
  assert.equal(Math.round(interpolation.place(1, timeMs(39)).x), 612);
  assert.ok(Math.abs(interpolation.place(1, timeMs(39.5)).x - 617) < 0.01);
});

test('a far object that is updated every 6 ticks moves evenly in between', () => {
  const { interpolation, feed } = follow();
  const far = 11; // column 3, row 1: two cells from the view
  feed({ tick: 6, cells: [cell(far, { full: true, upserts: [object(1, 100, 50)] })] });
  for (let tick = 7; tick <= 18; tick += 1) {
    feed({ tick, base: tick - 1, cells: tick === 18 ? [cell(far, { upserts: [object(1, 160, 50)] })] : [] });
  }
  assert.ok(Math.abs(interpolation.place(1, timeMs(15)).x - (3 * 512 + 130)) < 0.1);
  assert.equal(Math.round(interpolation.place(1, timeMs(12)).x), 3 * 512 + 100);
});

/** Steps of a far object that walks 2 units a tick, from one tick to the next. */
function farSteps(isSent) {
  const { interpolation, feed } = follow();
  const far = 11;
  feed({ tick: 6, cells: [cell(far, { full: true, upserts: [object(1, 12, 50)] })] });
  const steps = [];
  let [sent, shown] = [6, null];
  for (let tick = 7; tick <= 240; tick += 1) {
    const cells = isSent(tick, sent) ? [cell(far, { upserts: [object(1, 2 * tick, 50)] })] : [];
    if (cells.length > 0) sent = tick;
    feed({ tick, base: tick - 1, cells });
    const { x } = interpolation.place(1, timeMs(tick - 1));
    if (tick > 120) steps.push(x - shown);
    shown = x;
  }
  return { steps, delayTicks: (interpolation.farDelayMs * 60) / 1000 };
}

test('a far object is shown later, so that it walks evenly from one update to the next', () => {
  const waits = [[5, (tick) => tick % 6 === 0], [12, (tick, sent) => tick - sent === 13]];
  for (const [delay, isSent] of waits) {
    const { steps, delayTicks } = farSteps(isSent);
    assert.ok(Math.abs(delayTicks - delay) < 0.01, `${delayTicks} ticks`);
    for (const step of steps) assert.ok(Math.abs(step - 2) < 0.01, `${step} units in a tick`);
  }
});

test('an object that leaves the far cells catches up without a jump', () => {
  const { interpolation, feed } = follow();
  const [far, near] = [11, 10];
  feed({ tick: 6, cells: [cell(far, { full: true, upserts: [object(1, 300, 50)] })] });
  let shown = null;
  for (let tick = 7; tick <= 240; tick += 1) {
    // The object moves 4 units per tick to the left.
    const x = 3 * 512 + 324 - 4 * tick;
    const at = x < 3 * 512 ? [near, x - 2 * 512] : [far, x - 3 * 512];
    const isSent = at[0] === near || tick % 6 === 0;
    if (x > 2 * 512) feed({ tick, base: tick - 1, cells: isSent ? [cell(at[0], { upserts: [object(1, at[1], 50)] })] : [] });
    const place = interpolation.place(1, timeMs(tick - 1));
    // It is shown at most a quarter faster than it moves.
    if (tick > 60 && tick < 200) assert.ok(shown - place.x <= 4 * 1.26 + 0.01, `${shown - place.x} units in tick ${tick}`);
    shown = place.x;
  }
});

test('a teleport is not walked', () => {
  const { interpolation, feed } = follow();
  feed({ tick: 1, cells: [cell(9, { full: true, upserts: [object(1, 0, 0)] })] });
  feed({ tick: 2, base: 1, cells: [cell(9, { departed: [1] }), cell(19, { upserts: [object(1, 0, 0)] })] });
  assert.equal(interpolation.place(1, timeMs(1.9)).x, 512);
  assert.equal(interpolation.place(1, timeMs(2)).x, 3 * 512);
});

test('the delay bridges the gap between arrivals, and no more', () => {
  for (const [jitterMs, least, most] of [[0, TICK_MS, TICK_MS + 5], [40, TICK_MS + 25, TICK_MS + 45]]) {
    const { interpolation, feed } = follow();
    const random = randomFrom(3);
    feed({ tick: 1 });
    for (let tick = 2; tick <= 200; tick += 1) feed({ tick, base: tick - 1 }, timeMs(tick) + (jitterMs === 0 ? 0 : random() % jitterMs));
    assert.ok(interpolation.delayMs >= least && interpolation.delayMs <= most, `${jitterMs} ms: ${interpolation.delayMs}`);
  }
});

test('the delay follows the rate of the room at once', () => {
  const { interpolation, feed } = follow();
  let atMs = timeMs(0);
  let tick = 0;
  const next = (ratePermille) => {
    tick += 1;
    atMs += (TICK_MS * 1_000) / ratePermille;
    feed({ tick, base: tick - 1, timeUs: atMs * 1_000, ratePermille }, atMs + 5);
    return interpolation.delayMs;
  };
  for (let count = 0; count < 200; count += 1) next(1_000);
  const full = interpolation.delayMs;
  const slowed = next(250);
  assert.ok(Math.abs(slowed - full - 3 * TICK_MS) < 0.01, `${full} ms, then ${slowed}`);
  for (let count = 0; count < 200; count += 1) assert.ok(Math.abs(next(250) - slowed) < 0.01);
  assert.ok(Math.abs(next(1_000) - full) < 0.01);
});

test('an object walks evenly in a room that is slowed', () => {
  const { interpolation, feed } = follow();
  const [walked, shown] = [(tick) => object(1, 3 * tick, 50), []];
  for (let tick = 1; tick <= 150; tick += 1) {
    const atMs = timeMs(tick * 4);
    feed({ tick, base: tick - 1, timeUs: atMs * 1_000, ratePermille: 250, cells: [cell(9, { full: tick === 1, upserts: [walked(tick)] })] }, atMs);
    for (const laterMs of [0, TICK_MS, 2 * TICK_MS, 3 * TICK_MS]) shown.push(interpolation.place(1, interpolation.advance(atMs + laterMs)).x);
  }
  const steps = shown.slice(100).map((x, at) => x - shown[99 + at]);
  for (const step of steps) assert.ok(Math.abs(step - 0.75) < 0.01, `${step} units in a frame`);
});

test('the shown time never goes back, and catches up in small steps', () => {
  const { interpolation, feed } = follow();
  feed({ tick: 1 });
  let shown = interpolation.advance(timeMs(1));
  const random = randomFrom(9);
  for (let tick = 2; tick <= 400; tick += 1) {
    feed({ tick, base: tick - 1 }, timeMs(tick) + (tick > 100 && tick < 250 ? random() % 60 : 0));
    const next = interpolation.advance(timeMs(tick));
    const passed = next - shown;
    assert.ok(passed >= TICK_MS * 0.9 - 0.01 && passed <= TICK_MS * 1.1 + 0.01, `tick ${tick}: ${passed}`);
    shown = next;
  }
  assert.ok(timeMs(400) - shown < TICK_MS + 60);
  assert.ok(interpolation.advance(timeMs(400) + 60_000) > shown + 59_000, 'after a pause it is set');
});

const WALK_UNITS_PER_TICK = 3;
const FRAMES_PER_TICK = 3;

/** For each object in the snapshots of a limited player, the largest step between two even frames, in frames of its walk. */
function largestSteps(snapshots, hasWaits) {
  const replica = new Replica();
  const interpolation = new Interpolation();
  const [first] = snapshots;
  const tickMs = 1000 / first.grid.ticks_per_second;
  const frameMs = tickMs / FRAMES_PER_TICK;
  const shown = new Map();
  const steps = new Map();
  const waiting = [...snapshots];
  for (let nowMs = first.time_us / 1000; waiting.length > 0; nowMs += frameMs) {
    while (waiting.length > 0 && waiting[0].time_us / 1000 <= nowMs) {
      const { waited, ...others } = waiting.shift();
      const made = snapshotFromJson(hasWaits && waited !== undefined ? { ...others, waited } : others);
      interpolation.observe(replica.apply(made), replica.grid, nowMs);
    }
    const atMs = interpolation.advance(nowMs);
    for (const { id } of replica.objects()) {
      const { x } = interpolation.place(id, atMs);
      // The delay settles in the first ticks.
      const isSettled = replica.tick > 10 && shown.has(id);
      if (isSettled) steps.set(id, Math.max(steps.get(id) ?? 0, Math.abs(x - shown.get(id)) / (WALK_UNITS_PER_TICK / FRAMES_PER_TICK)));
      shown.set(id, x);
    }
    for (const id of shown.keys()) if (replica.object(id) === undefined) shown.delete(id);
  }
  return steps;
}

test('objects in cells that have waited do not leap', (context) => {
  // The second player's connection skips ticks, which lengthens the delay of all zones.
  for (const [player, leap] of [[0, 10], [1, 6]]) {
    const snapshots = limitedSnapshots(player);
    const [before, after] = [false, true].map((hasWaits) => Object.fromEntries(largestSteps(snapshots, hasWaits)));
    context.diagnostic(`largest step between two frames, in frames of a walk: ${JSON.stringify({ before, after })}`);
    assert.ok(Math.max(...Object.values(before)) > leap, 'without the waits, objects leap');
    // Objects in the nearest zone have no second delay. The others are a quarter faster at most when theirs gets shorter.
    const others = Object.entries(after).filter(([id]) => Number(id) > 2).map(([, step]) => step);
    assert.ok(Math.max(...others) < Math.max(1.26, after[1] + 0.01), JSON.stringify(after));
  }
});

test('tracks are bounded, and gone with their object', () => {
  const { interpolation, feed } = follow();
  feed({ tick: 1, cells: [cell(9, { full: true, upserts: [object(1, 0, 0)] })] });
  for (let tick = 2; tick < 500; tick += 1) feed({ tick, base: tick - 1, cells: [cell(9, { upserts: [object(1, tick, 0)] })] });
  assert.equal(interpolation.place(1, 0).x, 512 + 499 - 63);
  feed({ tick: 500, base: 499, cells: [cell(9, { departed: [1] })] });
  assert.equal(interpolation.size, 0);
});

const WALK = {
  apply: (state, velocity) => ({ ...state, velocity }),
  step: (state, tick) => ({ ...state, x: state.x + way(state.velocity, tick) - way(state.velocity, tick - 1) }),
};
const way = (velocity, tick) => Math.floor((velocity * 640 * tick) / (127 * 60));

/** A server and a client that are `latencyMs` apart (a function of the tick), walking as `plan` says. */
function play({ ticks, plan, latency, lose = () => false }) {
  const prediction = new Prediction(WALK);
  let server = { x: 0, velocity: 0 };
  let ack = 0;
  let number = 0;
  const toServer = [];
  const toClient = [];
  const seen = [];
  for (let tick = 1; tick <= ticks; tick += 1) {
    const wish = plan(tick);
    if (wish !== undefined && prediction.now !== null) {
      number += 1;
      prediction.input(number, wish);
      if (!lose(number)) toServer.push({ at: tick + latency(tick), number, wish });
    }
    for (const input of toServer.filter(({ at }) => at <= tick)) {
      toServer.splice(toServer.indexOf(input), 1);
      server = WALK.apply(server, input.wish);
      ack = input.number;
    }
    server = WALK.step(server, tick);
    toClient.push({ at: tick + latency(tick), tick, ack, state: server });
    prediction.advance(1);
    const before = prediction.now;
    let corrected = 0;
    while (toClient.length > 0 && toClient[0].at <= tick) {
      const { state, tick: of, ack: upTo } = toClient.shift();
      prediction.reconcile(state, of, upTo);
      if (before !== null) corrected = Math.abs(prediction.now.x - before.x);
    }
    seen.push({ tick, corrected, shown: prediction.now?.x ?? 0, server: server.x });
  }
  return { prediction, server, seen };
}

test('a step is shown at once, and on a steady network no correction is seen', () => {
  const plan = (tick) => ({ 20: 127, 60: -127, 61: 90, 100: 0 })[tick];
  const { prediction, server, seen } = play({ ticks: 140, plan, latency: () => 5 });
  assert.ok(seen[20].shown > 0, 'the tick after the input, long before the server knows');
  assert.equal(seen[20].server, 0);
  // If a walk begins in another tick, rounding can change the distance by a unit.
  assert.ok(Math.max(...seen.map(({ corrected }) => corrected)) <= 1, JSON.stringify(seen.filter(({ corrected }) => corrected > 1)));
  assert.equal(prediction.now.x, server.x);
  assert.equal(prediction.now.velocity, 0);
});

test('on a network that jitters, corrections stay within what an input may be early or late', () => {
  for (let seed = 1; seed <= 50; seed += 1) {
    const random = randomFrom(seed * 7919);
    let last = 0;
    const latency = (tick) => {
      // TCP preserves the order.
      last = Math.max(last - 1, 3 + (random() % 4));
      return last;
    };
    const plan = (tick) => (tick > 10 && tick < 300 && tick % 9 === 0 ? (random() % 255) - 127 : tick === 300 ? 0 : undefined);
    const { prediction, server, seen } = play({ ticks: 340, plan, latency });
    assert.ok(Math.max(...seen.map(({ corrected }) => corrected)) <= 6 * 22, `seed ${seed}`);
    assert.equal(prediction.now.x, server.x, `seed ${seed}`);
  }
});

test('an input that the server never got is taken back', () => {
  const plan = (tick) => ({ 20: 127, 40: 0 })[tick];
  const { prediction, server } = play({ ticks: 80, plan, latency: () => 4, lose: (number) => number === 1 });
  assert.equal(server.x, 0);
  assert.equal(prediction.now.x, 0);
  const alone = play({ ticks: 120, plan: (tick) => ({ 20: 127 })[tick], latency: () => 4, lose: () => true });
  assert.ok(alone.seen[50].shown > 0);
  assert.equal(alone.prediction.now.x, 0, 'also when no later input is acknowledged');
});

test('without snapshots the player stands after a second', () => {
  const prediction = new Prediction(WALK);
  prediction.advance(5);
  assert.equal(prediction.now, null);
  prediction.reconcile({ x: 0, velocity: 127 }, 10, 0);
  prediction.advance(10_000);
  assert.equal(prediction.aheadTicks, AHEAD_TICKS_MAX);
  assert.equal(prediction.now.x, way(127, 10 + AHEAD_TICKS_MAX) - way(127, 10));
});

test('a correction is shown within a moment, a large one at once', () => {
  const smoothing = new Smoothing(50, 100);
  smoothing.corrected({ x: 10, y: 0 }, { x: 50, y: 0 });
  assert.equal(smoothing.show({ x: 50, y: 0 }, 0).x, 10);
  assert.equal(smoothing.show({ x: 50, y: 0 }, 50).x, 30);
  assert.ok(smoothing.show({ x: 50, y: 0 }, 1_000).x > 49.9);
  smoothing.corrected({ x: 0, y: 0 }, { x: 0, y: 101 });
  assert.equal(smoothing.show({ x: 0, y: 101 }, 0).y, 101);
});
