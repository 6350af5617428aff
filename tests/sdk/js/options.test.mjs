// Options that a subscription negotiates with the server: deltas, tags filters, channel compaction.
import assert from 'node:assert/strict';
import { inBothEncodings } from './support/client.mjs';
import { IS_CLUSTER } from './support/offsets.mjs';
import { api, channelIn } from './support/server.mjs';

/** A document that changes only slightly from one publication to the next. */
const documentAt = (n) => ({ n, text: 'the same in every publication, and long enough to be worth leaving out. '.repeat(8) });

inBothEncodings('options of a subscription', (scenario, encoding) => {
  scenario('delta: every publication arrives whole, live and recovered', async (bench) => {
    const channel = channelIn('delta');
    const proxy = await bench.proxy();
    const { client } = await bench.connected({}, proxy.url);
    const { events } = await bench.subscribed(client, channel, { delta: 'fossil' });
    for (let n = 1; n <= 5; n++) await api('publish', { channel, data: documentAt(n), delta: true });
    const live = await events.take('publication', 5);
    assert.deepEqual(live.map(({ data }) => bench.decode(data)), [1, 2, 3, 4, 5].map(documentAt));
    proxy.cut();
    await events.next('subscribing');
    for (let n = 6; n <= 8; n++) await api('publish', { channel, data: documentAt(n), delta: true });
    proxy.restore();
    const recovered = await events.take('publication', 3);
    assert.deepEqual(recovered.map(({ data }) => bench.decode(data)), [6, 7, 8].map(documentAt));
    await api('publish', { channel, data: documentAt(9), delta: true });
    assert.deepEqual(bench.decode((await events.next('publication')).data), documentAt(9));
  });

  scenario('delta: one subscriber with it and one without get the same', async (bench) => {
    const channel = channelIn('delta');
    const { client: one } = await bench.connected();
    const { client: other } = await bench.connected();
    const { events: differences } = await bench.subscribed(one, channel, { delta: 'fossil' });
    const { events: whole } = await bench.subscribed(other, channel);
    for (let n = 1; n <= 3; n++) await api('publish', { channel, data: documentAt(n), delta: n > 1 });
    for (const events of [differences, whole]) {
      const received = await events.take('publication', 3);
      assert.deepEqual(received.map(({ data }) => bench.decode(data)), [1, 2, 3].map(documentAt));
    }
  });

  scenario('the newest of each key: complete with the answer, then live, and complete again after a reconnect', async (bench) => {
    const channel = channelIn('prices');
    const quote = (symbol, price) => api('publish', { channel, data: { symbol, price }, tags: { symbol } });
    /** The next `count` publications as the page would show them. */
    const page = async (events, count) => {
      const quotes = (await events.take('publication', count)).map(({ data }) => bench.decode(data));
      return Object.fromEntries(quotes.map(({ symbol, price }) => [symbol, price]));
    };
    for (const [symbol, price] of [['A', 1], ['B', 2], ['A', 3], ['C', 4], ['A', 5]]) await quote(symbol, price);
    const proxy = await bench.proxy();
    const { client } = await bench.connected({}, proxy.url);
    const { events } = await bench.subscribed(client, channel);
    assert.deepEqual(await page(events, 3), { A: 5, B: 2, C: 4 });
    await quote('B', 6);
    assert.deepEqual(await page(events, 1), { B: 6 });
    proxy.cut();
    await events.next('subscribing');
    await quote('C', 7);
    await quote('D', 8);
    proxy.restore();
    assert.deepEqual(await page(events, 4), { A: 5, B: 6, C: 7, D: 8 });
    await quote('A', 9);
    assert.deepEqual(await page(events, 1), { A: 9 });
  }, { skip: IS_CLUSTER && 'a node keeps the keys of the publications that it has received' });

  scenario('a tags filter: what fits arrives, and only that', async (bench) => {
    const channel = channelIn('tagged');
    const { client } = await bench.connected();
    const tagsFilter = { op: 'and', nodes: [{ key: 'ticker', cmp: 'in', vals: ['AAA', 'BBB'] }, { key: 'price', cmp: 'gt', val: '100' }] };
    const { events } = await bench.subscribed(client, channel, { tagsFilter });
    for (const [n, ticker, price] of [[1, 'AAA', '99'], [2, 'AAA', '101'], [3, 'CCC', '200'], [4, 'BBB', '100.5']]) {
      await api('publish', { channel, data: n, tags: { ticker, price } });
    }
    await api('publish', { channel, data: 5 });
    await api('publish', { channel, data: 6, tags: { ticker: 'BBB', price: '1000' } });
    const received = await events.take('publication', 3);
    assert.deepEqual(received.map(({ data }) => bench.decode(data)), [2, 4, 6]);
  });

  scenario('a tags filter where none is allowed: 107', async (bench) => {
    const { client } = await bench.connected();
    const { events } = bench.subscription(client, channelIn('open'), { tagsFilter: { key: 'a', cmp: 'ex' } });
    assert.equal((await events.next('unsubscribed')).code, 107);
  });

  // In Node, long.js represents these numbers as objects. This SDK compares them by identity and finds no channel.
  if (encoding.name !== 'json') return;
  scenario('numbers for names: several channels, each with its own publications, joins and end', async (bench) => {
    const channels = Array.from({ length: 5 }, () => channelIn('compact'));
    const { client } = await bench.connected();
    const all = [];
    for (const channel of channels) all.push(await bench.subscribed(client, channel));
    for (const channel of channels) await api('publish', { channel, data: { channel } });
    for (const [index, { events }] of all.entries()) {
      const publication = await events.next('publication');
      assert.equal(publication.channel, channels[index]);
      assert.deepEqual(bench.decode(publication.data), { channel: channels[index] });
    }
    all[0].sub.unsubscribe();
    await all[0].events.next('unsubscribed');
    const again = await bench.subscribed((await bench.connected()).client, channels[0]);
    await api('publish', { channel: channels[0], data: { again: true } });
    assert.deepEqual(bench.decode((await again.events.next('publication')).data), { again: true });
  });
});
