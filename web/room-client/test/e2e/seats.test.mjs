// Seats against the real server: after 1,008 lost connections, each client still has its own player.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, test } from 'node:test';
import { Proxy } from '../../../../tests/sdk/js/support/proxy.mjs';
import { Player } from './player.mjs';

const PLAYERS = 12;
const CUTS = 28;
const PLAYER = 1;

describe('seats', { concurrency: 1 }, () => {
  for (const encoding of ['json', 'protobuf', 'bundle']) {
    test(`${PLAYERS * CUTS} cuts leave each client with its own player, ${encoding}`, async () => {
      const channel = `arena:${randomUUID()}`;
      const watcher = new Player(encoding, channel);
      const others = [];
      try {
        await watcher.join();
        for (let index = 0; index < PLAYERS; index += 1) {
          const proxy = await Proxy.start();
          const player = new Player(encoding, channel, {}, proxy.url);
          others.push({ player, proxy });
          await player.join();
        }
        await Promise.all(others.map(({ player, proxy }, index) => wander(player, proxy, index)));
        const avatars = new Set(others.map(({ player }) => player.room.replica.avatar));
        assert.equal(avatars.size, PLAYERS);
        const seen = () => [...watcher.room.replica.objects()].filter(({ kind }) => kind === PLAYER).length;
        assert.equal(seen(), PLAYERS + 1, 'no player exists twice');
      } finally {
        watcher.stop();
        for (const { player, proxy } of others) {
          player.stop();
          await proxy.stop();
        }
      }
    });
  }
});

/** Loses the connection repeatedly: alternately for both sides, and for the client only. */
async function wander(player, proxy, index) {
  const self = player.room.replica.avatar;
  for (let cut = 0; cut < CUTS; cut += 1) {
    const losses = player.left.length;
    if ((cut + index) % 2 === 0) {
      proxy.cut();
      proxy.restore();
    } else {
      proxy.abandon();
    }
    await player.until('the loss is noticed', () => player.left.length > losses);
    await player.until('the own object is seen again', () => player.avatar !== undefined);
    assert.equal(player.room.replica.avatar, self, `player ${index} after cut ${cut}`);
  }
  assert.ok(player.left.every(({ rejoins }) => rejoins), JSON.stringify(player.left));
}
