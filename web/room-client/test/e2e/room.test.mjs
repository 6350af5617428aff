// The room client against the real server: a treasure hunt with two players.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, test } from 'node:test';
import { Proxy } from '../../../../tests/sdk/js/support/proxy.mjs';
import { Player, walk } from './player.mjs';

const [PLAYER, TAG, PURSE] = [1, 2, 7];

for (const [encoding, typed] of [['json', false], ['json', true], ['protobuf', false], ['protobuf', true], ['bundle', true]]) {
  const kind = [encoding, typed];
  describe(`rooms, ${encoding}${typed ? ', with fields' : ''}`, { concurrency: 4 }, () => {
    test('a player joins, and sees itself and the world', () =>
      play(kind, async ({ player }) => {
        const ada = await player({ data: { name: 'Ada', colour: 3 } });
        const { replica } = ada.room;
        assert.equal(ada.avatar.kind, PLAYER);
        assert.equal(ada.avatar.state[0], 3);
        assert.deepEqual({ ...replica.grid.shape }, {
          columns: 8, rows: 8, cellUnits: 512, nearCells: 5, farCells: 2, farIntervalTicks: 6, ticksPerSecond: 60,
        });
        assert.equal(replica.view, Math.floor(ada.avatar.y / 512) * 8 + Math.floor(ada.avatar.x / 512));
        const tag = [...replica.objects()].find(({ kind, state }) => kind === TAG && Buffer.from(state.subarray(8)).equals(Buffer.from('Ada')));
        assert.equal(new DataView(tag.state.buffer).getUint32(0, true), replica.avatar);
        const purse = [...replica.objects()].find(({ kind }) => kind === PURSE);
        assert.equal(purse.cell, null, 'the purse is sent to its player alone');
        const { event } = await ada.until('a welcome', () => ada.events.find(({ event }) => event.welcome));
        assert.deepEqual({ player: event.welcome.player, name: event.welcome.name }, { player: replica.avatar, name: 'Ada' });
        // The bytes of a segment with several snapshots are counted once, so the first snapshots after the join may
        // have none.
        const figures = await ada.until('snapshots with their bytes, each on the one before', () => {
          const figures = ada.room.figures();
          return figures.snapshotsPerSecond > 10 && figures.bytesPerSecond > 0 && figures;
        });
        assert.equal(figures.fullSnapshots, 1);
      }));

    for (const transport of ['send', 'publish']) {
      test(`an input is acknowledged, and seen by both, through ${transport}`, () =>
        play(kind, async ({ player }) => {
          const ada = await player({ transport });
          const bob = await player({ transport });
          const seen = await bob.until('Bob sees Ada', () => bob.room.replica.object(ada.room.replica.avatar));
          // Away from the nearer edge.
          const right = ada.avatar.x < 2_048;
          const number = ada.room.send(walk(right ? 127 : -127, 0));
          assert.equal(number, 1);
          await ada.until('the input is applied', () => ada.room.replica.ack === number);
          assert.equal(ada.room.inputs.pending.length, 0);
          const moved = (from, to) => (right ? to.x - from.x : from.x - to.x);
          const start = ada.avatar;
          await ada.until('Ada moves', () => moved(start, ada.avatar) > 100);
          await bob.until('Bob sees it', () => moved(seen, bob.room.replica.object(ada.room.replica.avatar)) > 100);
          ada.room.send(walk(0, 0));
          await ada.until('the stop is applied', () => ada.room.replica.ack === 2);
          const { x, y } = ada.avatar;
          const same = () => {
            const there = bob.room.replica.object(ada.room.replica.avatar);
            return there?.x === x && there?.y === y;
          };
          await bob.until('Bob sees Ada where Ada sees herself', same);
          assert.notEqual(ada.room.figures().roundTripMs, null);
          assert.deepEqual([ada.errors, bob.errors], [[], []]);
        }));
    }

    test('who asks for fields has them, and the states of who does not', () =>
      play(kind, async ({ player }) => {
        const ada = await player({ typed: true, data: { name: 'Ada', colour: 3 } });
        const bob = await player({ typed: false });
        const id = ada.room.replica.avatar;
        await bob.until('Bob sees Ada', () => bob.room.replica.object(id));
        ada.room.send(walk(100, -50));
        const walking = { colour: 3, vx: 100, vy: -50, activity: 0 };
        const fields = () => JSON.stringify(ada.room.replica.fields(ada.avatar)) === JSON.stringify(walking);
        await ada.until('the fields change', fields);
        // On her way from a near cell of his into a far one, Bob does not see her for some ticks.
        const bytes = () => Buffer.from(bob.room.replica.object(id)?.state ?? []).toString('hex');
        await bob.until('the bytes change', () => bytes() === '0364ce00');
        assert.deepEqual([Buffer.from(ada.avatar.state).toString('hex'), bob.room.replica.schema], ['0364ce00', null]);
        assert.deepEqual([ada.errors, bob.errors], [[], []]);
      }));

    test('who leaves is gone for the others, and may come back', () =>
      play(kind, async ({ player }) => {
        const ada = await player();
        const bob = await player();
        const bobsId = bob.room.replica.avatar;
        await ada.until('Ada sees Bob', () => ada.room.replica.object(bobsId));
        bob.room.leave();
        assert.deepEqual([bob.room.state, bob.room.replica.size], ['left', 0]);
        assert.throws(() => bob.room.send(walk(1, 1)), { kind: 'not_joined' });
        await ada.until('Bob is gone', () => ada.room.replica.object(bobsId) === undefined);
        await bob.join();
        assert.notEqual(bob.room.replica.avatar, bobsId);
        await ada.until('Ada sees Bob again', () => ada.room.replica.object(bob.room.replica.avatar));
      }));

    test('a cut connection is come back from, with a world from the beginning', () =>
      play(kind, async ({ player, proxy }) => {
        const cable = await proxy();
        const ada = await player({}, cable.url);
        const joins = [];
        ada.room.on('joined', (joined) => joins.push(joined));
        const { avatar } = ada.room.replica;
        ada.room.send(walk(127, 0));
        await ada.until('the input is applied', () => ada.room.replica.ack === 1);
        cable.cut();
        const left = await ada.until('the loss is told', () => ada.left.at(-1));
        assert.equal(left.rejoins, true);
        assert.deepEqual([ada.room.state, ada.room.replica.size], ['joining', 0]);
        cable.restore();
        await ada.until('the own object is seen again', () => ada.avatar !== undefined);
        assert.deepEqual([joins, ada.room.replica.avatar], [[{ seatResumed: true }], avatar], 'the same player');
        assert.equal(ada.room.send(walk(0, 127)), 1, 'numbers begin anew');
        await ada.until('the input is applied', () => ada.room.replica.ack === 1);
        assert.deepEqual(ada.errors.filter(({ name }) => name === 'RoomError'), []);
      }));

    test('after a corrupted snapshot the same player is back, without a missed event', () =>
      play(kind, async ({ player, proxy }) => {
        const cable = await proxy();
        const ada = await player({}, cable.url);
        const bob = await player();
        const joins = [];
        ada.room.on('joined', (joined) => joins.push(joined));
        const { avatar } = ada.room.replica;
        await bob.until('Bob sees Ada', () => bob.room.replica.object(avatar));
        const gone = [];
        bob.room.on('snapshot', ({ removed }) => gone.push(...removed.filter(({ id }) => id === avatar)));
        const clues = (player) => player.events.filter(({ event }) => event.clue).map(({ tick }) => tick);
        const before = await ada.until('a clue', () => clues(ada).at(-1));
        // The name of a field, or the types of the first two.
        if (encoding === 'json') cable.alter('"tick":', '"kcit":');
        else cable.alter(/\x0d([^]{4})\x15/, '\x0f$1\x15');
        const left = await ada.until('the corruption is noticed', () => ada.left.at(-1));
        assert.deepEqual([left.rejoins, ada.errors.map(({ kind }) => kind)], [true, ['malformed']]);
        await ada.until('the own object is seen again', () => ada.avatar !== undefined);
        assert.deepEqual([joins, ada.room.replica.avatar], [[{ seatResumed: true }], avatar], 'the same player');
        const after = await ada.until('a clue after it', () => clues(ada).find((tick) => tick > before));
        await bob.until('the same clue', () => clues(bob).includes(after));
        const between = (player) => clues(player).filter((tick) => tick >= before && tick <= after);
        assert.deepEqual(between(ada), between(bob), 'no clue is missing');
        assert.equal(ada.room.send(walk(0, 127)), 1, 'numbers begin anew');
        await ada.until('the input is applied', () => ada.room.replica.ack === 1);
        assert.deepEqual(gone, [], 'for Bob, Ada was there all the time');
      }));

    test('events come with their tick, in order', () =>
      play(kind, async ({ player }) => {
        const ada = await player();
        const clues = [];
        ada.room.onEvent('clue', ({ shares }, tick) => clues.push([shares, tick]));
        // A clue drops every second in this server's hunt.
        await ada.until('two clues', () => ada.events.filter(({ event }) => event.clue).length >= 2);
        await ada.until('a clue, by its name', () => clues.length > 0);
        assert.ok(clues.every(([shares, tick]) => shares === 10 && tick > 0), JSON.stringify(clues));
        const ticks = ada.events.map(({ tick }) => tick);
        assert.deepEqual(ticks, [...ticks].sort((a, b) => a - b));
      }));

    test('a join that the game refuses says why', () =>
      play(kind, async ({ player }) => {
        const ada = await player({ data: { name: 7 } }, undefined, false);
        ada.room.join();
        const left = await ada.until('the refusal', () => ada.left.at(-1));
        assert.deepEqual({ code: left.code, rejoins: left.rejoins }, { code: 400, rejoins: false });
        assert.equal(ada.room.state, 'left');
      }));
  });
}

/** Runs a test with players in a separate room, and disconnects them. */
async function play([encoding, typed], body) {
  const channel = `arena:${randomUUID()}`;
  const players = [];
  const proxies = [];
  try {
    await body({
      player: async (options, url, joins = true) => {
        const made = new Player(encoding, channel, { typed, ...options }, url);
        players.push(made);
        if (joins) await made.join();
        return made;
      },
      proxy: async () => {
        proxies.push(await Proxy.start());
        return proxies.at(-1);
      },
    });
  } finally {
    for (const player of players) player.stop();
    for (const proxy of proxies) await proxy.stop();
  }
}
