import assert from 'node:assert/strict';
import { inBothEncodings } from './support/client.mjs';
import { numberOf } from './support/offsets.mjs';
import { api, channelIn, newUser, token } from './support/server.mjs';

inBothEncodings('disconnect by the HTTP API', (scenario) => {
  const connect = async (bench, user = newUser()) => ({ user, ...(await bench.connected({ token: token({ sub: user }) })) });

  scenario('without a code is terminal, 3503', async (bench) => {
    const { user, client, events } = await connect(bench);
    await api('disconnect', { user });
    const { code, reason } = await events.next('disconnected');
    assert.deepEqual([code, reason], [3503, 'force disconnect']);
    assert.equal(client.state, 'disconnected');
  });

  for (const code of [3500, 3999, 4500, 4999]) {
    scenario(`with ${code} is terminal`, async (bench) => {
      const { user, events } = await connect(bench);
      await api('disconnect', { user, disconnect: { code, reason: `because ${code}` } });
      const told = await events.next('disconnected');
      assert.deepEqual([told.code, told.reason], [code, `because ${code}`]);
    });
  }

  for (const code of [3001, 3499, 4000, 4499]) {
    scenario(`with ${code} the client comes back`, async (bench) => {
      const { user, events, context } = await connect(bench);
      await events.next('connecting');
      await api('disconnect', { user, disconnect: { code, reason: `because ${code}` } });
      const told = await events.next('connecting');
      assert.deepEqual([told.code, told.reason], [code, `because ${code}`]);
      assert.notEqual((await events.next('connected')).client, context.client);
      assert.equal(events.count('disconnected'), 0);
    });
  }

  // Centrifugo drops the connection for this code: the client sees neither a close frame nor a disconnect push.
  scenario('with 3000 the client comes back as from a failure of the network', async (bench) => {
    const { user, events, context } = await connect(bench);
    await events.next('connecting');
    await api('disconnect', { user, disconnect: { code: 3000, reason: 'because' } });
    const told = await events.next('connecting');
    assert.deepEqual([told.code, told.reason], [1, 'transport closed']); // the SDK's own
    assert.notEqual((await events.next('connected')).client, context.client);
    assert.equal(events.count('disconnected'), 0);
  });

  scenario('of one client leaves the user\'s others', async (bench) => {
    const first = await connect(bench);
    const second = await connect(bench, first.user);
    await api('disconnect', { user: first.user, client: first.context.client });
    assert.equal((await first.events.next('disconnected')).code, 3503);
    await assert.rejects(second.client.rpc('any', bench.encode({})), { code: 108 }); // the reply proves that the session is alive
  });

  scenario('with a whitelist leaves those named', async (bench) => {
    const first = await connect(bench);
    const second = await connect(bench, first.user);
    await api('disconnect', { user: first.user, whitelist: [second.context.client] });
    assert.equal((await first.events.next('disconnected')).code, 3503);
    await assert.rejects(second.client.rpc('any', bench.encode({})), { code: 108 });
  });

  scenario('all of a user\'s sessions', async (bench) => {
    const first = await connect(bench);
    const second = await connect(bench, first.user);
    await api('disconnect', { user: first.user });
    for (const { events } of [first, second]) assert.equal((await events.next('disconnected')).code, 3503);
  });

  scenario('the subscriptions of a client that comes back are recovered', async (bench) => {
    const { user, client } = await connect(bench);
    const channel = channelIn('history');
    const { events } = await bench.subscribed(client, channel);
    await api('publish', { channel, data: { n: 1 } });
    await events.next('publication');
    await api('disconnect', { user, disconnect: { code: 4000, reason: 'again' } });
    assert.equal((await events.next('subscribed')).recovered, true);
    await api('publish', { channel, data: { n: 2 } });
    assert.deepEqual(bench.decode((await events.next('publication')).data), { n: 2 });
    assert.equal(events.count('publication'), 2);
  });
});

inBothEncodings('unsubscribe by the HTTP API', (scenario) => {
  scenario('ends the subscription with 2000', async (bench) => {
    const user = newUser();
    const { client } = await bench.connected({ token: token({ sub: user }) });
    const channel = channelIn('open');
    const kept = await bench.subscribed(client, channelIn('open'));
    const { sub, events } = await bench.subscribed(client, channel);
    await api('unsubscribe', { user, channel });
    const { code, reason } = await events.next('unsubscribed');
    assert.deepEqual([code, reason], [2000, 'server unsubscribe']);
    assert.equal(sub.state, 'unsubscribed');
    assert.equal(kept.sub.state, 'subscribed');
    sub.subscribe();
    await events.next('subscribed');
  });

  scenario('of one client leaves the user\'s others', async (bench) => {
    const user = newUser();
    const channel = channelIn('open');
    const sessions = [];
    for (let i = 0; i < 2; i += 1) {
      const session = await bench.connected({ token: token({ sub: user }) });
      sessions.push({ ...session, ...(await bench.subscribed(session.client, channel)), id: session.context.client });
    }
    await api('unsubscribe', { user, channel, client: sessions[0].id });
    assert.equal((await sessions[0].events.next('unsubscribed')).code, 2000);
    await api('publish', { channel, data: { n: 1 } });
    await sessions[1].events.next('publication');
  });
});

inBothEncodings('subscribe by the HTTP API', (scenario) => {
  scenario('pushes a server-side subscription, unsubscribe ends it', async (bench) => {
    const user = newUser();
    const { events } = await bench.connected({ token: token({ sub: user }) });
    const channel = channelIn('history');
    await api('subscribe', { user, channel, data: { welcome: 1 } });
    const context = await events.next('subscribed');
    assert.equal(context.channel, channel);
    assert.equal(context.recoverable, true);
    assert.deepEqual(bench.decode(context.data), { welcome: 1 });
    await api('publish', { channel, data: { n: 1 } });
    const publication = await events.next('publication');
    assert.deepEqual([publication.channel, numberOf(channel, publication.offset)], [channel, 1]);
    await api('unsubscribe', { user, channel });
    assert.equal((await events.next('unsubscribed')).channel, channel);
  });
});
