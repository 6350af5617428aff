import assert from 'node:assert/strict';
import { inBothEncodings } from './support/client.mjs';
import { numberOf } from './support/offsets.mjs';
import { api, channelIn } from './support/server.mjs';

const publish = async (channel, from, to) => {
  for (let n = from; n <= to; n += 1) await api('publish', { channel, data: { n } });
};
const range = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

inBothEncodings('recovery', (scenario) => {
  /** A subscription through a proxy, disconnected after the first `seen` publications. */
  const cutOff = async (bench, namespace, seen) => {
    const channel = channelIn(namespace);
    const proxy = await bench.proxy();
    const { client, events: connection } = await bench.connected({}, proxy.url);
    const { sub, events } = await bench.subscribed(client, channel);
    await publish(channel, 1, seen);
    await events.take('publication', seen);
    await events.next('subscribing');
    proxy.cut();
    await events.next('subscribing');
    return { channel, proxy, client, connection, sub, events };
  };
  const numbers = (bench, publications) => publications.map(({ data }) => bench.decode(data).n);

  scenario('every publication missed comes, once and in order, before live ones', async (bench) => {
    const { channel, proxy, events } = await cutOff(bench, 'history', 2);
    await publish(channel, 3, 12);
    proxy.restore();
    const context = await events.next('subscribed');
    assert.equal(context.wasRecovering, true);
    assert.equal(context.recovered, true);
    assert.equal(context.recoverable, true);
    await publish(channel, 13, 13);
    const received = await events.take('publication', 11);
    assert.deepEqual(numbers(bench, received), range(3, 13));
    assert.deepEqual(received.map(({ offset }) => numberOf(channel, offset)), range(3, 13));
    assert.equal(events.count('publication'), 13);
  });

  scenario('publications arriving while the client comes back are neither lost nor doubled', async (bench) => {
    const { channel, proxy, events } = await cutOff(bench, 'history', 1);
    const publishing = publish(channel, 2, 60);
    proxy.restore();
    const received = await events.take('publication', 59);
    await publishing;
    assert.deepEqual(numbers(bench, received), range(2, 60));
    assert.deepEqual(received.map(({ offset }) => numberOf(channel, offset)), range(2, 60));
  });

  scenario('nothing missed is recovered as well', async (bench) => {
    const { proxy, events, channel } = await cutOff(bench, 'history', 3);
    proxy.restore();
    const context = await events.next('subscribed');
    assert.deepEqual([context.wasRecovering, context.recovered], [true, true]);
    await publish(channel, 4, 4);
    assert.deepEqual(numbers(bench, [await events.next('publication')]), [4]);
  });

  scenario('two cuts in a row', async (bench) => {
    const { channel, proxy, events } = await cutOff(bench, 'history', 1);
    for (const n of [2, 3]) {
      await publish(channel, n, n);
      proxy.restore();
      assert.equal((await events.next('subscribed')).recovered, true);
      assert.deepEqual(numbers(bench, [await events.next('publication')]), [n]);
      proxy.cut();
      await events.next('subscribing');
    }
  });

  scenario('more missed than the history holds: not recovered, nothing partial', async (bench) => {
    const { channel, proxy, events } = await cutOff(bench, 'small', 1);
    await publish(channel, 2, 6);
    proxy.restore();
    const context = await events.next('subscribed');
    assert.deepEqual([context.wasRecovering, context.recovered], [true, false]);
    assert.equal(numberOf(channel, context.streamPosition.offset), 6);
    await publish(channel, 7, 7);
    const live = await events.next('publication');
    assert.deepEqual([bench.decode(live.data).n, numberOf(channel, live.offset)], [7, 7]);
  });

  scenario('as many missed as the history holds: recovered', async (bench) => {
    const { channel, proxy, events } = await cutOff(bench, 'small', 1);
    await publish(channel, 2, 3);
    proxy.restore();
    assert.equal((await events.next('subscribed')).recovered, true);
    assert.deepEqual(numbers(bench, await events.take('publication', 2)), [2, 3]);
  });

  scenario('a history that was removed in the meantime is not recovered', async (bench) => {
    const { channel, proxy, events } = await cutOff(bench, 'history', 1);
    await publish(channel, 2, 3);
    await api('history_remove', { channel });
    proxy.restore();
    const context = await events.next('subscribed');
    assert.deepEqual([context.wasRecovering, context.recovered], [true, false]);
  });

  scenario('since a position known beforehand', async (bench) => {
    const channel = channelIn('history');
    const { offset, epoch } = await api('publish', { channel, data: { n: 1 } });
    await publish(channel, 2, 4);
    const { client } = await bench.connected();
    const { context, events } = await bench.subscribed(client, channel, { since: { offset, epoch } });
    assert.deepEqual([context.wasRecovering, context.recovered], [true, true]);
    assert.deepEqual(numbers(bench, await events.take('publication', 3)), [2, 3, 4]);
  });

  scenario('since a position of another epoch: not recovered', async (bench) => {
    const channel = channelIn('history');
    await publish(channel, 1, 2);
    const { client } = await bench.connected();
    const { context } = await bench.subscribed(client, channel, { since: { offset: 1, epoch: 'another' } });
    assert.deepEqual([context.wasRecovering, context.recovered], [true, false]);
  });

  scenario('a subscription that asked to be recoverable recovers', async (bench) => {
    const channel = channelIn('optional');
    const proxy = await bench.proxy();
    const { client } = await bench.connected({}, proxy.url);
    const { events } = await bench.subscribed(client, channel, { recoverable: true });
    await publish(channel, 1, 1);
    await events.next('publication');
    await events.next('subscribing');
    proxy.cut();
    await events.next('subscribing');
    await publish(channel, 2, 3);
    proxy.restore();
    assert.equal((await events.next('subscribed')).recovered, true);
    assert.deepEqual(numbers(bench, await events.take('publication', 2)), [2, 3]);
  });

  scenario('twenty channels at once', async (bench) => {
    const proxy = await bench.proxy();
    const { client } = await bench.connected({}, proxy.url);
    const subs = await Promise.all(range(1, 20).map(async () => {
      const channel = channelIn('history');
      return { channel, ...(await bench.subscribed(client, channel)) };
    }));
    for (const { events } of subs) await events.next('subscribing');
    proxy.cut();
    for (const { events } of subs) await events.next('subscribing');
    for (const { channel } of subs) await publish(channel, 1, 2);
    proxy.restore();
    for (const { events } of subs) {
      assert.equal((await events.next('subscribed')).recovered, true);
      assert.deepEqual(numbers(bench, await events.take('publication', 2)), [1, 2]);
    }
  });
});

inBothEncodings('cache recovery', (scenario) => {
  scenario('the newest publication comes with the first subscription', async (bench) => {
    const channel = channelIn('cache');
    await publish(channel, 1, 3);
    const { client } = await bench.connected();
    const { context, events } = await bench.subscribed(client, channel, { since: {} });
    assert.deepEqual([context.wasRecovering, context.recovered], [true, true]);
    const newest = await events.next('publication');
    assert.deepEqual([bench.decode(newest.data).n, numberOf(channel, newest.offset)], [3, 3]);
    await publish(channel, 4, 4);
    assert.equal(bench.decode((await events.next('publication')).data).n, 4);
  });

  scenario('an empty channel has nothing to recover', async (bench) => {
    const { client } = await bench.connected();
    const { context } = await bench.subscribed(client, channelIn('cache'), { since: {} });
    assert.deepEqual([context.wasRecovering, context.recovered], [true, false]);
  });

  scenario('after a cut only the newest comes; nothing when nothing is new', async (bench) => {
    const channel = channelIn('cache');
    const proxy = await bench.proxy();
    const { client } = await bench.connected({}, proxy.url);
    const { events } = await bench.subscribed(client, channel);
    await publish(channel, 1, 1);
    await events.next('publication');
    await events.next('subscribing');

    proxy.cut();
    await events.next('subscribing');
    await publish(channel, 2, 5);
    proxy.restore();
    assert.equal((await events.next('subscribed')).recovered, true);
    assert.equal(bench.decode((await events.next('publication')).data).n, 5);

    proxy.cut();
    await events.next('subscribing');
    proxy.restore();
    assert.equal((await events.next('subscribed')).recovered, true);
    await publish(channel, 6, 6);
    assert.equal(bench.decode((await events.next('publication')).data).n, 6);
    assert.equal(events.count('publication'), 3);
  });
});
