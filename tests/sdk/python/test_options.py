"""Options that a subscription negotiates with the server: deltas, tags filters, channel compaction."""

import unittest

from centrifuge import DeltaType, Filter

from client import both_encodings
from server import IS_CLUSTER, api, channel_in


def document_at(n):
    """A document that changes only slightly from one publication to the next."""
    return {"n": n, "text": "the same in every publication, and long enough to be worth leaving out. " * 8}


@both_encodings
class Options:
    async def received(self, events, count):
        return [self.decode(one.pub.data) for one in await events.take("publication", count)]

    async def test_as_differences_every_publication_arrives_whole_live_and_recovered(self):
        channel = channel_in("delta")
        proxy = await self.proxy()
        client, _, _ = await self.connected(proxy.url)
        _, events, _ = await self.subscribed(client, channel, delta=DeltaType.FOSSIL)
        await events.next("subscribing")
        for n in range(1, 4):
            await api("publish", channel=channel, data=document_at(n), delta=True)
        self.assertEqual(await self.received(events, 3), [document_at(n) for n in range(1, 4)])
        proxy.cut()
        await events.next("subscribing")
        for n in range(4, 7):
            await api("publish", channel=channel, data=document_at(n), delta=True)
        proxy.restore()
        self.assertEqual(await self.received(events, 3), [document_at(n) for n in range(4, 7)])
        await api("publish", channel=channel, data=document_at(7), delta=True)
        self.assertEqual(await self.received(events, 1), [document_at(7)])

    @unittest.skipIf(IS_CLUSTER, "a node keeps the keys of the publications that it has received")
    async def test_the_newest_of_each_key_comes_with_the_answer_and_again_after_a_reconnect(self):
        channel = channel_in("prices")

        async def quote(symbol, price):
            await api("publish", channel=channel, data={"symbol": symbol, "price": price}, tags={"symbol": symbol})

        async def page(count):
            return {one["symbol"]: one["price"] for one in await self.received(events, count)}

        for symbol, price in (("A", 1), ("B", 2), ("A", 3), ("C", 4), ("A", 5)):
            await quote(symbol, price)
        proxy = await self.proxy()
        client, _, _ = await self.connected(proxy.url)
        _, events, _ = await self.subscribed(client, channel)
        await events.next("subscribing")
        self.assertEqual(await page(3), {"A": 5, "B": 2, "C": 4})
        await quote("B", 6)
        self.assertEqual(await page(1), {"B": 6})
        proxy.cut()
        await events.next("subscribing")
        await quote("C", 7)
        await quote("D", 8)
        proxy.restore()
        self.assertEqual(await page(4), {"A": 5, "B": 6, "C": 7, "D": 8})

    async def test_a_tags_filter_lets_through_what_fits_and_only_that(self):
        channel = channel_in("tagged")
        client, _, _ = await self.connected()
        wanted = Filter.all(Filter.is_in("ticker", ["AAA", "BBB"]), Filter.gt("price", "100"))
        _, events, _ = await self.subscribed(client, channel, tags_filter=wanted)
        for n, ticker, price in ((1, "AAA", "99"), (2, "AAA", "101"), (3, "CCC", "200"), (4, "BBB", "100.5")):
            await api("publish", channel=channel, data=n, tags={"ticker": ticker, "price": price})
        await api("publish", channel=channel, data=5)
        await api("publish", channel=channel, data=6, tags={"ticker": "BBB", "price": "1000"})
        self.assertEqual(await self.received(events, 3), [2, 4, 6])

    async def test_a_tags_filter_where_none_is_allowed(self):
        client, _, _ = await self.connected()
        await self.refused(client, channel_in("open"), 107, tags_filter=Filter.exists("a"))

    async def test_numbers_for_names(self):
        client, _, _ = await self.connected()
        channels = [channel_in("compact") for _ in range(3)]
        subscriptions = [await self.subscribed(client, channel) for channel in channels]
        for channel in channels:
            await api("publish", channel=channel, data={"channel": channel})
        for channel, (_, events, _) in zip(channels, subscriptions):
            self.assertEqual(await self.received(events, 1), [{"channel": channel}])

    async def test_once_for_one_idempotency_key(self):
        channel = channel_in("history")
        client, _, _ = await self.connected()
        _, events, _ = await self.subscribed(client, channel)
        for key in ("one", "one", "two"):
            await api("publish", channel=channel, data=key, idempotency_key=key)
        self.assertEqual(await self.received(events, 2), ["one", "two"])
