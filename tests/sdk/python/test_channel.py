import asyncio
import base64

from centrifuge import StreamPosition

from client import both_encodings
from server import api, channel_in, number_of, offset_of, publish, record_history


@both_encodings
class Publish:
    async def test_by_a_subscriber_who_gets_it_with_its_own_info(self):
        client, _, own, user = await self.as_user(info={"name": "Ann"})
        sub, events, _ = await self.subscribed(client, channel_in("open"))
        await sub.publish(self.encode({"text": "hello ✓"}))
        publication = (await events.next("publication")).pub
        self.assertEqual(self.decode(publication.data), {"text": "hello ✓"})
        self.assertEqual((publication.info.user, publication.info.client), (user, own))
        self.assertEqual(self.decode(publication.info.conn_info), {"name": "Ann"})
        self.assertEqual(publication.offset, 0)

    async def test_by_one_client_reaches_another_in_order(self):
        channel = channel_in("history")
        publisher, _, _ = await self.connected()
        reader, _, _ = await self.connected()
        _, events, _ = await self.subscribed(reader, channel)
        for n in range(1, 101):
            await publisher.publish(channel, self.encode({"n": n}))
        await record_history(channel, 100)
        await self.numbers(events, 1, 100)

    async def test_by_the_http_api_with_tags_and_offset(self):
        channel = channel_in("history")
        client, _, _ = await self.connected()
        _, events, _ = await self.subscribed(client, channel)
        data = {"nested": {"list": [1, 2.5, "three", None, True]}}
        position = await api("publish", channel=channel, data=data, tags={"kind": "test"})
        publication = (await events.next("publication")).pub
        self.assertEqual(self.decode(publication.data), data)
        self.assertEqual(dict(publication.tags), {"kind": "test"})
        self.assertEqual((publication.offset, publication.info), (position["offset"], None))

    async def test_large(self):
        channel = channel_in("open")
        client, _, _ = await self.connected()
        sub, events, _ = await self.subscribed(client, channel)
        text = "x" * 65_000
        await sub.publish(self.encode(text))
        self.assertEqual(self.decode((await events.next("publication")).pub.data), text)
        text = "é" * 100_000
        await api("publish", channel=channel, data=text)
        self.assertEqual(self.decode((await events.next("publication")).pub.data), text)

    async def test_every_byte_over_protobuf(self):
        if not self.protobuf:
            return  # JSON payloads are JSON values
        channel = channel_in("history")
        every_byte = bytes(range(256)) * 4
        client, _, _ = await self.connected()
        sub, events, _ = await self.subscribed(client, channel)
        await sub.publish(every_byte)
        await api("publish", channel=channel, b64data=base64.b64encode(every_byte).decode())
        for told in await events.take("publication", 2):
            self.assertEqual(told.pub.data, every_byte)

    async def test_refused(self):
        client, _, _ = await self.connected()
        for namespace, code in (("nowhere", 102), ("closed", 103), ("members", 103)):
            await self.fails(client.publish(channel_in(namespace), self.encode({})), code)
        sub, events, _ = await self.subscribed(client, channel_in("members"))
        await sub.publish(self.encode({"n": 1}))
        await events.next("publication")


@both_encodings
class History:
    async def test_in_every_shape(self):
        channel = channel_in("history")
        epoch = (await publish(channel, 1, 5))["epoch"]
        client, _, _ = await self.connected()

        def since(number):
            return StreamPosition(offset_of(channel, number), epoch)

        for options, numbers in (
            ({}, []),
            ({"limit": 0}, []),
            ({"limit": -1}, [1, 2, 3, 4, 5]),
            ({"limit": 2}, [1, 2]),
            ({"limit": 2, "reverse": True}, [5, 4]),
            ({"limit": -1, "since": since(2)}, [3, 4, 5]),
            ({"limit": 2, "since": since(2)}, [3, 4]),
            ({"limit": -1, "since": since(5)}, []),
            ({"limit": -1, "since": since(4), "reverse": True}, [3, 2, 1]),
        ):
            result = await client.history(channel, **options)
            found = [number_of(channel, publication.offset) for publication in result.publications]
            self.assertEqual(found, numbers, options)
            self.assertEqual([self.decode(publication.data)["n"] for publication in result.publications], numbers)
            self.assertEqual((number_of(channel, result.offset), result.epoch), (5, epoch))
        await self.fails(client.history(channel, limit=1, since=StreamPosition(1, "another")), 112)

    async def test_refused(self):
        client, _, _ = await self.connected()
        for namespace, code in (("nowhere", 102), ("closed", 103), ("members", 103), ("open", 108)):
            await self.fails(client.history(channel_in(namespace), limit=1), code)


@both_encodings
class Presence:
    async def test_names_clients_counts_users_tells_joins_and_leaves(self):
        channel = channel_in("presence")
        watcher, _, watcher_id = await self.connected()
        watching, events, _ = await self.subscribed(watcher, channel)
        self.assertEqual((await events.next("join")).info.client, watcher_id)

        client, _, own, user = await self.as_user(info={"n": 1})
        sub, _, _ = await self.subscribed(client, channel)
        joined = (await events.next("join")).info
        self.assertEqual((joined.client, joined.user), (own, user))
        self.assertEqual(self.decode(joined.conn_info), {"n": 1})
        self.assertEqual(set((await watcher.presence(channel)).clients), {watcher_id, own})
        stats = await watching.presence_stats()
        self.assertEqual((stats.num_clients, stats.num_users), (2, 2))

        await sub.unsubscribe()
        self.assertEqual((await events.next("leave")).info.client, own)
        await sub.subscribe()
        await events.next("join")
        await client.disconnect()
        self.assertEqual((await events.next("leave")).info.client, own)

    async def test_refused(self):
        client, _, _ = await self.connected()
        for namespace, code in (("nowhere", 102), ("closed", 103), ("members", 103), ("open", 108)):
            await self.fails(client.presence(channel_in(namespace)), code)
            await self.fails(client.presence_stats(channel_in(namespace)), code)


@both_encodings
class Crowd:
    async def test_100_subscriptions_get_a_broadcast(self):
        client, _, _ = await self.connected()
        channels = [channel_in("history") for _ in range(100)]
        subs = [await self.subscription(client, channel) for channel in channels]
        for _, events in subs:
            await events.next("subscribed")
        await api("broadcast", channels=channels, data={"n": 1})
        for channel, (_, events) in zip(channels, subs):
            await record_history(channel, 1)
            await self.numbers(events, 1, 1)

    async def test_50_clients_see_one_order(self):
        channel = channel_in("history")

        async def come():
            client, _, _ = await self.connected()
            return await self.subscribed(client, channel)

        crowd = await asyncio.gather(*(come() for _ in range(50)))
        await asyncio.gather(*(sub.publish(self.encode(n)) for n, (sub, _, _) in enumerate(crowd)))
        seen = [await events.take("publication", 50) for _, events, _ in crowd]
        orders = [[self.decode(told.pub.data) for told in one] for one in seen]
        self.assertEqual(sorted(orders[0]), list(range(50)))
        await record_history(channel, 50)
        for one, order in zip(seen, orders):
            self.assertEqual([number_of(channel, told.pub.offset) for told in one], list(range(1, 51)))
            self.assertEqual(order, orders[0])
