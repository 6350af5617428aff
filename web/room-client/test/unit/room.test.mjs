// The class Room over a client that the test simulates.
import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { test } from 'node:test';
import { Inputs, Room, SocketMeter, Statistics } from '../../dist/index.js';
import { cell, object, snapshot, START_US, toJson, toProtobuf } from '../support/snapshots.mjs';

class Subscription extends EventEmitter {
  constructor(channel, options) {
    super();
    Object.assign(this, { channel, options, published: [], isSubscribed: false });
  }
  subscribe() {
    this.emit('subscribing', { code: 0, reason: 'subscribe called' });
  }
  unsubscribe() {
    this.emit('unsubscribed', { code: 0, reason: 'unsubscribe called' });
  }
  setData(data) {
    this.data = data;
  }
  async publish(data) {
    this.published.push(data);
    if (this.refusal) throw this.refusal;
  }
}

class Client {
  subscriptions = [];
  removed = [];
  sent = [];
  calls = [];
  connections = 1;
  newSubscription(channel, options) {
    this.subscriptions.push(new Subscription(channel, options));
    return this.subscriptions.at(-1);
  }
  removeSubscription(subscription) {
    this.removed.push(subscription);
  }
  async send(data) {
    this.sent.push(data);
  }
  async rpc(method, data) {
    this.calls.push([method, data]);
  }
  disconnect() {
    this.last.emit('subscribing', { code: 1, reason: 'transport closed' });
  }
  connect() {
    this.connections += 1;
  }
  get last() {
    return this.subscriptions.at(-1);
  }
}

function bench(options = {}) {
  const client = new Client();
  const clock = { ms: 1_000 };
  const room = new Room(client, 'hunt:1', { now: () => clock.ms, ...options });
  const seen = [];
  for (const name of ['snapshot', 'event', 'joined', 'left', 'error']) room.on(name, (event) => seen.push([name, event]));
  const names = () => seen.map(([name]) => name);
  const encode = options.encoding === 'protobuf' ? toProtobuf : toJson;
  const publish = (parts, offset) => client.last.emit('publication', { data: encode(snapshot({ view: 9, ...parts })), offset });
  const joined = () => {
    room.join();
    client.last.emit('subscribed', {});
  };
  return { client, clock, room, seen, names, publish, joined };
}

const FIRST = { tick: 1, avatar: 1, cells: [cell(9, { full: true, upserts: [object(1, 0, 0)] })] };

for (const encoding of ['json', 'protobuf']) {
  test(`join, snapshots, inputs, events, leave, ${encoding}`, async () => {
    const { client, clock, room, seen, names, publish, joined } = bench({ encoding, data: { name: 'Ada' } });
    assert.equal(room.state, 'left');
    joined();
    assert.deepEqual([client.last.channel, room.state], ['hunt:1', 'joined']);
    const { data } = client.last.options;
    assert.deepEqual(encoding === 'json' ? data : JSON.parse(new TextDecoder().decode(data)), { name: 'Ada' });

    publish(FIRST);
    assert.equal(room.replica.object(room.replica.avatar).x, 512);
    assert.deepEqual([room.send(Uint8Array.of(1)), room.send(Uint8Array.of(0, 127, 0))], [1, 2]);
    assert.equal(client.sent.length, 2);
    const sent = client.sent[1];
    if (encoding === 'json') assert.deepEqual(sent, { number: 2, data: 'AH8A', room: 'hunt:1' });
    else assert.deepEqual([...sent], [8, 2, 18, 3, 0, 127, 0, 26, 6, ...Buffer.from('hunt:1')]);

    clock.ms += 40;
    publish({ tick: 4, base: 1, ack: 1 });
    assert.deepEqual(room.inputs.pending.map(({ number }) => number), [2]);
    const figures = room.figures();
    assert.equal(figures.roundTripMs, 40);
    assert.deepEqual([figures.baseAgeTicks, figures.skippedTicks, figures.fullSnapshots], [3, 2, 1]);
    assert.equal(figures.bytesPerSecond === null, encoding === 'json');

    const event = { tick: 3, event: { clue: 1 } };
    const bytes = new TextEncoder().encode(JSON.stringify(event));
    client.last.emit('publication', { data: encoding === 'json' ? event : bytes, offset: 12 });
    assert.deepEqual(seen.at(-1), ['event', event]);

    room.leave();
    assert.deepEqual([room.state, room.replica.tick, client.removed.length], ['left', 0, 1]);
    assert.deepEqual(names(), ['joined', 'snapshot', 'snapshot', 'event', 'left']);
    assert.throws(() => room.send(Uint8Array.of(1)), { kind: 'not_joined' });
  });
}

for (const encoding of ['json', 'protobuf']) {
  test(`a room that moves to another node, ${encoding}`, () => {
    const { clock, room, joined, publish, seen } = bench({ encoding });
    const [moves, behindUs] = [[], START_US - 2_000_000];
    room.on('moved', ({ tick }) => moves.push([tick, room.replica.tick]));
    joined();
    publish({ tick: 8, cells: [cell(9, { upserts: [object(1, 5, 5)] })] });
    room.send(new Uint8Array([1]));
    publish({ tick: 12, moved: true, timeUs: behindUs, ack: 1, cells: [cell(9, { upserts: [object(2, 6, 6)] })] });
    assert.equal(room.clock.serverTimeMs(clock.ms), behindUs / 1_000, 'the new node has a clock of its own');
    publish({ tick: 13, base: 12 });
    assert.deepEqual(moves, [[12, 12]], 'once, and the replica shows it');
    assert.deepEqual([...room.replica.objects()].map(({ id }) => id), [2]);
    assert.equal(room.state, 'joined');
    const steps = [[20, 0, 0, 10], [21, 20, 100, 20], [22, 21, 200, 30], [23, 0, -2_000, 40], [24, 23, -1_900, 50]];
    for (const [tick, base, ms, x] of steps) {
      clock.ms += 100;
      const parts = { tick, base, timeUs: START_US + ms * 1_000, cells: [cell(9, { full: base === 0, upserts: [object(1, x, 0)] })] };
      publish(tick === 23 ? { ...parts, moved: true } : parts);
    }
    assert.equal(room.interpolation.place(1, START_US / 1_000 - 1_950).x, 512 + 45, 'half of the way, on the new clock');
    assert.deepEqual(seen.filter(([name]) => name === 'left' || name === 'error'), []);
  });
}

test('a connection that is lost resets everything, and numbers begin anew', () => {
  const { client, room, seen, publish, joined } = bench();
  joined();
  publish(FIRST);
  room.send(Uint8Array.of(1));
  client.last.emit('subscribing', { code: 1, reason: 'transport closed' });
  assert.deepEqual(seen.at(-1), ['left', { code: 1, reason: 'transport closed', rejoins: true }]);
  assert.deepEqual([room.state, room.replica.size, room.inputs.pending.length], ['joining', 0, 0]);
  client.last.emit('subscribed', {});
  publish({ ...FIRST, tick: 50 });
  assert.deepEqual([room.send(Uint8Array.of(1)), room.replica.tick, client.subscriptions.length], [1, 50, 1]);
});

test('a room that is over says so, and can be joined again', () => {
  const { client, room, seen, publish, joined } = bench();
  joined();
  publish(FIRST);
  client.last.emit('unsubscribed', { code: 2000, reason: 'unsubscribed' });
  assert.deepEqual(seen.at(-1), ['left', { code: 2000, reason: 'unsubscribed', rejoins: false }]);
  joined();
  assert.deepEqual([room.state, client.subscriptions.length], ['joined', 2]);
});

test('a refused join tells why', () => {
  const { client, room, seen } = bench();
  room.join();
  client.last.emit('unsubscribed', { code: 400, reason: 'bad name' });
  assert.deepEqual(seen, [['left', { code: 400, reason: 'bad name', rejoins: false }]]);
  assert.equal(room.state, 'left');
});

test('after a bad snapshot the client connects and joins again, but not for ever', () => {
  const { client, room, seen, names, publish, joined } = bench();
  joined();
  for (let round = 1; round <= 3; round += 1) {
    publish({ tick: 9, base: 8 });
    if (round === 3) break;
    assert.deepEqual(seen.at(-2), ['left', { code: 0, reason: seen.at(-1)[1].message, rejoins: true }]);
    assert.deepEqual([room.state, client.connections, client.removed.length], ['joining', 1 + round, 0], 'the subscription, and so the seat, is kept');
    publish({ tick: 10, base: 9 });
    assert.equal(names().filter((name) => name === 'error').length, round, 'the rest of the frame is ignored');
    client.last.emit('subscribed', {});
  }
  assert.deepEqual([room.state, client.subscriptions.length, client.removed.length, client.connections], ['left', 1, 1, 3]);
  assert.deepEqual(names(), ['joined', 'left', 'error', 'joined', 'left', 'error', 'joined', 'left', 'error']);
});

test('who leaves because of a bad snapshot does not connect again', () => {
  const { client, room, publish, joined } = bench();
  joined();
  room.on('left', ({ rejoins }) => rejoins && room.leave());
  publish({ tick: 9, base: 8 });
  assert.deepEqual([room.state, client.connections, client.removed.length], ['left', 1, 1]);
});

test('a good snapshot in between clears the account of bad ones, but not soon after the join', () => {
  for (const [waitMs, state] of [[5_000, 'joined'], [4_999, 'left']]) {
    const { client, clock, room, publish, joined } = bench();
    joined();
    for (let round = 1; round <= 5 && room.state === 'joined'; round += 1) {
      clock.ms += waitMs;
      publish({ ...FIRST, tick: round });
      publish({ tick: 99, base: 98 });
      if (room.state === 'joining') client.last.emit('subscribed', {});
    }
    assert.equal(room.state, state);
  }
});

test('the wrong build of the SDK is named', () => {
  const { room, seen, client, joined } = bench({ encoding: 'json' });
  joined();
  client.last.emit('publication', { data: toProtobuf(snapshot(FIRST)) });
  assert.match(seen.at(-1)[1].message, /encoding: "protobuf"/);
  assert.equal(room.state, 'left');
});

test('an input that the room refuses comes back as an error', async () => {
  const { client, room, seen, publish, joined } = bench({ transport: 'publish' });
  joined();
  publish(FIRST);
  client.last.refusal = { code: 111, message: 'too many requests' };
  room.send(Uint8Array.of(1));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(client.last.published, [{ number: 1, data: 'AQ==' }]);
  assert.match(seen.at(-1)[1].message, /too many requests \(111\)/);
});

test('a malformed event is an error, and the room continues', () => {
  const { client, room, seen, joined } = bench({ encoding: 'protobuf' });
  joined();
  for (const text of ['{', '7', '{"tick":1}', '{"event":1}']) {
    client.last.emit('publication', { data: new TextEncoder().encode(text), offset: 1 });
    assert.equal(seen.at(-1)[1].kind, 'malformed');
  }
  assert.equal(room.state, 'joined');
});

test('a function for tokens is asked with the channel', async () => {
  const { client, room } = bench({ getToken: async (channel) => `token of ${channel}` });
  room.join();
  assert.equal(await client.last.options.getToken({ channel: 'hunt:1' }), 'token of hunt:1');
  assert.equal('token' in client.last.options, false);
});

for (const encoding of ['json', 'protobuf']) {
  test(`a pace is stated with each join, and changed in between, ${encoding}`, async () => {
    const encode = (value) => (encoding === 'json' ? value : new TextEncoder().encode(JSON.stringify(value)));
    const decode = (data) => (encoding === 'json' ? data : JSON.parse(new TextDecoder().decode(data)));
    const { client, room } = bench({ encoding, updatesPerSecond: 20 });
    room.join();
    assert.deepEqual(decode(client.last.options.data), { updates_per_second_max: 20 });
    await room.setPace(1);
    assert.deepEqual([decode(client.last.data), client.calls], [{ updates_per_second_max: 1 }, []]);
    client.last.emit('subscribed', { data: encode({ seat_token: 'one' }) });
    assert.deepEqual(decode(client.last.data), { updates_per_second_max: 1, seat_token: 'one' });
    await room.setPace(null);
    const [[method, stated]] = client.calls;
    assert.deepEqual([method, decode(stated)], ['dunlin.subscription_pace', { channel: 'hunt:1', updates_per_second_max: null }]);
    assert.deepEqual(decode(client.last.data), { seat_token: 'one' });
    await room.setPace(2);
    client.last.setData = undefined;
    client.last.emit('subscribed', {});
    assert.deepEqual(decode(client.calls.at(-1)[1]), { channel: 'hunt:1', updates_per_second_max: 2 });
  });

  test(`what a join asks for: the seat of its token, and fields, ${encoding}`, () => {
    const encode = (value) => (encoding === 'json' ? value : new TextEncoder().encode(JSON.stringify(value)));
    const decode = (data) => (encoding === 'json' ? data : JSON.parse(new TextDecoder().decode(data)));
    const { client, room, seen } = bench({ encoding, data: { name: 'Ada' } });
    room.join();
    assert.deepEqual([room.seatToken, decode(client.last.options.data)], [null, { name: 'Ada' }]);
    client.last.emit('subscribed', { data: encode({ seat_token: 'one' }) });
    assert.deepEqual([room.seatToken, decode(client.last.data)], ['one', { name: 'Ada', seat_token: 'one' }]);
    assert.deepEqual(seen, [['joined', { seatResumed: false }]]);
    client.last.emit('subscribed', { data: encode({ seat_token: 'two', seat_resumed: true }) });
    assert.deepEqual(seen.at(-1), ['joined', { seatResumed: true }]);
    assert.deepEqual([room.seatToken, decode(client.last.data)], ['two', { name: 'Ada', seat_token: 'two' }]);
    client.last.emit('subscribed', { data: encode({ seat_token: 3 }) });
    client.last.emit('subscribed', { data: encode('four') });
    assert.equal(room.seatToken, 'two');

    for (const [data, sent] of [[undefined, { seat_token: 'two' }], [{ name: 'Bob' }, { name: 'Bob', seat_token: 'two' }], [{ seat_token: 'old', name: 'Bob' }, { name: 'Bob', seat_token: 'two' }], [[1], [1]]]) {
      const later = bench({ encoding, data, seatToken: room.seatToken });
      later.room.join();
      assert.deepEqual(decode(later.client.last.options.data), sent);
    }
    for (const [data, sent] of [[undefined, { snapshots: 'typed' }], [{ name: 'Bob' }, { name: 'Bob', snapshots: 'typed' }], ['Bob', 'Bob']]) {
      const asking = bench({ encoding, data, typed: true });
      asking.room.join();
      assert.deepEqual(decode(asking.client.last.options.data), sent);
    }
  });

  test(`listeners to an event of the game get its value, ${encoding}`, () => {
    const { client, room, names, joined } = bench({ encoding });
    const found = [];
    const stop = room.onEvent('found', (value, tick) => found.push([value, tick]));
    joined();
    const publish = (event, offset) => {
      const document = { tick: 7, event };
      client.last.emit('publication', { data: encoding === 'json' ? document : new TextEncoder().encode(JSON.stringify(document)), offset });
    };
    publish({ found: { value: 35 } }, 1);
    publish({ lost: 1 }, 2);
    publish(['found'], 3);
    publish('found', 4);
    publish(null, 5);
    publish({ found: null, more: 1 }, 6);
    stop();
    publish({ found: 1 }, 7);
    assert.deepEqual(found, [[{ value: 35 }, 7], [null, 7]]);
    assert.equal(names().filter((name) => name === 'event').length, 7);
  });
}

test("the server's tick at a moment", () => {
  const { clock, room, publish, joined } = bench();
  joined();
  publish(FIRST);
  clock.ms += 500;
  assert.ok(Math.abs(room.tickNow() - 31) < 0.001);
});

test("the server's tick at a moment in a room that is slowed", () => {
  const { clock, room, publish, joined } = bench();
  joined();
  publish({ ...FIRST, ratePermille: 250 });
  clock.ms += 400;
  assert.ok(Math.abs(room.tickNow() - 7) < 0.001);
  assert.deepEqual([room.replica.ratePermille, room.replica.ticksPerSecond], [250, 15]);
});

test('inputs are remembered up to a bound', () => {
  const inputs = new Inputs();
  for (let count = 0; count < 1_025; count += 1) inputs.add(Uint8Array.of(), 0);
  assert.deepEqual([inputs.pending.length, inputs.pending[0].number], [1_024, 2]);
  assert.equal(inputs.acknowledge(1_024).length, 1_023);
  assert.deepEqual(inputs.pending.map(({ number }) => number), [1_025]);
  assert.equal(inputs.acknowledge(4_000).length, 1);
});

test('figures are those of the last second', () => {
  const statistics = new Statistics();
  const at = (tick) => tick * 20;
  for (let tick = 1; tick <= 300; tick += 1) {
    statistics.arrived({ tick, base: tick - 1, timeUs: START_US }, tick < 100 ? 9_000 : 100, tick % 10, at(tick));
    if (tick === 26) assert.equal(statistics.figures(at(26)).snapshotsPerSecond, 50, 'half a second after the start');
  }
  const figures = statistics.figures(at(300));
  assert.deepEqual([figures.snapshotsPerSecond, figures.ticksPerSecond, figures.bytesPerSecond], [50, 50, 5_000]);
  assert.equal(figures.jitterMs, 9);
  assert.deepEqual([figures.baseAgeTicks, figures.skippedTicks], [1, 0]);
  assert.equal(statistics.figures(60_000).snapshotsPerSecond, 0);
});

test('a meter counts bytes of texts and buffers', () => {
  class Socket extends EventTarget {}
  const meter = new SocketMeter();
  const socket = new (meter.socketClass(Socket))('ws://localhost');
  for (const data of ['abc', '\u00e4\u20ac\ud83d\ude00', new Uint8Array(5), new ArrayBuffer(7)]) {
    socket.dispatchEvent(Object.assign(new Event('message'), { data }));
  }
  assert.deepEqual([meter.messagesIn, meter.bytesIn], [4, 3 + 9 + 5 + 7]);
});

for (const encoding of ['json', 'protobuf']) {
  test(`a seat token is returned with the next join, ${encoding}`, () => {
    const { client, room } = bench({ encoding, data: { name: 'Ada' } });
    const encode = (value) => (encoding === 'json' ? value : new TextEncoder().encode(JSON.stringify(value)));
    const decode = (data) => (encoding === 'json' ? data : JSON.parse(new TextDecoder().decode(data)));
    room.join();
    client.last.emit('subscribed', {});
    assert.equal(client.last.data, undefined);
    client.last.emit('subscribed', { data: encode({ seat_token: 'ab' }) });
    assert.deepEqual(decode(client.last.data), { name: 'Ada', seat_token: 'ab' });
    client.last.emit('subscribed', { data: encode({ other: 1 }) });
    client.last.emit('subscribed', { data: encode({ seat_token: 'cd' }) });
    assert.deepEqual(decode(client.last.data), { name: 'Ada', seat_token: 'cd' });
    room.leave();
    room.join();
    assert.deepEqual(decode(client.last.options.data), { name: 'Ada', seat_token: 'cd' });
  });
}

test('a seat token goes without other data, and not into data that is no object', () => {
  for (const [data, returned] of [[undefined, { seat_token: 'ab' }], [null, { seat_token: 'ab' }], [[1], [1]], ['x', 'x']]) {
    const { client, room } = bench({ data });
    room.join();
    client.last.emit('subscribed', { data: { seat_token: 'ab' } });
    assert.deepEqual(client.last.data, returned);
  }
});
