import assert from 'node:assert/strict';
import { inBothEncodings } from './support/client.mjs';
import { checkFirstOffsets, numberOf } from './support/offsets.mjs';
import { api, channelIn } from './support/server.mjs';

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

  scenario('50 clients come and go, presence is empty in the end', async (bench) => {
    const channel = channelIn('presence');
    const watcher = await bench.connected();
    const { events } = await bench.subscribed(watcher.client, channel);
    await events.next('join');
    const crowd = await Promise.all(range(50).map(async () => {
      const session = await bench.connected();
      await bench.subscribed(session.client, channel);
      return session;
    }));
    const joined = await events.take('join', 50);
    const ids = crowd.map(({ context }) => context.client).sort();
    assert.deepEqual(joined.map(({ info }) => info.client).sort(), ids);
    assert.equal((await watcher.client.presenceStats(channel)).numClients, 51);
    for (const { client } of crowd) client.disconnect();
    const left = await events.take('leave', 50);
    assert.deepEqual(left.map(({ info }) => info.client).sort(), ids);
    assert.equal((await watcher.client.presenceStats(channel)).numClients, 1);
  });
});
