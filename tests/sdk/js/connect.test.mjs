import assert from 'node:assert/strict';
import { inBothEncodings } from './support/client.mjs';
import { within } from './support/events.mjs';
import { channelIn, inSeconds, newUser, token } from './support/server.mjs';

inBothEncodings('connect', (scenario) => {
  scenario('without a token', async (bench) => {
    const { client, context } = await bench.connected();
    assert.equal(client.state, 'connected');
    assert.notEqual(context.client, '');
  });

  scenario('with a token: user and info are the token\'s', async (bench) => {
    const user = newUser();
    const { client, context } = await bench.connected({ token: token({ sub: user, info: { name: 'Ann' } }) });
    const channel = channelIn('presence');
    await bench.subscribed(client, channel);
    const { clients } = await client.presence(channel);
    assert.deepEqual(Object.keys(clients), [context.client]);
    assert.equal(clients[context.client].user, user);
    assert.deepEqual(bench.decode(clients[context.client].connInfo), { name: 'Ann' });
  });

  scenario('a token with a future expiry of the session only', async (bench) => {
    const { client } = await bench.connected({ token: token({ sub: newUser(), exp: inSeconds(600), expire_at: 0 }) });
    assert.equal(client.state, 'connected');
  });

  for (const [what, bad] of Object.entries({
    'a token with a wrong signature': () => token({ sub: newUser() }, 'another secret'),
    'a token that is no JWT': () => 'not-a-token',
    'a subscription token': () => token({ sub: newUser(), channel: 'open:x' }),
    'an unsigned token': () => `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from('{"sub":"x"}').toString('base64url')}.`,
  })) {
    scenario(`${what} is terminal, 3500`, async (bench) => {
      const { client, events } = bench.client({ token: bad() });
      client.connect();
      const { code, reason } = await events.next('disconnected');
      assert.deepEqual([code, reason], [3500, 'invalid token']);
      assert.equal(client.state, 'disconnected');
    });
  }

  scenario('an expired token makes the SDK ask for a new one', async (bench) => {
    let asked = 0;
    const sub = newUser();
    const { client, events } = bench.client({
      token: token({ sub, exp: inSeconds(-10) }),
      getToken: async () => {
        asked += 1;
        return token({ sub, exp: inSeconds(600) });
      },
    });
    client.connect();
    await events.next('connected');
    assert.equal(asked, 1);
    assert.equal(events.count('disconnected'), 0);
    const { error } = await events.next('error');
    assert.deepEqual([error.code, error.message], [109, 'token expired']);
  });

  scenario('an expired token without getToken is the end', async (bench) => {
    const { client, events } = bench.client({ token: token({ sub: newUser(), exp: inSeconds(-10) }) });
    client.connect();
    const { code } = await events.next('disconnected');
    assert.equal(code, 1); // the SDK's own "unauthorized"
  });

  scenario('a token that is not yet valid counts as expired', async (bench) => {
    const sub = newUser();
    const { client, events } = bench.client({
      token: token({ sub, nbf: inSeconds(600) }),
      getToken: async () => token({ sub }),
    });
    client.connect();
    await events.next('connected');
    assert.equal((await events.next('error')).error.code, 109);
  });

  scenario('a session outlives its token by refreshing it', async (bench) => {
    const sub = newUser();
    let asked = 0;
    let thirdAsked;
    const third = new Promise((resolve) => (thirdAsked = resolve));
    const short = () => token({ sub, exp: inSeconds(2) });
    const { events } = await bench.connected({
      token: short(),
      getToken: async () => {
        asked += 1;
        if (asked === 3) thirdAsked();
        return short();
      },
    });
    // The third refresh is later than the first token's expiry plus expired_close_delay.
    await within(third, 'third refresh');
    assert.equal(events.count('connecting'), 1);
    assert.equal(events.count('connected'), 1);
  });

  scenario('a refresh changes the info of the connection', async (bench) => {
    const sub = newUser();
    let asked;
    const refreshed = new Promise((resolve) => (asked = resolve));
    const { client } = await bench.connected({
      token: token({ sub, exp: inSeconds(2), info: { seat: 1 } }),
      getToken: async () => {
        setImmediate(asked);
        return token({ sub, exp: inSeconds(600), info: { seat: 2 } });
      },
    });
    const channel = channelIn('open');
    const { events } = await bench.subscribed(client, channel);
    await within(refreshed, 'refresh');
    for (;;) { // until the server has processed the refresh; the SDK has no event for that
      await client.publish(channel, bench.encode({ n: 1 }));
      const { info } = await events.next('publication');
      if (bench.decode(info.connInfo).seat === 2) break;
    }
  });

  scenario('a session that is not refreshed is closed with 3005, and may come back', async (bench) => {
    const sub = newUser();
    let asked = 0;
    const { events } = await bench.connected({
      token: token({ sub, exp: inSeconds(2) }),
      getToken: () => {
        asked += 1;
        return asked === 1 ? new Promise(() => {}) : Promise.resolve(token({ sub }));
      },
    });
    await events.next('connecting');
    const { code, reason } = await events.next('connecting');
    assert.deepEqual([code, reason], [3005, 'connection expired']);
  });

  for (const [what, bad] of Object.entries({
    'a bad token': () => token({ sub: 'x' }, 'another secret'),
    "another user's token": () => token({ sub: newUser() }),
  })) {
    scenario(`refreshing with ${what} is terminal, 3500`, async (bench) => {
      const { events } = await bench.connected({
        token: token({ sub: newUser(), exp: inSeconds(2) }),
        getToken: async () => bad(),
      });
      const { code } = await events.next('disconnected');
      assert.equal(code, 3500);
    });
  }

  scenario('pings are answered, so the connection stays', async (bench) => {
    const proxy = await bench.proxy();
    const { events } = await bench.connected({}, proxy.url);
    // When the second ping arrives, the pong for the first one is already due.
    await within(proxy.pings(2), 'two pings');
    assert.equal(events.count('connecting'), 1);
  });

  scenario('a server that falls silent is left, and found again', async (bench) => {
    const proxy = await bench.proxy();
    const { events } = await bench.connected({ maxServerPingDelay: 200 }, proxy.url);
    await events.next('connecting');
    proxy.hold();
    const { code } = await events.next('connecting');
    assert.equal(code, 2); // the SDK's own "no ping"
    proxy.release();
    await events.next('connected');
  });

  scenario('a client can disconnect and connect again', async (bench) => {
    const { client, events, context } = await bench.connected();
    client.disconnect();
    const { code } = await events.next('disconnected');
    assert.equal(code, 0);
    client.connect();
    const again = await events.next('connected');
    assert.notEqual(again.client, context.client);
  });

  scenario('rpc without a handler: error 108', async (bench) => {
    const { client } = await bench.connected();
    await assert.rejects(client.rpc('any', bench.encode({})), { code: 108, message: 'not available' });
    assert.equal(client.state, 'connected');
  });

  scenario('send without a handler: terminal, 3508', async (bench) => {
    const { client, events } = await bench.connected();
    await client.send(bench.encode({ hello: 1 }));
    const { code, reason } = await events.next('disconnected');
    assert.deepEqual([code, reason], [3508, 'not available']);
  });
});
