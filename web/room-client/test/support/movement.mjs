// The vectors of movement, schema/vectors/room/movement.json: `play` runs the steps of a vector and returns their
// results. As a program, this file writes the vectors with the current client.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Clock, Interpolation, Prediction, Replica, Smoothing, snapshotFromJson } from '../../dist/index.js';
import { randomFrom } from './snapshots.mjs';

const TICKS_PER_SECOND = 60;
const START_US = 1_000_000_000;
const timeUs = (tick) => START_US + Math.floor((tick * 1_000_000) / TICKS_PER_SECOND);

// The movement of the treasure hunt: docs/rooms.md.
const way = (velocity, tick) => Math.floor((velocity * 640 * tick) / (127 * TICKS_PER_SECOND));
const WALK = {
  apply: ([x], velocity) => [x, velocity],
  step: ([x, velocity], tick) => [x + way(velocity, tick) - way(velocity, tick - 1), velocity],
};

const PLAYERS = {
  clock() {
    const clock = new Clock();
    return ({ observe: [time, nowMs] }) => [clock.observe(time, nowMs), clock.offsetMs];
  },
  prediction() {
    const prediction = new Prediction(WALK);
    return ({ input, advance, reconcile }) => {
      if (input) prediction.input(...input);
      else if (reconcile) prediction.reconcile(reconcile.slice(0, 2), ...reconcile.slice(2));
      else prediction.advance(advance);
      return prediction.now === null ? [] : [...prediction.now, ...prediction.before, prediction.aheadTicks];
    };
  },
  interpolation() {
    const replica = new Replica();
    const interpolation = new Interpolation();
    return ({ snapshot, arrived_ms: arrivedMs, advance, place, tick_at: tickAt }) => {
      if (snapshot) {
        const changes = replica.apply(snapshotFromJson(snapshot));
        interpolation.observe(changes, replica.grid, arrivedMs);
        return [interpolation.delayMs, interpolation.size];
      }
      if (advance !== undefined) return [interpolation.advance(advance)];
      if (tickAt !== undefined) return [replica.tickAt(tickAt)];
      const found = interpolation.place(...place);
      return found === null ? [] : [found.x, found.y];
    };
  },
  smoothing() {
    const smoothing = new Smoothing(50, 100);
    const point = ([x, y]) => ({ x, y });
    return ({ correct, show }) => {
      if (correct) {
        smoothing.corrected(point(correct.slice(0, 2)), point(correct.slice(2)));
        return [];
      }
      const { x, y } = smoothing.show(point(show.slice(0, 2)), show[2]);
      return [x, y];
    };
  },
};

/** The result of each step of a vector: a list of numbers. */
export function play({ kind, steps }) {
  const step = PLAYERS[kind]();
  return steps.map((parts) => step(parts));
}

function clockSteps(random) {
  const late = (tick) => 20 + (random() % 30) + (tick > 200 ? 50 : 0);
  const steps = [];
  for (let tick = 1; tick <= 400; tick += 10) steps.push({ observe: [timeUs(tick), timeUs(tick) / 1000 - 5_000 + late(tick)] });
  steps.push({ observe: [timeUs(401), 7_000_000] }, { observe: [timeUs(402), 7_000_010] });
  return steps;
}

/** A server and a client, some ticks apart. */
function predictionSteps(random, { latency, lose }) {
  const steps = [{ advance: 3 }];
  const [toServer, toClient] = [[], []];
  let [server, ack, number, last] = [[0, 0], 0, 0, 0];
  for (let tick = 1; tick <= 90; tick += 1) {
    if (tick > 10 && random() % 6 === 0) {
      number += 1;
      const velocity = (random() % 255) - 127;
      steps.push({ input: [number, velocity] });
      if (random() % 10 >= lose) toServer.push({ at: tick + latency(random), number, velocity });
    }
    while (toServer.length > 0 && toServer[0].at <= tick) {
      server = WALK.apply(server, toServer[0].velocity);
      ack = toServer.shift().number;
    }
    server = WALK.step(server, tick);
    last = Math.max(last, tick + latency(random));
    toClient.push({ at: last, tick, ack, server });
    steps.push({ advance: 1 });
    while (toClient.length > 0 && toClient[0].at <= tick) {
      const snapshot = toClient.shift();
      steps.push({ reconcile: [...snapshot.server, snapshot.tick, snapshot.ack] });
    }
  }
  return [...steps, { advance: 100 }];
}

const GRID = { columns: 8, rows: 8, cell_units: 512, near_cells: 1, far_cells: 2, far_interval_ticks: 6, ticks_per_second: TICKS_PER_SECOND };

/** Objects in a near and in a far cell that walk, stand and jump; snapshots that skip ticks. */
function interpolationSteps(random, jitterMs, { isPostponed = () => false } = {}) {
  const steps = [];
  const cells = [9, 11];
  const places = cells.map(() => [100, 100]);
  let base = 0;
  let farBase = 0;
  for (let tick = 6; tick <= 80; tick += 1 + (random() % 8 === 0 ? random() % 5 : 0)) {
    const isFarDue = base === 0 || (Math.floor(tick / 6) > Math.floor(farBase / 6) && !isPostponed(tick - farBase));
    const updates = cells.flatMap((cell, index) => {
      if ((index === 1 && !isFarDue) || (base !== 0 && random() % 4 === 0)) return [];
      const jump = random() % 12 === 0 ? 400 : 12;
      places[index] = places[index].map((at) => (at + (random() % jump)) % 512);
      const [x, y] = places[index];
      return [{ cell, full: base === 0, upserts: [{ id: index + 1, kind: 1, x, y }] }];
    });
    const arrivedMs = timeUs(tick) / 1000 + (jitterMs === 0 ? 0 : random() % jitterMs);
    const snapshot = { tick, base, time_us: timeUs(tick), view: 9, cells: updates, ...(base === 0 ? { grid: GRID } : {}) };
    steps.push({ snapshot, arrived_ms: arrivedMs }, { advance: arrivedMs + 3 });
    for (const id of [1, 2, 3]) steps.push({ place: [id, arrivedMs - 20 - (random() % 60)] });
    base = tick;
    if (isFarDue) farBase = tick;
  }
  return steps;
}

/** Objects that walk in a room that is overloaded for a time: its ticks are further apart, and each snapshot has the rate. */
function slowedSteps(random) {
  const steps = [];
  const cells = [9, 11];
  const places = cells.map(() => [100, 100]);
  let atUs = START_US;
  for (let tick = 1; tick <= 120; tick += 1) {
    const rate = tick < 30 ? 1_000 : Math.max(tick < 70 ? 250 : 1_000, Math.min(1_000, 250 + (tick - 70) * 25));
    atUs += Math.round(1_000_000_000 / TICKS_PER_SECOND / rate);
    const base = tick - 1;
    const updates = cells.flatMap((cell, index) => {
      places[index] = places[index].map((at) => at + 3);
      const [x, y] = places[index];
      return index === 1 && base !== 0 && tick % 6 !== 0 ? [] : [{ cell, full: base === 0, upserts: [{ id: index + 1, kind: 1, x, y }] }];
    });
    const snapshot = { tick, base, time_us: atUs, view: 9, cells: updates, ...(rate === 1_000 ? {} : { rate }), ...(base === 0 ? { grid: GRID } : {}) };
    const arrivedMs = atUs / 1000 + (random() % 5);
    steps.push({ snapshot, arrived_ms: arrivedMs }, { advance: arrivedMs + 3 });
    for (const id of [1, 2]) steps.push({ place: [id, arrivedMs - 20 - (random() % 60)] });
    steps.push({ tick_at: arrivedMs - (random() % 100) });
  }
  return steps;
}

const VECTORS = new URL('../../../../schema/vectors/room/', import.meta.url);

/** The snapshots of a player with a bandwidth limit, in whose view an object moves in each of the zones that may wait. */
export function limitedSnapshots(index) {
  const { vectors: limited } = JSON.parse(readFileSync(new URL('limited.json', VECTORS), 'utf8'));
  return limited[index].steps.map(({ json }) => {
    const { ack: _, avatar: __, ...snapshot } = JSON.parse(json);
    return snapshot;
  });
}

function limitedSteps(random, index) {
  return limitedSnapshots(index).slice(0, 60).flatMap((snapshot) => {
    const arrivedMs = snapshot.time_us / 1000 + (random() % 5);
    const places = [3, 5, 7].map((id) => ({ place: [id, arrivedMs - 35] }));
    return [{ snapshot, arrived_ms: arrivedMs }, ...places];
  });
}

function smoothingSteps(random) {
  const steps = [];
  for (let count = 0; count < 20; count += 1) {
    const [x, y] = [random() % 1_000, random() % 1_000];
    steps.push({ correct: [x, y, x + (random() % 90) - 45, y + (random() % 150) - 75] }, { show: [x, y, random() % 40] }, { show: [x, y, 0] });
  }
  return steps;
}

export function vectors() {
  const random = randomFrom(20_261);
  const steady = () => 4;
  const unsteady = (draw) => 2 + (draw() % 5);
  const made = [
    { name: 'a clock whose latency grows, and that is set', kind: 'clock', steps: clockSteps(random) },
    { name: 'a prediction over a steady network', kind: 'prediction', steps: predictionSteps(random, { latency: steady, lose: 0 }) },
    { name: 'a prediction over an unsteady network', kind: 'prediction', steps: predictionSteps(random, { latency: unsteady, lose: 0 }) },
    { name: 'a prediction that loses inputs', kind: 'prediction', steps: predictionSteps(random, { latency: unsteady, lose: 3 }) },
    { name: 'an interpolation over a steady network', kind: 'interpolation', steps: interpolationSteps(random, 0) },
    { name: 'an interpolation over an unsteady network', kind: 'interpolation', steps: interpolationSteps(random, 60) },
    { name: 'an interpolation whose far cells are postponed', kind: 'interpolation', steps: interpolationSteps(random, 20, { isPostponed: (age) => age < 13 }) },
    { name: 'a smoothing', kind: 'smoothing', steps: smoothingSteps(random) },
    { name: 'an interpolation in a room that is slowed', kind: 'interpolation', steps: slowedSteps(random) },
    { name: 'an interpolation of a limited player who stands', kind: 'interpolation', steps: limitedSteps(random, 0) },
    { name: 'an interpolation of a limited player who walks', kind: 'interpolation', steps: limitedSteps(random, 1) },
  ];
  return made.map((vector) => ({ ...vector, gives: play(vector) }));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const about = 'Clock, prediction, interpolation and smoothing, step by step. `gives` has the numbers that each step gives.';
  const lines = vectors().map((vector) => `    ${JSON.stringify(vector)}`).join(',\n');
  writeFileSync(new URL('movement.json', VECTORS), `{\n  "about": ${JSON.stringify(about)},\n  "vectors": [\n${lines}\n  ]\n}\n`);
}
