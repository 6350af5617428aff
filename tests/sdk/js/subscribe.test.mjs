import assert from 'node:assert/strict';
import { inBothEncodings } from './support/client.mjs';
import { within } from './support/events.mjs';
import { numberOf } from './support/offsets.mjs';
import { api, channelIn, inSeconds, newUser, token } from './support/server.mjs';

inBothEncodings('subscribe', (scenario) => {
  scenario('to a plain channel, and leave it', async (bench) => {
    const { client } = await bench.connected();
    const { sub, events, context } = await bench.subscribed(client, channelIn('open'));
    assert.equal(context.positioned, false);
    assert.equal(context.recoverable, false);
    assert.equal(context.wasRecovering, false);
    assert.equal(context.recovered, false);
    sub.unsubscribe();
    assert.equal((await events.next('unsubscribed')).code, 0);
    sub.subscribe();
    await events.next('subscribed');
  });

  for (const [what, channel, code] of [
    ['an unknown namespace', () => channelIn('nowhere'), 102],
    ['a namespace that allows nothing', () => channelIn('closed'), 103],
    ['a channel without namespace when anonymous', () => channelIn('x').slice(2), 103],
    ['a private channel without token', () => `$${channelIn('open')}`, 103],
    ["another user's channel", () => `${channelIn('users')}#somebody`, 103],
    ['a name that is too long', () => `open:${'x'.repeat(251)}`, 107],
    ['a name that is not ASCII', () => `${channelIn('open')}-é`, 107],
  ]) {
    scenario(`to ${what}: terminal, ${code}`, async (bench) => {
      const { client } = await bench.connected();
      const { sub, events } = bench.subscription(client, channel());
      assert.equal((await events.next('unsubscribed')).code, code);
      assert.equal(sub.state, 'unsubscribed');
      assert.equal(client.state, 'connected');
    });
  }

  scenario('the longest name is accepted', async (bench) => {
    const { client } = await bench.connected();
    const channel = channelIn('open');
    await bench.subscribed(client, channel.padEnd(255, 'x'));
  });

  scenario('with a user: channels without namespace and of this user', async (bench) => {
    const user = newUser();
    const { client } = await bench.connected({ token: token({ sub: user }) });
    await bench.subscribed(client, channelIn('x').slice(2));
    await bench.subscribed(client, `${channelIn('users')}#other,${user}`);
  });

  scenario('128 channels, the 129th is refused with 106', async (bench) => {
    const { client } = await bench.connected();
    client.startBatching();
    const many = Array.from({ length: 128 }, () => bench.subscription(client, channelIn('open')));
    client.stopBatching();
    for (const { events } of many) await events.next('subscribed');
    const { events } = bench.subscription(client, channelIn('open'));
    assert.equal((await events.next('unsubscribed')).code, 106);
    many[0].sub.unsubscribe();
    await many[0].events.next('unsubscribed');
    await bench.subscribed(client, channelIn('open'));
  });

  scenario('a channel the token subscribed on the server side: events on the client, 105 for a second one', async (bench) => {
    const channel = channelIn('history');
    const { client, events } = bench.client({ token: token({ sub: newUser(), channels: [channel] }) });
    client.connect();
    const context = await events.next('subscribed');
    assert.equal(context.channel, channel);
    assert.equal(context.recoverable, true);
    await api('publish', { channel, data: { n: 1 } });
    const publication = await events.next('publication');
    assert.equal(publication.channel, channel);
    assert.equal(numberOf(channel, publication.offset), 1);
    assert.deepEqual(bench.decode(publication.data), { n: 1 });
    const { events: own } = bench.subscription(client, channel);
    assert.equal((await own.next('unsubscribed')).code, 105);
  });

  scenario('positioned, recoverable and join/leave only when asked for', async (bench) => {
    const { client, context: { client: own } } = await bench.connected();
    const plain = await bench.subscribed(client, channelIn('optional'));
    assert.deepEqual([plain.context.positioned, plain.context.recoverable], [false, false]);
    const positioned = await bench.subscribed(client, channelIn('optional'), { positioned: true });
    assert.deepEqual([positioned.context.positioned, positioned.context.recoverable], [true, false]);
    const channel = channelIn('optional');
    const recoverable = await bench.subscribed(client, channel, { recoverable: true });
    assert.deepEqual([recoverable.context.positioned, recoverable.context.recoverable], [true, true]);
    assert.equal(numberOf(channel, recoverable.context.streamPosition.offset), 0);
    assert.notEqual(recoverable.context.streamPosition.epoch, '');
    const joins = await bench.subscribed(client, channelIn('optional'), { joinLeave: true });
    assert.equal((await joins.events.next('join')).info.client, own);
  });
});

inBothEncodings('subscription token', (scenario) => {
  const connect = async (bench) => {
    const user = newUser();
    return { user, ...(await bench.connected({ token: token({ sub: user }) })) };
  };

  scenario('opens a channel that allows nothing, and carries info and data', async (bench) => {
    const { client, user, context } = await connect(bench);
    const channel = channelIn('closed');
    const claims = { sub: user, channel, info: { role: 'admin' }, data: { welcome: true } };
    const { context: subscribed } = await bench.subscribed(client, channel, { token: token(claims) });
    assert.deepEqual(bench.decode(subscribed.data), { welcome: true });
    const { presence } = await api('presence', { channel });
    assert.deepEqual(presence[context.client].chan_info, { role: 'admin' });
    assert.equal(presence[context.client].user, user);
  });

  scenario('opens a private channel', async (bench) => {
    const { client, user } = await connect(bench);
    const channel = `$${channelIn('closed')}`;
    await bench.subscribed(client, channel, { getToken: async (asked) => {
      assert.equal(asked.channel, channel);
      return token({ sub: user, channel });
    } });
  });

  scenario('expired: error 109, the SDK asks for a new one', async (bench) => {
    const { client, user } = await connect(bench);
    const channel = channelIn('closed');
    let asked = 0;
    const { events } = bench.subscription(client, channel, {
      token: token({ sub: user, channel, exp: inSeconds(-10) }),
      getToken: async () => {
        asked += 1;
        return token({ sub: user, channel, exp: inSeconds(600) });
      },
    });
    await events.next('subscribed');
    assert.equal(asked, 1);
    assert.equal((await events.next('error')).error.code, 109);
  });

  scenario('expired without getToken is the end of the subscription', async (bench) => {
    const { client, user } = await connect(bench);
    const channel = channelIn('closed');
    const { events } = bench.subscription(client, channel, {
      token: token({ sub: user, channel, exp: inSeconds(-10) }),
    });
    assert.equal((await events.next('unsubscribed')).code, 1);
    assert.equal(client.state, 'connected');
  });

  scenario('with a wrong signature: 103', async (bench) => {
    const { client, user } = await connect(bench);
    const channel = channelIn('closed');
    const { events } = bench.subscription(client, channel, { token: token({ sub: user, channel }, 'another secret') });
    assert.equal((await events.next('unsubscribed')).code, 103);
  });

  scenario('without a channel claim: 103', async (bench) => {
    const { client, user } = await connect(bench);
    const { events } = bench.subscription(client, channelIn('closed'), { token: token({ sub: user }) });
    assert.equal((await events.next('unsubscribed')).code, 103);
  });

  for (const [what, claims] of [
    ['of another channel', (user) => ({ sub: user, channel: channelIn('closed') })],
    ['of another user', (_, channel) => ({ sub: newUser(), channel })],
    ['of another client', (user, channel) => ({ sub: user, channel, client: 'another' })],
  ]) {
    scenario(`${what}: the connection ends with 3500`, async (bench) => {
      const { client, user, events } = await connect(bench);
      const channel = channelIn('closed');
      bench.subscription(client, channel, { token: token(claims(user, channel)) });
      assert.equal((await events.next('disconnected')).code, 3500);
    });
  }

  scenario('a subscription outlives its token by refreshing it', async (bench) => {
    const { client, user } = await connect(bench);
    const channel = channelIn('closed');
    let asked = 0;
    let thirdAsked;
    const third = new Promise((resolve) => (thirdAsked = resolve));
    const short = () => token({ sub: user, channel, exp: inSeconds(2) });
    const { events } = await bench.subscribed(client, channel, {
      token: short(),
      getToken: async () => {
        asked += 1;
        if (asked === 3) thirdAsked();
        return short();
      },
    });
    await within(third, 'third refresh');
    assert.equal(events.count('subscribing'), 1);
    assert.equal(events.count('subscribed'), 1);
  });

  scenario('a subscription that is not refreshed ends with 2501, and may come back', async (bench) => {
    const { client, user } = await connect(bench);
    const channel = channelIn('closed');
    let asked = 0;
    const { events } = await bench.subscribed(client, channel, {
      token: token({ sub: user, channel, exp: inSeconds(2) }),
      getToken: () => {
        asked += 1;
        return asked === 1 ? new Promise(() => {}) : Promise.resolve(token({ sub: user, channel }));
      },
    });
    await events.next('subscribing');
    const { code } = await events.next('subscribing');
    assert.equal(code, 2501);
    assert.equal(client.state, 'connected');
  });

  scenario("refreshing with another channel's token ends the connection with 3500", async (bench) => {
    const { client, user, events } = await connect(bench);
    const channel = channelIn('closed');
    await bench.subscribed(client, channel, {
      token: token({ sub: user, channel, exp: inSeconds(2) }),
      getToken: async () => token({ sub: user, channel: channelIn('closed') }),
    });
    assert.equal((await events.next('disconnected')).code, 3500);
  });
});
