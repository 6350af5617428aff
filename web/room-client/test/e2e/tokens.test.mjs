// Tokens against the real server: each is replaced when it expires, and the player stays in its room.
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { describe, test } from 'node:test';
import { Player } from './player.mjs';

/** Lifetime in seconds. Without a new token, the server ends the connection or subscription one second later (server.json). */
const TTL = 3;
/** Two of the tokens have replaced another one. */
const TOKENS = 3;

function token(user, claims = {}) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({ sub: user, exp: Date.now() / 1000 + TTL, ...claims })}`;
  return `${signed}.${createHmac('sha256', process.env.DUNLIN_HMAC_SECRET).update(signed).digest('base64url')}`;
}

describe('tokens', { concurrency: 3 }, () => {
  for (const build of ['json', 'protobuf', 'bundle']) {
    test(`a player stays while tokens of the connection and of the room expire, ${build}`, async () => {
      const user = randomUUID();
      const asked = { connection: 0, room: 0 };
      const channel = `guarded:${user}`;
      const getToken = async () => {
        asked.connection += 1;
        return token(user);
      };
      const getRoomToken = async (room) => {
        asked.room += 1;
        return token(user, { channel: room });
      };
      const player = new Player(build, channel, { getToken: getRoomToken }, undefined, { getToken });
      try {
        await player.join();
        const { avatar } = player.room.replica;
        await player.until('tokens are replaced', () => asked.connection >= TOKENS && asked.room >= TOKENS);
        const { tick } = player.room.replica;
        await player.until('the room continues', () => player.room.replica.tick > tick + 90);
        assert.deepEqual([player.left, player.errors, player.room.replica.avatar], [[], [], avatar]);
      } finally {
        player.stop();
      }
    });

    test(`without tokens, there is no way into the room, ${build}`, async () => {
      const player = new Player(build, `guarded:${randomUUID()}`);
      try {
        player.room.join();
        const { code, rejoins } = await player.until('the refusal', () => player.left.at(-1));
        assert.deepEqual([code, rejoins], [103, false]);
      } finally {
        player.stop();
      }
    });
  }
});
