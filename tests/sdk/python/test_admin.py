from centrifuge import ClientState

from client import both_encodings
from server import api, channel_in, number_of, publish, token


@both_encodings
class DisconnectByApi:
    async def test_without_a_code_is_terminal(self):
        client, events, _, user = await self.as_user()
        await api("disconnect", user=user)
        told = await events.next("disconnected")
        self.assertEqual((told.code, told.reason), (3503, "force disconnect"))
        self.assertEqual(client.state, ClientState.DISCONNECTED)

    async def test_with_a_terminal_code(self):
        for code in (3500, 3999, 4500, 4999):
            _, events, _, user = await self.as_user()
            await api("disconnect", user=user, disconnect={"code": code, "reason": "because"})
            told = await events.next("disconnected")
            self.assertEqual((told.code, told.reason), (code, "because"))

    async def test_with_a_code_after_which_the_client_comes_back(self):
        for code in (3001, 3499, 4000, 4499):
            _, events, own, user = await self.as_user()
            await events.next("connecting")
            await api("disconnect", user=user, disconnect={"code": code, "reason": "because"})
            told = await events.next("connecting")
            self.assertEqual((told.code, told.reason), (code, "because"))
            self.assertNotEqual((await events.next("connected")).client, own)
            self.assertEqual(events.count("disconnected"), 0)

    async def test_with_3000_the_client_comes_back_as_from_a_failure_of_the_network(self):
        # Centrifugo drops the connection for this code: the client sees neither a close frame nor a disconnect push.
        _, events, own, user = await self.as_user()
        await events.next("connecting")
        await api("disconnect", user=user, disconnect={"code": 3000, "reason": "because"})
        told = await events.next("connecting")
        self.assertEqual((told.code, told.reason), (1, "transport closed"))  # the SDK's own
        self.assertNotEqual((await events.next("connected")).client, own)
        self.assertEqual(events.count("disconnected"), 0)

    async def test_of_one_client_leaves_the_users_others(self):
        _, first, own, user = await self.as_user()
        second, _, _ = await self.connected(token=token({"sub": user}))
        await api("disconnect", user=user, client=own)
        self.assertEqual((await first.next("disconnected")).code, 3503)
        await self.fails(second.rpc("any", self.encode({})), 108)  # the reply proves that the session is alive


@both_encodings
class UnsubscribeByApi:
    async def test_ends_the_subscription(self):
        client, _, _, user = await self.as_user()
        channel = channel_in("open")
        sub, events, _ = await self.subscribed(client, channel)
        await api("unsubscribe", user=user, channel=channel)
        told = await events.next("unsubscribed")
        self.assertEqual((told.code, told.reason), (2000, "server unsubscribe"))
        await sub.subscribe()
        await events.next("subscribed")

    async def test_ends_a_subscription_that_the_api_began(self):
        _, events, _, user = await self.as_user()
        channel = channel_in("history")
        await api("subscribe", user=user, channel=channel)
        self.assertEqual((await events.next("subscribed")).channel, channel)
        await publish(channel, 1, 1)
        self.assertEqual(number_of(channel, (await events.next("publication")).pub.offset), 1)
        await api("unsubscribe", user=user, channel=channel)
        self.assertEqual((await events.next("unsubscribed")).channel, channel)
