// The pace of a subscription and of a session, stated by the official SDK: a phone, and a desk without a pace.
import assert from 'node:assert/strict';
import { inBothEncodings } from './support/client.mjs';
import { api, channelIn, newUser, token } from './support/server.mjs';

/** Publishes rounds of a new value for each of the keys, and returns the last value of each. */
async function publish(channel, rounds, keys) {
  for (let round = 1; round <= rounds; round += 1) {
    const commands = keys.map((symbol) => ({ publish: { channel, data: { symbol, round }, tags: { symbol } } }));
    await api('batch', { commands });
  }
}

/** What a subscription receives until it has the last round of each key, by key. */
async function untilRound(bench, events, round, keys) {
  const seen = new Map(keys.map((symbol) => [symbol, []]));
  while (keys.some((symbol) => seen.get(symbol).at(-1) !== round)) {
    const { symbol, round } = bench.decode((await events.next('publication')).data);
    seen.get(symbol).push(round);
  }
  return seen;
}

inBothEncodings('pace', (scenario) => {
  const keys = ['a', 'b', 'c'];
  const rounds = 200;

  scenario('a phone gets the last value of each key with few of those in between, a desk all of them', async (bench) => {
    const channel = channelIn('prices');
    const [desk, phone] = [await bench.connected(), await bench.connected()];
    const fast = await bench.subscribed(desk.client, channel);
    const slow = await bench.subscribed(phone.client, channel, { data: bench.encode({ updates_per_second_max: 1 }) });
    const startMs = performance.now();
    await publish(channel, rounds, keys);
    const seen = { desk: await untilRound(bench, fast.events, rounds, keys), phone: await untilRound(bench, slow.events, rounds, keys) };
    const turnsMax = Math.ceil((performance.now() - startMs) / 1_000) + 1;
    for (const symbol of keys) {
      const [all, some] = [seen.desk.get(symbol), seen.phone.get(symbol)];
      assert.deepEqual(some, [...some].sort((one, other) => one - other), 'in order');
      assert.ok(some.length <= turnsMax, `${some.length} of ${symbol} in ${turnsMax} turns`);
      assert.ok(all.length > 2 * some.length, `the desk got ${all.length} of ${symbol}, the phone ${some.length}`);
    }
  });

  scenario('a pace changes live, by the client and by the server API', async (bench) => {
    const [channel, user] = [channelIn('prices'), newUser()];
    const { client } = await bench.connected({ token: token({ sub: user }) });
    const { sub, events } = await bench.subscribed(client, channel);
    const state = async (updates) => client.rpc('dunlin.subscription_pace', bench.encode({ channel, updates_per_second_max: updates }));
    assert.deepEqual(bench.decode((await state(0.1)).data), {});
    await publish(channel, 1, ['a']);
    await events.next('publication');
    await publish(channel, 50, ['a']);
    // It rests for ten seconds; without a pace, the last value comes at once.
    assert.deepEqual(await api('subscription_pace', { user, channel, updates_per_second_max: null }), {});
    assert.deepEqual(bench.decode((await events.next('publication')).data), { symbol: 'a', round: 50 });
    assert.deepEqual(await api('session_pace', { user, bytes_per_second_max: 100_000 }), {});
    assert.deepEqual(bench.decode((await client.rpc('dunlin.session_pace', bench.encode({ bytes_per_second_max: null }))).data), {});
    // The SDK subscribes again with this data after a reconnect.
    sub.setData?.(bench.encode({ updates_per_second_max: 2 }));
  });

  scenario('paces out of range, and lanes without one, are refused with a reason', async (bench) => {
    const { client } = await bench.connected();
    for (const updates of [0, -1, 1_000_000, 'fast']) {
      const { events, sub } = bench.subscription(client, channelIn('prices'), { data: bench.encode({ updates_per_second_max: updates }) });
      const { code, reason } = await events.next('unsubscribed');
      assert.deepEqual([code, reason], [107, 'updates_per_second_max must be a number from 0.1 to 1000, or null for no pace']);
      client.removeSubscription(sub);
    }
    const channel = channelIn('open');
    await bench.subscribed(client, channel);
    await assert.rejects(client.rpc('dunlin.subscription_pace', bench.encode({ channel, updates_per_second_max: 1 })), (error) => {
      assert.equal(error.code, 108);
      assert.match(error.message, /reliable lane leaves no publication out/);
      return true;
    });
    await assert.rejects(client.rpc('dunlin.session_pace', bench.encode({ bytes_per_second_max: 0 })), { code: 107 });
  });
});
