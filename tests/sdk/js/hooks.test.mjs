// Sessions for which the server sends requests to a backend.
import assert from 'node:assert/strict';
import WebSocket from 'ws';
import { inBothEncodings } from './support/client.mjs';
import { HOOKS_WS_URL, answers, asked, channelIn, hooksApi, inSeconds, newUser } from './support/server.mjs';

/** A client that is not connected yet. The backend responds to its connect with this answer. */
async function visitor(bench, user, all, options = {}) {
  await answers('connect', user, ...all);
  return bench.client({ data: bench.encode({ about: user }), ...options }, HOOKS_WS_URL);
}

/** A client that the backend accepts as a unique user, with these additional fields in the result. */
async function entered(bench, result = {}, options = {}) {
  const user = newUser();
  const made = await visitor(bench, user, [{ result: { user, ...result } }], options);
  made.client.connect();
  made.context = await made.events.next('connected');
  return { user, ...made };
}

inBothEncodings('the connect hook', (scenario, encoding) => {
  scenario('is asked who comes, and says it', async (bench) => {
    const user = newUser();
    const channel = channelIn('open');
    const subs = { [channel]: { data: { first: true }, info: { seat: 3 } } };
    const result = { user, info: { name: 'Ann' }, data: { welcome: 1 }, channels: [channelIn('open')], subs };
    class Socket extends WebSocket {
      constructor(url, protocols) {
        super(url, protocols, { headers: { 'X-Tests': 'told', 'X-Other': 'not told' } });
      }
    }
    const { client, events } = await visitor(bench, user, [{ result }], { name: 'tests', version: '7', websocket: Socket });
    client.connect();
    const { client: id, data } = await events.next('connected');
    assert.deepEqual(bench.decode(data), { welcome: 1 });
    const subscribed = (await events.take('subscribed', 3)).map((one) => one.channel).sort();
    assert.deepEqual(subscribed, [channel, ...result.channels, `personal:#${user}`].sort());
    const { presence } = await hooksApi('presence', { channel });
    assert.deepEqual(presence, { [id]: { client: id, user, conn_info: { name: 'Ann' }, chan_info: { seat: 3 } } });
    await hooksApi('publish', { channel, data: { n: 1 } });
    assert.deepEqual(bench.decode((await events.next('publication')).data), { n: 1 });
    const [{ question, headers }] = await asked('connect', user);
    assert.deepEqual(question, {
      client: id, transport: 'websocket', protocol: encoding.name, encoding: 'json', data: { about: user }, name: 'tests', version: '7',
    });
    assert.deepEqual([headers['x-tests'], headers['x-other']], ['told', undefined]);
  });

  for (const [what, answer, code] of [
    ['an error', { error: { code: 1000, message: 'no' } }, 1000],
    ['a disconnect', { disconnect: { code: 4501, reason: 'no' } }, 4501],
    ['nothing', {}, 3501],
  ]) {
    scenario(`answers with ${what}: the end, ${code}`, async (bench) => {
      const { client, events } = await visitor(bench, newUser(), [answer]);
      client.connect();
      assert.equal((await events.next('disconnected')).code, code);
    });
  }

  for (const [what, answer] of [
    ['a temporary error', { error: { code: 1000, message: 'not yet', temporary: true } }],
    ['a disconnect after which clients come back', { disconnect: { code: 4001, reason: 'not yet' } }],
    ['status 500', { status: 500 }],
  ]) {
    scenario(`answers with ${what}, and lets the client in when it tries again`, async (bench) => {
      const user = newUser();
      const { client, events } = await visitor(bench, user, [answer, { result: { user } }]);
      client.connect();
      await events.next('connected');
      assert.equal((await asked('connect', user)).length, 2);
      assert.equal(events.count('disconnected'), 0);
    });
  }

  scenario('a user has one connection here: an older one ends with 3504', async (bench) => {
    const { user, events } = await entered(bench);
    const { client } = bench.client({ data: bench.encode({ about: user }) }, HOOKS_WS_URL);
    client.connect();
    assert.equal((await events.next('disconnected')).code, 3504);
    await client.ready();
  });

  scenario("what is published to a user's own channel comes", async (bench) => {
    const { user, events } = await entered(bench);
    await hooksApi('publish', { channel: `personal:#${user}`, data: { for: user } });
    assert.deepEqual(bench.decode((await events.next('publication')).data), { for: user });
  });
});

inBothEncodings('the refresh hook', (scenario) => {
  scenario('keeps a connection, and changes its info', async (bench) => {
    const about = newUser();
    await answers('refresh', about, { result: { expire_at: inSeconds(4), info: { seat: 2 } } }, { result: { expire_at: inSeconds(600) } });
    const result = { user: about, expire_at: inSeconds(2), info: { seat: 1 }, meta: { plan: 'pro' } };
    const { client, events } = await visitor(bench, about, [{ result }]);
    client.connect();
    const { client: id } = await events.next('connected');
    const subscription = await bench.subscribed(client, channelIn('open'));
    const [{ question }] = await asked('refresh', about, 1);
    assert.deepEqual([question.client, question.user, question.meta], [id, about, { plan: 'pro' }]);
    for (;;) { // until the server has the answer, which the client does not receive
      await subscription.sub.publish(bench.encode({}));
      const { info } = await subscription.events.next('publication');
      if (bench.decode(info.connInfo).seat === 2) break;
    }
    await asked('refresh', about, 2);
    assert.deepEqual([events.count('connecting'), events.count('disconnected')], [1, 0]);
  });

  for (const [what, answer, event, code] of [
    ['that it has expired: 3005, and the client comes back', { result: { expired: true } }, 'connecting', 3005],
    ['nothing, as if it had expired', {}, 'connecting', 3005],
    ['a disconnect: the end', { disconnect: { code: 4502, reason: 'go' } }, 'disconnected', 4502],
  ]) {
    scenario(`answers ${what}`, async (bench) => {
      const user = newUser();
      await answers('refresh', user, answer);
      const { client, events } = await visitor(bench, user, [{ result: { user, expire_at: inSeconds(2) } }, { result: { user } }]);
      client.connect();
      await events.next('connected');
      await events.next('connecting');
      assert.equal((await events.next(event)).code, code);
      if (event === 'connecting') await events.next('connected');
    });
  }
});

inBothEncodings('the subscribe hook', (scenario) => {
  scenario('is asked, and says what comes with the subscription', async (bench) => {
    const channel = channelIn('asked');
    await answers('subscribe', channel, { result: { info: { role: 'admin' }, data: { welcome: 2 } } });
    const { client, user, context: { client: id } } = await entered(bench, { meta: { plan: 'pro' } });
    const { context } = await bench.subscribed(client, channel, { data: bench.encode({ code: 1234 }) });
    assert.deepEqual(bench.decode(context.data), { welcome: 2 });
    assert.equal(context.recoverable, true);
    const { presence } = await hooksApi('presence', { channel });
    assert.deepEqual(presence[id].chan_info, { role: 'admin' });
    const [{ question }] = await asked('subscribe', channel);
    const { user: told, data, meta } = question;
    assert.deepEqual([question.channel, told, data, meta], [channel, user, { code: 1234 }, { plan: 'pro' }]);
  });

  scenario('takes away what the namespace gives', async (bench) => {
    const channel = channelIn('asked');
    const override = { force_recovery: { value: false }, presence: { value: false } };
    await answers('subscribe', channel, { result: { override } });
    const { client } = await entered(bench);
    const { context } = await bench.subscribed(client, channel);
    assert.equal(context.recoverable, false);
    assert.deepEqual((await hooksApi('presence', { channel })).presence, {});
  });

  scenario('refuses: the end of the subscription alone', async (bench) => {
    const channel = channelIn('asked');
    await answers('subscribe', channel, { error: { code: 1001, message: 'no' } });
    const { client } = await entered(bench);
    const { events } = bench.subscription(client, channel);
    assert.deepEqual((({ code, reason }) => [code, reason])(await events.next('unsubscribed')), [1001, 'no']);
    assert.equal(client.state, 'connected');
  });

  scenario('refuses for now: the client tries again', async (bench) => {
    const channel = channelIn('asked');
    await answers('subscribe', channel, { error: { code: 1001, message: 'not yet', temporary: true } }, { status: 503 }, { result: {} });
    const { client } = await entered(bench);
    await bench.subscribed(client, channel);
    assert.equal((await asked('subscribe', channel)).length, 3);
  });

  scenario('disconnects', async (bench) => {
    const channel = channelIn('asked');
    await answers('subscribe', channel, { disconnect: { code: 4503, reason: 'go' } });
    const { client, events } = await entered(bench);
    bench.subscription(client, channel);
    assert.equal((await events.next('disconnected')).code, 4503);
  });
});

inBothEncodings('the sub_refresh hook', (scenario) => {
  scenario('keeps a subscription until it says that it has expired: 2501, and the client subscribes again', async (bench) => {
    const channel = channelIn('asked');
    await answers('subscribe', channel, { result: { expire_at: inSeconds(2) } }, { result: {} });
    await answers('sub_refresh', channel, { result: { expire_at: inSeconds(4) } }, { result: { expired: true } });
    const { client, user } = await entered(bench);
    const { events } = await bench.subscribed(client, channel);
    const [{ question }] = await asked('sub_refresh', channel);
    assert.deepEqual([question.channel, question.user], [channel, user]);
    await events.next('subscribing');
    assert.equal((await events.next('subscribing')).code, 2501);
    assert.equal((await asked('sub_refresh', channel)).length, 2);
    await events.next('subscribed');
    assert.equal(client.state, 'connected');
  });
});

inBothEncodings('the publish hook', (scenario) => {
  const inside = async (bench, ...all) => {
    const channel = channelIn('asked');
    await answers('subscribe', channel, { result: {} });
    await answers('publish', channel, ...all);
    const made = await entered(bench);
    return { channel, ...made, connection: made.events, ...(await bench.subscribed(made.client, channel)) };
  };

  scenario('is asked, and says what is published, with tags', async (bench) => {
    const { channel, user, sub, events } = await inside(bench, { result: { data: { text: 'b***' }, tags: { judged: 'yes' } } }, { result: {} });
    await sub.publish(bench.encode({ text: 'blah' }));
    const publication = await events.next('publication');
    assert.deepEqual([bench.decode(publication.data), { ...publication.tags }], [{ text: 'b***' }, { judged: 'yes' }]);
    assert.equal(publication.info.user, user);
    await sub.publish(bench.encode({ text: 'as it is' }));
    assert.deepEqual(bench.decode((await events.next('publication')).data), { text: 'as it is' });
    const [{ question }] = await asked('publish', channel);
    assert.deepEqual([question.channel, question.user, question.data], [channel, user, { text: 'blah' }]);
  });

  scenario('leaves the history out, and publishes once for one idempotency key', async (bench) => {
    const { sub, events } = await inside(bench,
      { result: { skip_history: true } }, { result: { idempotency_key: 'same' } }, { result: { idempotency_key: 'same' } }, { result: {} });
    for (let n = 1; n <= 4; n += 1) await sub.publish(bench.encode({ n }));
    const received = await events.take('publication', 3);
    assert.deepEqual(received.map(({ data }) => bench.decode(data).n), [1, 2, 4]);
    const { publications } = await sub.history({ limit: -1 });
    assert.deepEqual(publications.map(({ data }) => bench.decode(data).n), [2, 4]);
  });

  scenario('refuses', async (bench) => {
    const { sub, events, connection } = await inside(bench,
      { error: { code: 1002, message: 'too loud' } }, { status: 500 }, { disconnect: { code: 4504, reason: 'go' } });
    await assert.rejects(sub.publish(bench.encode({})), { code: 1002, message: 'too loud' });
    await assert.rejects(sub.publish(bench.encode({})), { code: 100 });
    await assert.rejects(sub.publish(bench.encode({})));
    assert.equal((await connection.next('disconnected')).code, 4504);
    assert.equal(events.count('publication'), 0);
  });
});

inBothEncodings('the rpc hook', (scenario) => {
  scenario('answers, refuses and disconnects', async (bench) => {
    const method = newUser();
    await answers('rpc', method,
      { result: { data: { pong: [1, 2] } } }, { error: { code: 1003, message: 'no' } }, { status: 500 }, { disconnect: { code: 4505, reason: 'go' } });
    const { client, user, events } = await entered(bench);
    assert.deepEqual(bench.decode((await client.rpc(method, bench.encode({ ping: 1 }))).data), { pong: [1, 2] });
    await assert.rejects(client.rpc(method, bench.encode({})), { code: 1003, message: 'no' });
    await assert.rejects(client.rpc(method, bench.encode({})), { code: 100 });
    await assert.rejects(client.rpc(method, bench.encode({})));
    assert.equal((await events.next('disconnected')).code, 4505);
    const [{ question }] = await asked('rpc', method);
    assert.deepEqual([question.method, question.user, question.data], [method, user, { ping: 1 }]);
  });

  scenario('keeps waiting those alone who wait for it', async (bench) => {
    const [slow, quick] = [newUser(), newUser()];
    await answers('rpc', slow, { after_s: 2, result: { data: 'late' } });
    await answers('rpc', quick, { result: { data: 'at once' } });
    const { client: one } = await entered(bench);
    const { client: other } = await entered(bench);
    let answered = false;
    const late = one.rpc(slow, bench.encode({})).then((reply) => {
      answered = true;
      return reply;
    });
    await asked('rpc', slow);
    for (let n = 0; n < 20; n += 1) assert.equal(bench.decode((await other.rpc(quick, bench.encode({}))).data), 'at once');
    assert.equal(answered, false);
    assert.equal(bench.decode((await late).data), 'late');
  });
});
