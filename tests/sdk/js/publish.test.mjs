import assert from 'node:assert/strict';
import { inBothEncodings } from './support/client.mjs';
import { numberOf } from './support/offsets.mjs';
import { api, channelIn, newUser, token } from './support/server.mjs';

// The message limit is 65,536 bytes; the command around the data is under 500.
const LARGE_BYTES = 65_000;

inBothEncodings('publish', (scenario, encoding) => {
  scenario('by a subscriber: it gets its own publication, with its info', async (bench) => {
    const user = newUser();
    const { client, context } = await bench.connected({ token: token({ sub: user, info: { name: 'Ann' } }) });
    const channel = channelIn('open');
    const { sub, events } = await bench.subscribed(client, channel);
    await sub.publish(bench.encode({ text: 'hello ✓' }));
    const publication = await events.next('publication');
    assert.equal(publication.channel, channel);
    assert.deepEqual(bench.decode(publication.data), { text: 'hello ✓' });
    assert.equal(publication.info.user, user);
    assert.equal(publication.info.client, context.client);
    assert.deepEqual(bench.decode(publication.info.connInfo), { name: 'Ann' });
    assert.ok(!publication.offset, 'no offset where there is no history');
  });

  scenario('by one client reaches another, in order', async (bench) => {
    const channel = channelIn('open');
    const { client: publisher } = await bench.connected();
    const { client: reader } = await bench.connected();
    const { events } = await bench.subscribed(reader, channel);
    const count = 200;
    await Promise.all(Array.from({ length: count }, (_, n) => publisher.publish(channel, bench.encode({ n }))));
    const received = await events.take('publication', count);
    assert.deepEqual(received.map(({ data }) => bench.decode(data).n), Array.from({ length: count }, (_, n) => n));
  });

  scenario('by the HTTP API: data, tags, offsets, no info', async (bench) => {
    const channel = channelIn('history');
    const { client } = await bench.connected();
    const { events } = await bench.subscribed(client, channel);
    const data = { nested: { list: [1, 2.5, 'three', null, true] }, text: '"quoted" \n ✓' };
    const first = await api('publish', { channel, data, tags: { kind: 'test', more: '✓' } });
    const second = await api('publish', { channel, data: { n: 2 } });
    const [one, two] = await events.take('publication', 2);
    assert.deepEqual(bench.decode(one.data), data);
    assert.deepEqual({ ...one.tags }, { kind: 'test', more: '✓' });
    assert.equal(one.info, undefined);
    assert.deepEqual([first, second].map(({ offset }) => numberOf(channel, offset)), [1, 2]);
    assert.deepEqual([one, two].map(({ offset }) => numberOf(channel, offset)), [1, 2]);
    assert.equal(first.epoch, second.epoch);
  });

  for (const [what, value] of [['a string', 'text'], ['a number', -1.5], ['null', null], ['a list', [1, [2]]], ['false', false]]) {
    scenario(`${what} as data`, async (bench) => {
      const channel = channelIn('open');
      const { client } = await bench.connected();
      const { events } = await bench.subscribed(client, channel);
      await api('publish', { channel, data: value });
      assert.deepEqual(bench.decode((await events.next('publication')).data), value);
    });
  }

  scenario('once only for one idempotency key', async (bench) => {
    const channel = channelIn('history');
    const { client } = await bench.connected();
    const { events } = await bench.subscribed(client, channel);
    const first = await api('publish', { channel, data: 1, idempotency_key: 'same' });
    assert.deepEqual(await api('publish', { channel, data: 2, idempotency_key: 'same' }), first);
    await api('publish', { channel, data: 3 });
    const received = await events.take('publication', 2);
    assert.deepEqual(received.map(({ data }) => bench.decode(data)), [1, 3]);
  });

  scenario('a broadcast reaches every channel named', async (bench) => {
    const channels = [channelIn('open'), channelIn('history'), channelIn('open')];
    const { client } = await bench.connected();
    const subscriptions = [];
    for (const channel of channels) subscriptions.push(await bench.subscribed(client, channel));
    const { responses } = await api('broadcast', { channels: [...channels, channelIn('nowhere')], data: { all: 1 } });
    assert.equal(responses.length, 4);
    assert.equal(numberOf(channels[1], responses[1].result.offset), 1);
    assert.equal(responses[3].error.code, 102);
    for (const { events } of subscriptions) {
      assert.deepEqual(bench.decode((await events.next('publication')).data), { all: 1 });
    }
  });

  scenario('of almost 64 KiB by a client', async (bench) => {
    const channel = channelIn('open');
    const { client } = await bench.connected();
    const { sub, events } = await bench.subscribed(client, channel);
    const text = 'x'.repeat(LARGE_BYTES);
    await sub.publish(bench.encode({ text }));
    assert.equal(bench.decode((await events.next('publication')).data).text, text);
  });

  scenario('of 200 KB by the HTTP API', async (bench) => {
    const channel = channelIn('open');
    const { client } = await bench.connected();
    const { events } = await bench.subscribed(client, channel);
    const text = 'é'.repeat(100_000);
    await api('publish', { channel, data: { text } });
    assert.equal(bench.decode((await events.next('publication')).data).text, text);
  });

  scenario('over the message limit: the connection ends, terminally', async (bench) => {
    const { client, events } = await bench.connected();
    const sent = client.publish(channelIn('open'), bench.encode({ text: 'x'.repeat(66_000) }));
    await assert.rejects(sent);
    assert.equal((await events.next('disconnected')).code, 3); // the SDK's "message size limit" (close code 1009)
  });

  for (const [what, channel, code] of [
    ['an unknown namespace', () => channelIn('nowhere'), 102],
    ['a namespace that allows nothing', () => channelIn('closed'), 103],
    ['a subscribers-only namespace from outside', () => channelIn('members'), 103],
    ['a name that is not ASCII', () => `${channelIn('open')}-é`, 107],
  ]) {
    scenario(`to ${what}: error ${code}`, async (bench) => {
      const { client } = await bench.connected();
      await assert.rejects(client.publish(channel(), bench.encode({})), { code });
      assert.equal(client.state, 'connected');
    });
  }

  scenario('to a subscribers-only namespace from inside', async (bench) => {
    const { client } = await bench.connected();
    const { sub, events } = await bench.subscribed(client, channelIn('members'));
    await sub.publish(bench.encode({ n: 1 }));
    await events.next('publication');
  });

  if (encoding.name === 'protobuf') {
    const everyByte = Uint8Array.from({ length: 1024 }, (_, i) => i % 256);

    scenario('every byte by a client', async (bench) => {
      const { client } = await bench.connected();
      const { sub, events } = await bench.subscribed(client, channelIn('open'));
      await sub.publish(everyByte);
      assert.deepEqual(new Uint8Array((await events.next('publication')).data), everyByte);
    });

    scenario('every byte by the HTTP API, live and in history', async (bench) => {
      const channel = channelIn('history');
      const { client } = await bench.connected();
      const { sub, events } = await bench.subscribed(client, channel);
      await api('publish', { channel, b64data: Buffer.from(everyByte).toString('base64') });
      assert.deepEqual(new Uint8Array((await events.next('publication')).data), everyByte);
      const { publications } = await sub.history({ limit: 1 });
      assert.deepEqual(new Uint8Array(publications[0].data), everyByte);
    });
  }
});
