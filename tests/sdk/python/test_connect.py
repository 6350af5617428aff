import asyncio

from centrifuge import CentrifugeError, ClientState

from client import DEADLINE_S, both_encodings
from server import channel_in, in_seconds, new_user, token


@both_encodings
class Connect:
    async def test_without_a_token(self):
        client, _, own = await self.connected()
        self.assertEqual(client.state, ClientState.CONNECTED)
        self.assertTrue(own)

    async def test_with_a_token_user_and_info_are_the_tokens(self):
        client, _, own, user = await self.as_user(info={"name": "Ann"})
        channel = channel_in("presence")
        await self.subscribed(client, channel)
        present = (await client.presence(channel)).clients
        self.assertEqual(list(present), [own])
        self.assertEqual(present[own].user, user)
        self.assertEqual(self.decode(present[own].conn_info), {"name": "Ann"})

    async def test_a_bad_token_is_terminal(self):
        for bad in (
            token({"sub": "x"}, "another secret"),
            "not-a-token",
            token({"sub": "x", "channel": "open:x"}),
        ):
            client, events = self.client(token=bad)
            await client.connect()
            told = await events.next("disconnected")
            self.assertEqual((told.code, told.reason), (3500, "invalid token"))
            self.assertEqual(client.state, ClientState.DISCONNECTED)

    async def test_an_expired_token_makes_the_sdk_ask_for_a_new_one(self):
        asked = []

        async def get_token():
            asked.append(1)
            return token({"sub": "x", "exp": in_seconds(600)})

        client, events = self.client(token=token({"sub": "x", "exp": in_seconds(-10)}), get_token=get_token)
        await client.connect()
        await events.next("connected")
        self.assertEqual(len(asked), 1)
        self.assertEqual(events.count("disconnected"), 0)

    async def test_a_session_outlives_its_token_by_refreshing_it(self):
        asked, third = [], asyncio.Event()

        async def get_token():
            asked.append(1)
            if len(asked) == 3:
                third.set()
            return token({"sub": "x", "exp": in_seconds(2)})

        _, events, _ = await self.connected(token=token({"sub": "x", "exp": in_seconds(2)}), get_token=get_token)
        # The third refresh is later than the first token's expiry plus expired_close_delay.
        await asyncio.wait_for(third.wait(), DEADLINE_S)
        self.assertEqual(events.count("connecting"), 1)
        self.assertEqual(events.count("connected"), 1)

    async def test_a_session_that_is_not_refreshed_is_closed_with_3005(self):
        async def get_token():
            raise CentrifugeError("no token today")

        _, events, _ = await self.connected(token=token({"sub": "x", "exp": in_seconds(2)}), get_token=get_token)
        await events.next("connecting")
        told = await events.next("connecting")
        self.assertEqual((told.code, told.reason), (3005, "connection expired"))

    async def test_refreshing_with_a_bad_token_is_terminal(self):
        async def get_token():
            return token({"sub": "x"}, "another secret")

        _, events, _ = await self.connected(token=token({"sub": "x", "exp": in_seconds(2)}), get_token=get_token)
        self.assertEqual((await events.next("disconnected")).code, 3500)

    async def test_pings_are_answered_so_the_connection_stays(self):
        proxy = await self.proxy()
        _, events, _ = await self.connected(proxy.url)
        # When the second ping arrives, the pong for the first one is already due.
        await asyncio.wait_for(proxy.pings(2), DEADLINE_S)
        self.assertEqual(events.count("connecting"), 1)

    async def test_a_server_that_falls_silent_is_left_and_found_again(self):
        proxy = await self.proxy()
        _, events, _ = await self.connected(proxy.url, max_server_ping_delay=0.2)
        await events.next("connecting")
        proxy.hold()
        self.assertEqual((await events.next("connecting")).code, 2)  # the SDK's own "no ping"
        proxy.release()
        await events.next("connected")

    async def test_a_client_can_disconnect_and_connect_again(self):
        client, events, own = await self.connected()
        await client.disconnect()
        self.assertEqual((await events.next("disconnected")).code, 0)
        await client.connect()
        self.assertNotEqual((await events.next("connected")).client, own)

    async def test_rpc_without_a_handler_is_error_108(self):
        client, _, _ = await self.connected()
        await self.fails(client.rpc("any", self.encode({})), 108)
        self.assertEqual(client.state, ClientState.CONNECTED)

    async def test_a_message_over_the_limit_ends_the_connection(self):
        client, events, _ = await self.connected()
        await events.next("connecting")
        with self.assertRaises(CentrifugeError):
            await client.publish(channel_in("open"), self.encode("x" * 66_000))
        # The SDK's own code for close code 1009; this SDK reconnects after it.
        self.assertEqual((await events.next("connecting")).code, 3)

    async def test_token_of_a_user_can_be_used_twice(self):
        user = new_user()
        first = await self.connected(token=token({"sub": user}))
        second = await self.connected(token=token({"sub": user}))
        self.assertNotEqual(first[2], second[2])
