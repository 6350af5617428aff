import assert from 'node:assert/strict';
import { inBothEncodings } from './support/client.mjs';
import { channelIn, newUser, token } from './support/server.mjs';

inBothEncodings('presence', (scenario) => {
  scenario('names every client, stats count clients and users', async (bench) => {
    const channel = channelIn('presence');
    const ann = newUser();
    const sessions = [
      await bench.connected({ token: token({ sub: ann, info: { name: 'Ann' } }) }),
      await bench.connected({ token: token({ sub: ann }) }),
      await bench.connected({ token: token({ sub: newUser() }) }),
    ];
    for (const { client } of sessions) await bench.subscribed(client, channel);
    const { client } = sessions[0];
    const { clients } = await client.presence(channel);
    assert.deepEqual(Object.keys(clients).sort(), sessions.map(({ context }) => context.client).sort());
    const own = clients[sessions[0].context.client];
    assert.equal(own.user, ann);
    assert.equal(own.client, sessions[0].context.client);
    assert.deepEqual(bench.decode(own.connInfo), { name: 'Ann' });
    const stats = await client.presenceStats(channel);
    assert.deepEqual([stats.numClients, stats.numUsers], [3, 2]);
  });

  scenario('is empty where nobody is', async (bench) => {
    const { client } = await bench.connected();
    const channel = channelIn('presence');
    assert.deepEqual((await client.presence(channel)).clients, {});
    const stats = await client.presenceStats(channel);
    assert.deepEqual([stats.numClients, stats.numUsers], [0, 0]);
  });

  scenario('join and leave reach oneself and the others', async (bench) => {
    const channel = channelIn('presence');
    const user = newUser();
    const first = await bench.connected();
    const watching = await bench.subscribed(first.client, channel);
    assert.equal((await watching.events.next('join')).info.client, first.context.client);

    const second = await bench.connected({ token: token({ sub: user, info: { n: 2 } }) });
    const coming = await bench.subscribed(second.client, channel);
    const join = await watching.events.next('join');
    assert.equal(join.channel, channel);
    assert.equal(join.info.client, second.context.client);
    assert.equal(join.info.user, user);
    assert.deepEqual(bench.decode(join.info.connInfo), { n: 2 });
    assert.equal((await coming.events.next('join')).info.client, second.context.client);

    coming.sub.unsubscribe();
    const leave = await watching.events.next('leave');
    assert.equal(leave.info.client, second.context.client);
    assert.equal(leave.info.user, user);
    const { clients } = await first.client.presence(channel);
    assert.deepEqual(Object.keys(clients), [first.context.client]);
  });

  scenario('a lost connection is a leave', async (bench) => {
    const channel = channelIn('presence');
    const watcher = await bench.connected();
    const { events } = await bench.subscribed(watcher.client, channel);
    await events.next('join');
    const proxy = await bench.proxy();
    const lost = await bench.connected({}, proxy.url);
    await bench.subscribed(lost.client, channel);
    await events.next('join');
    proxy.cut();
    assert.equal((await events.next('leave')).info.client, lost.context.client);
  });

  scenario('no join is pushed where it was not asked for', async (bench) => {
    const channel = channelIn('optional');
    const quiet = await bench.connected();
    const { events } = await bench.subscribed(quiet.client, channel);
    const other = await bench.connected();
    const told = await bench.subscribed(other.client, channel, { joinLeave: true });
    assert.equal((await told.events.next('join')).info.client, other.context.client);
    // After a round trip on this connection, all earlier pushes have arrived.
    await quiet.client.presenceStats(channel);
    assert.equal(events.count('join'), 0);
  });

  for (const [what, channel, code] of [
    ['an unknown namespace', () => channelIn('nowhere'), 102],
    ['a namespace that allows nothing', () => channelIn('closed'), 103],
    ['a subscribers-only namespace from outside', () => channelIn('members'), 103],
    ['a namespace without presence', () => channelIn('open'), 108],
  ]) {
    scenario(`of ${what}: error ${code}`, async (bench) => {
      const { client } = await bench.connected();
      await assert.rejects(client.presence(channel()), { code });
      await assert.rejects(client.presenceStats(channel()), { code });
    });
  }

  scenario('of a subscribers-only namespace from inside', async (bench) => {
    const { client } = await bench.connected();
    const { sub } = await bench.subscribed(client, channelIn('members'));
    assert.equal((await sub.presenceStats()).numClients, 1);
  });
});
