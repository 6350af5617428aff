"""SDK clients in both encodings, created and closed for one test."""

import asyncio
import json
import unittest

from centrifuge import (
    Client,
    ClientEventHandler,
    SubscriptionEventHandler,
    SubscriptionState,
)
from centrifuge.exceptions import ReplyError

from proxy import Proxy
from server import WS_URL, new_user, number_of, token

DEADLINE_S = 20


class Events:
    """Queues the events of the SDK until the test reads them."""

    def __init__(self):
        self._unread = []
        self._all = []
        self._arrived = asyncio.Condition()
        self.channel = None

    async def add(self, name, context):
        async with self._arrived:
            self._unread.append((name, context))
            self._all.append((name, context))
            self._arrived.notify_all()

    async def next(self, name):
        """The next unread event of this name (others stay unread)."""
        try:
            async with asyncio.timeout(DEADLINE_S), self._arrived:
                await self._arrived.wait_for(lambda: any(seen == name for seen, _ in self._unread))
                index = next(i for i, (seen, _) in enumerate(self._unread) if seen == name)
                return self._unread.pop(index)[1]
        except TimeoutError:
            raise AssertionError(f"no '{name}' within {DEADLINE_S} s; seen: {self._all}") from None

    async def take(self, name, count):
        return [await self.next(name) for _ in range(count)]

    def all(self, name):
        return [context for seen, context in self._all if seen == name]

    def count(self, name):
        return sum(seen == name for seen, _ in self._all)


def _recorder(base, names):
    """A handler class of the SDK whose every callback becomes an event."""

    def callback(name):
        async def record(self, context):
            await self.events.add(name, context)

        return record

    def start(self):
        self.events = Events()

    return type("Recorder", (base,), {"__init__": start} | {f"on_{name}": callback(name) for name in names})


_ClientRecorder = _recorder(
    ClientEventHandler,
    "connecting connected disconnected error subscribed unsubscribed subscribing publication join leave".split(),
)
_SubscriptionRecorder = _recorder(
    SubscriptionEventHandler,
    "subscribing subscribed unsubscribed publication join leave error".split(),
)


def both_encodings(scenarios):
    """Creates two test cases from a class of scenarios, which is not a test case itself."""
    import sys

    module = sys.modules[scenarios.__module__]
    for encoding in ("Json", "Protobuf"):
        name = f"{scenarios.__name__}{encoding}"
        case = type(name, (scenarios, _Case), {"protobuf": encoding == "Protobuf", "__module__": module.__name__})
        setattr(module, name, case)
    return None


class _Case(unittest.IsolatedAsyncioTestCase):
    protobuf = False

    def encode(self, value):
        return json.dumps(value).encode() if self.protobuf else value

    def decode(self, data):
        return json.loads(data) if self.protobuf else data

    def client(self, url=WS_URL, **options):
        """A client with its events; not connected yet."""
        recorder = _ClientRecorder()
        client = Client(
            url,
            events=recorder,
            use_protobuf=self.protobuf,
            min_reconnect_delay=0.02,
            max_reconnect_delay=0.2,
            proxy=None,
            **options,
        )
        self.addAsyncCleanup(client.disconnect)
        return client, recorder.events

    async def connected(self, url=WS_URL, **options):
        """A client that is connected, its events, and its client id."""
        client, events = self.client(url, **options)
        await client.connect()
        return client, events, (await events.next("connected")).client

    async def as_user(self, **claims):
        """A client that is connected as a unique user."""
        user = new_user()
        return *(await self.connected(token=token({"sub": user, **claims}))), user

    async def subscription(self, client, channel, **options):
        """Creates a subscription, and calls `subscribe`. Returns it with its events."""
        recorder = _SubscriptionRecorder()
        recorder.events.channel = channel
        sub = client.new_subscription(
            channel, events=recorder, min_resubscribe_delay=0.02, max_resubscribe_delay=0.2, **options
        )
        await sub.subscribe()
        return sub, recorder.events

    async def subscribed(self, client, channel, **options):
        """A subscription that is subscribed, its events, and the context of the first one."""
        sub, events = await self.subscription(client, channel, **options)
        return sub, events, await events.next("subscribed")

    async def refused(self, client, channel, code, **options):
        """Checks that a subscription ends with this code."""
        sub, events = await self.subscription(client, channel, **options)
        self.assertEqual((await events.next("unsubscribed")).code, code)
        self.assertEqual(sub.state, SubscriptionState.UNSUBSCRIBED)

    async def fails(self, call, code):
        """Checks that a call fails with this error of the server."""
        with self.assertRaises(ReplyError) as caught:
            await call
        self.assertEqual(caught.exception.code, code)

    async def numbers(self, events, first, last):
        """Checks that the next publications are {"n": n}, each with the offset of the channel's nth publication."""
        for n in range(first, last + 1):
            publication = (await events.next("publication")).pub
            number = number_of(events.channel, publication.offset)
            self.assertEqual((self.decode(publication.data), number), ({"n": n}, n))

    async def proxy(self):
        proxy = await Proxy.start()
        self.addAsyncCleanup(proxy.stop)
        return proxy


