// The SDK over HTTP streams and server-sent events, with commands in separate requests.
import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import { Events } from './support/events.mjs';
import { EventSource } from './support/event_source.mjs';
import { HOOKS_WS_URL, WS_URL, answers, api, asked, channelIn, newUser, token } from './support/server.mjs';

const baseOf = (url) => new URL('/', url.replace(/^ws/, 'http')).href;
const BASE = baseOf(WS_URL);

const TRANSPORTS = ['http_stream', 'sse'];

async function connected(transport, user, { url = WS_URL, ...options } = {}) {
  const base = baseOf(url);
  const client = new Centrifuge([{ transport, endpoint: `${base}connection/${transport}` }], {
    fetch,
    readableStream: ReadableStream,
    eventsource: EventSource,
    emulationEndpoint: `${base}emulation`,
    token: token({ sub: user }),
    minReconnectDelay: 20,
    maxReconnectDelay: 200,
    ...options,
  });
  const events = new Events(client, ['connected', 'disconnected', 'error']);
  client.connect();
  const context = await events.next('connected');
  return { client, context, events };
}

describe('every transport', { concurrency: TRANSPORTS.length }, () => {
  for (const transport of TRANSPORTS) describe(transport, { concurrency: 4 }, () => {
    test('commands are answered and publications come, in order', async () => {
      const { client, context } = await connected(transport, newUser());
      try {
        assert.equal(context.transport, transport);
        const channel = channelIn('open');
        const subscription = client.newSubscription(channel);
        const events = new Events(subscription, ['subscribed', 'publication']);
        subscription.subscribe();
        await events.next('subscribed');
        const count = 50;
        for (let n = 0; n < count; n += 1) await client.publish(channel, { n });
        await api('publish', { channel, data: { n: count } });
        const received = await events.take('publication', count + 1);
        assert.deepEqual(received.map(({ data }) => data.n), Array.from({ length: count + 1 }, (_, n) => n));
      } finally {
        client.disconnect();
      }
    });

    test('pongs keep the session: it outlives two pings', async () => {
      const emitter = new EventEmitter();
      const pongs = new Events(emitter, ['pong']);
      const fetchAndTell = (url, options) => {
        if (String(url).endsWith('/emulation') && JSON.parse(options.body).data === '{}') emitter.emit('pong');
        return fetch(url, options);
      };
      const { client, events } = await connected(transport, newUser(), { fetch: fetchAndTell });
      try {
        // An unanswered ping ends the session before the next one. So when a third ping is due, two pongs have arrived.
        await pongs.take('pong', 3);
        await client.publish(channelIn('open'), { still: 'there' });
        assert.equal(events.count('disconnected'), 0);
        assert.equal(events.count('connected'), 1);
      } finally {
        client.disconnect();
      }
    });

    test('one session out of several is picked by its secret id', async () => {
      const [user, channel] = [newUser(), channelIn('open')];
      const made = [];
      for (let n = 0; n < 2; n += 1) {
        const { client, events } = await connected(transport, user);
        const subscription = client.newSubscription(channel);
        const own = new Events(subscription, ['subscribed', 'unsubscribed', 'publication']);
        subscription.subscribe();
        await own.next('subscribed');
        // The SDK does not expose this id, which it sends with its further commands.
        made.push({ client, events, own, session: client._session });
      }
      const [one, other] = made;
      try {
        assert.notEqual(one.session, other.session);
        await api('unsubscribe', { user, channel, session: 'nobody' });
        await api('disconnect', { user, session: 'nobody' });
        await api('unsubscribe', { user, channel, session: one.session });
        assert.equal((await one.own.next('unsubscribed')).code, 2000);
        await api('publish', { channel, data: { n: 1 } });
        await other.own.next('publication');
        await api('disconnect', { user, session: other.session });
        assert.equal((await other.events.next('disconnected')).code, 3503);
        await one.client.publish(channel, { still: 'there' });
        assert.equal(other.own.count('unsubscribed'), 0);
        // The session of another user stays connected.
        await api('disconnect', { user: newUser(), session: one.session });
        await one.client.publish(channel, { still: 'there' });
      } finally {
        for (const { client } of made) client.disconnect();
      }
    });

    test('a backend is asked who comes, and told by which way', async () => {
      const user = newUser();
      await answers('connect', user, { result: { user, data: { welcome: 1 } } });
      const { client, context } = await connected(transport, user, { url: HOOKS_WS_URL, token: '', data: { about: user } });
      try {
        assert.deepEqual(context.data, { welcome: 1 });
        const [{ question }] = await asked('connect', user);
        assert.deepEqual([question.transport, question.protocol], [transport, 'json']);
        const method = newUser();
        await answers('rpc', method, { result: { data: 'pong' } });
        assert.equal((await client.rpc(method, {})).data, 'pong');
      } finally {
        client.disconnect();
      }
    });

    test('the server can end it', async () => {
      const user = newUser();
      const { client, events } = await connected(transport, user);
      await api('disconnect', { user });
      const { code } = await events.next('disconnected');
      assert.equal(code, 3503);
      client.disconnect();
    });
  });
});

test('a command for an ended session is answered with 204, one for an unknown node with 404', async () => {
  const statusFor = async (node) => {
    const body = JSON.stringify({ session: '0-0-0-00000000000000000000000000000000', node, data: '{}' });
    return (await fetch(`${BASE}emulation`, { method: 'POST', body })).status;
  };
  assert.equal(await statusFor(''), 204);
  assert.equal(await statusFor('another'), 404);
});

for (const [transport, open] of [
  ['uni_sse', (request) => fetch(`${BASE}connection/uni_sse?cf_connect=${encodeURIComponent(request)}`)],
  ['uni_http_stream', (request) => fetch(`${BASE}connection/uni_http_stream`, { method: 'POST', body: request })],
]) {
  test(`${transport}: a connect push comes first, a disconnect push last`, async () => {
    const user = newUser();
    const answer = await open(JSON.stringify({ token: token({ sub: user }) }));
    assert.equal(answer.status, 200);
    let text = '';
    let told = false;
    for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
      text += piece;
      if (!told && text.includes('"connect":')) {
        told = true;
        // Only for this session of the user, selected by the secret id that the server has just sent to it.
        const { session } = JSON.parse(text.match(/\{.*\}/)[0]).connect;
        await api('disconnect', { user, session: 'nobody' });
        await api('disconnect', { user, session });
      }
    }
    const pushes = text.split('\n').filter((line) => line.includes('{')).map((line) => JSON.parse(line.replace(/^data: /, '')));
    assert.ok(pushes[0].connect.client, text);
    assert.equal(pushes.at(-1).disconnect.code, 3503, text);
  });
}
