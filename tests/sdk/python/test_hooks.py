"""Sessions for which the server sends requests to a backend."""

import asyncio

from centrifuge import ClientState

from client import both_encodings
from server import HOOKS_WS_URL, answers, asked, channel_in, hooks_api, in_seconds, new_user


def refusal(code, temporary=False):
    return {"error": {"code": code, "message": "no", "temporary": temporary}}


def goodbye(code):
    return {"disconnect": {"code": code, "reason": "go"}}


class _Visits:
    async def visitor(self, user, *all):
        """A client that is not connected yet. The backend responds to its connect with this answer."""
        await answers("connect", user, *all)
        return self.client(HOOKS_WS_URL, data=self.encode({"about": user}), name="tests", version="7")

    async def entered(self, **result):
        """A client that the backend accepts as a unique user, with these additional fields in the result."""
        user = new_user()
        client, events = await self.visitor(user, {"result": {"user": user, **result}})
        await client.connect()
        return client, events, (await events.next("connected")).client, user


@both_encodings
class ConnectHook(_Visits):
    async def test_is_asked_who_comes_and_says_it(self):
        user, channel = new_user(), channel_in("open")
        result = {"user": user, "info": {"name": "Ann"}, "data": {"welcome": 1}, "channels": [channel]}
        client, events = await self.visitor(user, {"result": result})
        await client.connect()
        context = await events.next("connected")
        self.assertEqual(self.decode(context.data), {"welcome": 1})
        given = {one.channel for one in await events.take("subscribed", 2)}
        self.assertEqual(given, {channel, f"personal:#{user}"})
        present = (await hooks_api("presence", channel=channel))["presence"]
        own = {"client": context.client, "user": user, "conn_info": {"name": "Ann"}}
        self.assertEqual(present, {context.client: own})
        await hooks_api("publish", channel=f"personal:#{user}", data={"for": user})
        self.assertEqual(self.decode((await events.next("publication")).pub.data), {"for": user})
        question = {
            "client": context.client,
            "transport": "websocket",
            "protocol": "protobuf" if self.protobuf else "json",
            "encoding": "json",
            "data": {"about": user},
            "name": "tests",
            "version": "7",
        }
        self.assertEqual(await asked("connect", user), [question])

    async def test_an_answer_that_is_the_end(self):
        for answer, code in ((refusal(1000), 1000), (goodbye(4501), 4501), ({}, 3501)):
            client, events = await self.visitor(new_user(), answer)
            await client.connect()
            self.assertEqual((await events.next("disconnected")).code, code)

    async def test_an_answer_after_which_the_client_comes_back(self):
        user = new_user()
        client, events = await self.visitor(
            user, refusal(1000, temporary=True), {"status": 500}, goodbye(4001), {"result": {"user": user}}
        )
        await client.connect()
        await events.next("connected")
        self.assertEqual(events.count("disconnected"), 0)
        self.assertEqual(len(await asked("connect", user)), 4)

    async def test_a_user_has_one_connection_here(self):
        _, events, _, user = await self.entered()
        await self.connected(HOOKS_WS_URL, data=self.encode({"about": user}))
        self.assertEqual((await events.next("disconnected")).code, 3504)


@both_encodings
class RefreshHook(_Visits):
    async def test_keeps_a_connection_and_changes_its_info(self):
        user = new_user()
        first = {"expire_at": in_seconds(4), "info": {"seat": 2}}
        await answers("refresh", user, {"result": first}, {"result": {"expire_at": in_seconds(600)}})
        result = {"user": user, "expire_at": in_seconds(2), "info": {"seat": 1}, "meta": {"plan": "pro"}}
        client, events = await self.visitor(user, {"result": result})
        await client.connect()
        question = (await asked("refresh", user, 2))[0]
        self.assertEqual((question["user"], question["meta"]), (user, {"plan": "pro"}))
        sub, publications, _ = await self.subscribed(client, channel_in("open"))
        await sub.publish(self.encode({}))
        info = (await publications.next("publication")).pub.info
        self.assertEqual(self.decode(info.conn_info), {"seat": 2})
        self.assertEqual(events.count("connecting"), 1)

    async def test_says_that_it_has_expired_and_the_client_comes_back(self):
        user = new_user()
        await answers("refresh", user, {"result": {"expired": True}})
        result = {"user": user, "expire_at": in_seconds(2)}
        client, events = await self.visitor(user, {"result": result}, {"result": {"user": user}})
        await client.connect()
        await events.next("connected")
        await events.next("connecting")
        self.assertEqual((await events.next("connecting")).code, 3005)
        await events.next("connected")


@both_encodings
class SubscribeHook(_Visits):
    async def test_is_asked_and_says_what_comes_with_the_subscription(self):
        channel = channel_in("asked")
        await answers("subscribe", channel, {"result": {"info": {"role": "admin"}, "data": {"welcome": 2}}})
        client, _, own, user = await self.entered(meta={"plan": "pro"})
        _, _, context = await self.subscribed(client, channel, data=self.encode({"code": 1234}))
        self.assertEqual(self.decode(context.data), {"welcome": 2})
        present = (await hooks_api("presence", channel=channel))["presence"]
        self.assertEqual(present[own]["chan_info"], {"role": "admin"})
        question = (await asked("subscribe", channel))[0]
        self.assertEqual((question["user"], question["data"], question["meta"]), (user, {"code": 1234}, {"plan": "pro"}))

    async def test_refuses_for_now_then_for_good(self):
        channel = channel_in("asked")
        await answers("subscribe", channel, refusal(1001, temporary=True), {"status": 503}, refusal(1001))
        client, _, _, _ = await self.entered()
        await self.refused(client, channel, 1001)
        self.assertEqual(len(await asked("subscribe", channel)), 3)
        self.assertEqual(client.state, ClientState.CONNECTED)

    async def test_disconnects(self):
        channel = channel_in("asked")
        await answers("subscribe", channel, goodbye(4503))
        client, events, _, _ = await self.entered()
        await self.subscription(client, channel)
        self.assertEqual((await events.next("disconnected")).code, 4503)


@both_encodings
class SubRefreshHook(_Visits):
    async def test_keeps_a_subscription_until_it_says_that_it_has_expired(self):
        channel = channel_in("asked")
        await answers("subscribe", channel, {"result": {"expire_at": in_seconds(2)}}, {"result": {}})
        await answers("sub_refresh", channel, {"result": {"expire_at": in_seconds(4)}}, {"result": {"expired": True}})
        client, _, _, user = await self.entered()
        _, events, _ = await self.subscribed(client, channel)
        await events.next("subscribing")
        self.assertEqual((await events.next("subscribing")).code, 2501)
        questions = await asked("sub_refresh", channel)
        self.assertEqual([question["user"] for question in questions], [user, user])
        await events.next("subscribed")


@both_encodings
class PublishHook(_Visits):
    async def test_says_what_is_published_refuses_and_disconnects(self):
        channel = channel_in("asked")
        await answers("subscribe", channel, {"result": {}})
        await answers(
            "publish",
            channel,
            {"result": {"data": {"text": "b***"}, "tags": {"judged": "yes"}}},
            {"result": {"idempotency_key": "same"}},
            {"result": {"idempotency_key": "same"}},
            {"result": {"skip_history": True}},
            refusal(1002),
            {"status": 500},
            goodbye(4504),
        )
        client, connection, _, user = await self.entered()
        sub, events, _ = await self.subscribed(client, channel)
        for n in range(1, 5):
            await sub.publish(self.encode({"n": n}))
        first, *others = [one.pub for one in await events.take("publication", 3)]
        self.assertEqual((self.decode(first.data), first.tags, first.info.user), ({"text": "b***"}, {"judged": "yes"}, user))
        self.assertEqual([self.decode(one.data) for one in others], [{"n": 2}, {"n": 4}])
        self.assertEqual(len((await sub.history(limit=-1)).publications), 2)
        await self.fails(sub.publish(self.encode({"n": 5})), 1002)
        await self.fails(sub.publish(self.encode({"n": 6})), 100)
        saying = asyncio.ensure_future(sub.publish(self.encode({"n": 7})))
        self.assertEqual((await connection.next("disconnected")).code, 4504)
        await asyncio.gather(saying, return_exceptions=True)
        question = (await asked("publish", channel))[0]
        self.assertEqual((question["user"], question["data"]), (user, {"n": 1}))


@both_encodings
class RpcHook(_Visits):
    async def test_answers_refuses_and_disconnects(self):
        method = new_user()
        pong = {"result": {"data": {"pong": [1, 2]}}}
        await answers("rpc", method, pong, refusal(1003), {"status": 500}, goodbye(4505))
        client, events, _, user = await self.entered()
        answer = await client.rpc(method, self.encode({"ping": 1}))
        self.assertEqual(self.decode(answer.data), {"pong": [1, 2]})
        await self.fails(client.rpc(method, self.encode({})), 1003)
        await self.fails(client.rpc(method, self.encode({})), 100)
        saying = asyncio.ensure_future(client.rpc(method, self.encode({})))
        self.assertEqual((await events.next("disconnected")).code, 4505)
        await asyncio.gather(saying, return_exceptions=True)
        question = (await asked("rpc", method))[0]
        self.assertEqual((question["user"], question["data"]), (user, {"ping": 1}))
