import assert from 'node:assert/strict';
import { inBothEncodings } from './support/client.mjs';
import { numberOf, offsetOf } from './support/offsets.mjs';
import { api, channelIn } from './support/server.mjs';

inBothEncodings('history', (scenario) => {
  const filled = async (bench, count) => {
    const channel = channelIn('history');
    for (let n = 1; n <= count; n += 1) await api('publish', { channel, data: { n }, tags: { n: `${n}` } });
    return { channel, ...(await bench.connected()) };
  };
  const numbers = (channel, { publications }) => publications.map(({ offset }) => numberOf(channel, offset));

  scenario('limit 0 is the top position only', async (bench) => {
    const { client, channel } = await filled(bench, 3);
    const result = await client.history(channel, { limit: 0 });
    assert.deepEqual(numbers(channel, result), []);
    assert.equal(numberOf(channel, result.offset), 3);
    assert.notEqual(result.epoch, '');
  });

  scenario('limit -1 is everything', async (bench) => {
    const { client, channel } = await filled(bench, 5);
    const result = await client.history(channel, { limit: -1 });
    assert.deepEqual(numbers(channel, result), [1, 2, 3, 4, 5]);
    assert.deepEqual(result.publications.map(({ data }) => bench.decode(data).n), [1, 2, 3, 4, 5]);
    assert.equal(result.publications[2].tags.n, '3');
    assert.equal(numberOf(channel, result.offset), 5);
  });

  scenario('a limit, from the start and from the end', async (bench) => {
    const { client, channel } = await filled(bench, 5);
    assert.deepEqual(numbers(channel, await client.history(channel, { limit: 2 })), [1, 2]);
    assert.deepEqual(numbers(channel, await client.history(channel, { limit: 2, reverse: true })), [5, 4]);
    assert.deepEqual(numbers(channel, await client.history(channel, { limit: -1, reverse: true })), [5, 4, 3, 2, 1]);
    assert.deepEqual(numbers(channel, await client.history(channel, { limit: 50 })), [1, 2, 3, 4, 5]);
  });

  scenario('since a position, forwards and backwards', async (bench) => {
    const { client, channel } = await filled(bench, 5);
    const { epoch } = await client.history(channel, { limit: 0 });
    const since = (number) => ({ since: { offset: offsetOf(channel, number), epoch } });
    assert.deepEqual(numbers(channel, await client.history(channel, { limit: -1, ...since(2) })), [3, 4, 5]);
    assert.deepEqual(numbers(channel, await client.history(channel, { limit: 2, ...since(2) })), [3, 4]);
    assert.deepEqual(numbers(channel, await client.history(channel, { limit: -1, ...since(5) })), []);
    assert.deepEqual(numbers(channel, await client.history(channel, { limit: -1, ...since(4), reverse: true })), [3, 2, 1]);
  });

  scenario('since a position of another epoch: error 112', async (bench) => {
    const { client, channel } = await filled(bench, 2);
    const asked = client.history(channel, { limit: -1, since: { offset: 1, epoch: 'another' } });
    await assert.rejects(asked, { code: 112, message: 'unrecoverable position' });
  });

  scenario('of a subscription, paged to the end', async (bench) => {
    const { client, channel } = await filled(bench, 7);
    const { sub } = await bench.subscribed(client, channel);
    const seen = [];
    let since = { offset: 0, epoch: (await sub.history({ limit: 0 })).epoch };
    for (;;) {
      const page = await sub.history({ limit: 3, since });
      if (page.publications.length === 0) break;
      seen.push(...numbers(channel, page));
      since = { offset: page.publications.at(-1).offset, epoch: page.epoch };
    }
    assert.deepEqual(seen, [1, 2, 3, 4, 5, 6, 7]);
  });

  scenario('keeps no more than its size, and its top', async (bench) => {
    const channel = channelIn('small');
    for (let n = 1; n <= 5; n += 1) await api('publish', { channel, data: n });
    const { client } = await bench.connected();
    const result = await client.history(channel, { limit: -1 });
    assert.deepEqual(numbers(channel, result), [4, 5]);
    assert.equal(numberOf(channel, result.offset), 5);
  });

  scenario('keeps the publisher\'s info', async (bench) => {
    const channel = channelIn('history');
    const { client, context } = await bench.connected();
    await client.publish(channel, bench.encode({ n: 1 }));
    const { publications } = await client.history(channel, { limit: -1 });
    assert.equal(publications[0].info.client, context.client);
  });

  scenario('does not keep what was published with skip_history', async (bench) => {
    const { client, channel } = await filled(bench, 1);
    const { events } = await bench.subscribed(client, channel);
    await api('publish', { channel, data: { n: 2 }, skip_history: true });
    assert.ok(!(await events.next('publication')).offset);
    assert.deepEqual(numbers(channel, await client.history(channel, { limit: -1 })), [1]);
  });

  scenario('is empty after history_remove', async (bench) => {
    const { client, channel } = await filled(bench, 3);
    await api('history_remove', { channel });
    assert.deepEqual(numbers(channel, await client.history(channel, { limit: -1 })), []);
  });

  for (const [what, channel, code] of [
    ['an unknown namespace', () => channelIn('nowhere'), 102],
    ['a namespace that allows nothing', () => channelIn('closed'), 103],
    ['a subscribers-only namespace from outside', () => channelIn('members'), 103],
    ['a namespace without history', () => channelIn('open'), 108],
  ]) {
    scenario(`of ${what}: error ${code}`, async (bench) => {
      const { client } = await bench.connected();
      await assert.rejects(client.history(channel(), { limit: 1 }), { code });
    });
  }

  scenario('of a subscribers-only namespace from inside', async (bench) => {
    const { client } = await bench.connected();
    const channel = channelIn('members');
    const { sub } = await bench.subscribed(client, channel);
    assert.equal(numberOf(channel, (await sub.history({ limit: 0 })).offset), 0);
  });
});
