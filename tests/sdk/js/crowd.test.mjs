import assert from 'node:assert/strict';
import { inBothEncodings } from './support/client.mjs';
import { checkFirstOffsets, numberOf } from './support/offsets.mjs';
import { api, channelIn } from './support/server.mjs';

/** Sessions without a pong end after seven seconds, and 50 clients may have to connect again. */
const PATIENCE_MS = 60_000;
const range = (count) => Array.from({ length: count }, (_, i) => i);

inBothEncodings('crowd', (scenario) => {
  scenario('a batch of 100 subscriptions, then a broadcast to all of them', async (bench) => {
    const { client } = await bench.connected();
    const channels = range(100).map(() => channelIn('history'));
    client.startBatching();
    const subs = channels.map((channel) => bench.subscription(client, channel));
    client.stopBatching();
    for (const { events } of subs) await events.next('subscribed');
    await api('broadcast', { channels, data: { n: 1 } });
    for (const [index, { events }] of subs.entries()) {
      const { offset, data } = await events.next('publication');
      assert.deepEqual([numberOf(channels[index], offset), bench.decode(data)], [1, { n: 1 }]);
    }
  });

  scenario('50 clients in one channel see the same publications in the same order', async (bench) => {
    const channel = channelIn('history');
    const sessions = await Promise.all(range(50).map(async () => {
      const { client } = await bench.connected();
      return { client, ...(await bench.subscribed(client, channel)) };
    }));
    await Promise.all(sessions.map(({ client }, n) => client.publish(channel, bench.encode({ n }))));
    const seen = await Promise.all(sessions.map(({ events }) => events.take('publication', 50)));
    const order = seen[0].map(({ data }) => bench.decode(data).n);
    assert.deepEqual([...order].sort((a, b) => a - b), range(50));
    const offsets = seen[0].map(({ offset }) => offset);
    checkFirstOffsets(offsets);
    for (const publications of seen) {
      assert.deepEqual(publications.map(({ offset }) => offset), offsets);
      assert.deepEqual(publications.map(({ data }) => bench.decode(data).n), order);
    }
  });

  // On a busy machine, this process says nothing for so long that the server ends sessions. Their clients come back as new
  // sessions, so this test compares the sessions that there are.
  scenario('50 clients come and go, presence is empty in the end', async (bench) => {
    const channel = channelIn('presence');
    const watcher = member(bench, channel);
    await until('the watcher is alone', () => others(watcher, [watcher.id]));
    const crowd = range(50).map(() => member(bench, channel));
    await until('all are present', () => others(watcher, [watcher, ...crowd].map(({ id }) => id)));
    await until('all have joined', () => watcher.isAway() || missing(crowd.map(({ id }) => id), watcher.joined));
    for (const { client } of crowd) client.disconnect();
    await until('the watcher is alone again', () => others(watcher, [watcher.id]));
    const came = () => watcher.joined.filter((id) => id !== watcher.id);
    await until('all who joined have left', () => watcher.isAway() || missing(came(), watcher.left));
    if (!watcher.isAway()) {
      for (const ids of [watcher.joined, watcher.left]) assert.equal(new Set(ids).size, ids.length, 'told once');
    }
  });
});

/** A client that stays connected and subscribed, with the id of its session and whose joins and leaves it has seen. */
function member(bench, channel) {
  const { client, events } = bench.client();
  // No event tells who came and went while the watcher was away.
  const made = { client, events, channel, id: null, joined: [], left: [], isAway: () => events.count('connected') > 1 };
  client.on('connected', (context) => (made.id = context.client));
  // The SDK does not reconnect after "stale".
  client.on('disconnected', ({ code }) => code === 3502 && client.connect());
  const { sub } = bench.subscription(client, channel);
  sub.on('join', ({ info }) => made.joined.push(info.client));
  sub.on('leave', ({ info }) => made.left.push(info.client));
  client.connect();
  return made;
}

/** The difference between who is present and who should be; null for none. */
async function others({ client, channel }, expected) {
  const { clients } = await client.presence(channel);
  const present = Object.keys(clients);
  const [absent, surplus] = [missing(expected, present), missing(present, expected)];
  return absent === null && surplus === null ? null : { absent, surplus };
}

/** The members of `wanted` that are not among `ids`; null for none. */
function missing(wanted, ids) {
  const absent = wanted.filter((id) => !ids.includes(id));
  return absent.length === 0 ? null : absent;
}

/** Waits until `look` returns null or true; otherwise it returns what is wrong. */
async function until(what, look) {
  const begin = Date.now();
  for (;;) {
    // A request fails while its client reconnects.
    const wrong = await Promise.resolve().then(look).catch((error) => error);
    if (wrong === null || wrong === true) return;
    const waitedMs = Date.now() - begin;
    assert.ok(waitedMs < PATIENCE_MS, `${what}: not in ${waitedMs} ms: ${wrong?.message ?? JSON.stringify(wrong)}`);
    await new Promise((resolve) => setTimeout(resolve, 50)); // between two looks
  }
}
