import asyncio

from centrifuge import CentrifugeError, ClientState

from client import DEADLINE_S, both_encodings
from server import api, channel_in, in_seconds, new_user, number_of, publish, token


@both_encodings
class Subscribe:
    async def test_to_a_plain_channel_and_leave_it(self):
        client, _, _ = await self.connected()
        sub, events, context = await self.subscribed(client, channel_in("open"))
        self.assertFalse(context.positioned or context.recoverable or context.was_recovering or context.recovered)
        await sub.unsubscribe()
        self.assertEqual((await events.next("unsubscribed")).code, 0)
        await sub.subscribe()
        await events.next("subscribed")

    async def test_refused(self):
        client, _, _ = await self.connected()
        for channel, code in (
            (channel_in("nowhere"), 102),
            (channel_in("closed"), 103),
            (new_user(), 103),
            ("$" + channel_in("open"), 103),
            (channel_in("users") + "#somebody", 103),
            ("open:" + "x" * 251, 107),
            (channel_in("open") + "é", 107),
        ):
            await self.refused(client, channel, code)
        self.assertEqual(client.state, ClientState.CONNECTED)

    async def test_with_a_user(self):
        client, _, _, user = await self.as_user()
        await self.subscribed(client, new_user())
        await self.subscribed(client, f"{channel_in('users')}#other,{user}")

    async def test_128_channels_the_129th_is_refused(self):
        client, _, _ = await self.connected()
        subs = [await self.subscription(client, channel_in("open")) for _ in range(128)]
        for _, events in subs:
            await events.next("subscribed")
        await self.refused(client, channel_in("open"), 106)

    async def test_on_the_server_side_by_the_token(self):
        channel = channel_in("history")
        client, events = self.client(token=token({"sub": new_user(), "channels": [channel]}))
        await client.connect()
        context = await events.next("subscribed")
        self.assertEqual((context.channel, context.recoverable), (channel, True))
        await publish(channel, 1, 1)
        told = await events.next("publication")
        self.assertEqual((told.channel, number_of(channel, told.pub.offset)), (channel, 1))
        self.assertEqual(self.decode(told.pub.data), {"n": 1})

    async def test_flags_only_when_asked_for(self):
        client, _, own = await self.connected()
        for options, positioned, recoverable in (
            ({}, False, False),
            ({"positioned": True}, True, False),
            ({"recoverable": True}, True, True),
        ):
            _, _, context = await self.subscribed(client, channel_in("optional"), **options)
            self.assertEqual((context.positioned, context.recoverable), (positioned, recoverable))
        _, events, _ = await self.subscribed(client, channel_in("optional"), join_leave=True)
        self.assertEqual((await events.next("join")).info.client, own)


@both_encodings
class SubscriptionToken:
    async def test_opens_a_closed_channel_and_carries_info_and_data(self):
        client, _, own, user = await self.as_user()
        channel = "$" + channel_in("closed")
        claims = {"sub": user, "channel": channel, "info": {"role": "admin"}, "data": {"welcome": True}}
        _, _, context = await self.subscribed(client, channel, token=token(claims))
        self.assertEqual(self.decode(context.data), {"welcome": True})
        present = (await api("presence", channel=channel))["presence"]
        self.assertEqual((present[own]["user"], present[own]["chan_info"]), (user, {"role": "admin"}))

    async def test_expired_makes_the_sdk_ask_for_a_new_one(self):
        client, _, _, user = await self.as_user()
        channel = channel_in("closed")
        asked = []

        async def get_token(for_channel):
            asked.append(for_channel)
            return token({"sub": user, "channel": channel, "exp": in_seconds(600)})

        expired = token({"sub": user, "channel": channel, "exp": in_seconds(-10)})
        _, events = await self.subscription(client, channel, token=expired, get_token=get_token)
        await events.next("subscribed")
        self.assertEqual(asked, [channel])

    async def test_with_a_wrong_signature_is_refused(self):
        client, _, _, user = await self.as_user()
        channel = channel_in("closed")
        bad = token({"sub": user, "channel": channel}, "another secret")
        await self.refused(client, channel, 103, token=bad)

    async def test_of_another_channel_or_user_ends_the_connection(self):
        for change in ({"channel": channel_in("closed")}, {"sub": new_user()}):
            client, events, _, user = await self.as_user()
            channel = channel_in("closed")
            await self.subscription(client, channel, token=token({"sub": user, "channel": channel} | change))
            self.assertEqual((await events.next("disconnected")).code, 3500)

    async def test_is_refreshed_and_the_subscription_outlives_it(self):
        client, _, _, user = await self.as_user()
        channel = channel_in("closed")
        asked, third = [], asyncio.Event()

        def short():
            return token({"sub": user, "channel": channel, "exp": in_seconds(2)})

        async def get_token(_):
            asked.append(1)
            if len(asked) == 3:
                third.set()
            return short()

        _, events, _ = await self.subscribed(client, channel, token=short(), get_token=get_token)
        await asyncio.wait_for(third.wait(), DEADLINE_S)
        self.assertEqual(events.count("subscribing"), 1)
        self.assertEqual(events.count("subscribed"), 1)

    async def test_not_refreshed_ends_the_subscription_with_2501(self):
        client, _, _, user = await self.as_user()
        channel = channel_in("closed")

        async def get_token(_):
            raise CentrifugeError("no token today")

        short = token({"sub": user, "channel": channel, "exp": in_seconds(2)})
        _, events, _ = await self.subscribed(client, channel, token=short, get_token=get_token)
        await events.next("subscribing")
        self.assertEqual((await events.next("subscribing")).code, 2501)
        self.assertEqual(client.state, ClientState.CONNECTED)
