"""The official client of the server API, `cent`."""

import asyncio
import base64

import cent
from requests import Session

from client import both_encodings
from server import API_KEY, API_URL, channel_in


def server_api(key: str = API_KEY) -> cent.Client:
    # Requests are local, so proxies from the environment must not be used.
    session = Session()
    session.trust_env = False
    return cent.Client(API_URL, key, timeout=20, session=session)


def refused(call) -> int:
    """The code of the error that a call ends with."""
    try:
        call()
    except cent.CentApiResponseError as error:
        return error.code
    raise AssertionError("it was not refused")


def test_publications():
    client, first, second = server_api(), channel_in("history"), channel_in("history")
    published = client.publish(cent.PublishRequest(channel=first, data={"n": 1}, tags={"kind": "test"}))
    kept, repeated = (
        client.publish(cent.PublishRequest(channel=first, data={"n": 2}, idempotency_key="key")) for _ in range(2)
    )
    assert repeated.offset == kept.offset > published.offset
    binary = cent.BroadcastRequest(channels=[first, second], data=None, b64data=base64.b64encode(b'{"n":3}').decode())
    assert len(client.broadcast(binary).responses) == 2

    history = client.history(cent.HistoryRequest(channel=first, limit=-1))
    assert [publication.data["n"] for publication in history.publications] == [1, 2, 3]
    assert history.publications[0].tags == {"kind": "test"}
    since = cent.StreamPosition(offset=kept.offset, epoch=published.epoch)
    newer = client.history(cent.HistoryRequest(channel=first, limit=10, since=since))
    assert [publication.data["n"] for publication in newer.publications] == [3]
    newest = client.history(cent.HistoryRequest(channel=first, limit=1, reverse=True))
    assert [publication.data["n"] for publication in newest.publications] == [3]
    client.history_remove(cent.HistoryRemoveRequest(channel=first))
    assert client.history(cent.HistoryRequest(channel=first, limit=-1)).publications == []


def test_a_batch():
    client, channel = server_api(), channel_in("history")
    requests = [cent.PublishRequest(channel=channel, data={"n": n}) for n in (1, 2)]
    replies = client.batch(cent.BatchRequest(requests=[*requests, cent.HistoryRequest(channel=channel, limit=-1)])).replies
    assert [publication.data["n"] for publication in replies[2].publications] == [1, 2]


def test_errors():
    client = server_api()
    assert refused(lambda: client.publish(cent.PublishRequest(channel="absent:channel", data={}))) == 102
    assert refused(lambda: client.history(cent.HistoryRequest(channel=channel_in("open"), limit=1))) == 108
    assert client.info(cent.InfoRequest()).nodes[0].name
    try:
        server_api("another key").info(cent.InfoRequest())
    except cent.CentUnauthorizedError:
        return
    raise AssertionError("a wrong key was accepted")


@both_encodings
class SessionsByServerApi:
    async def test_presence_subscribe_unsubscribe_and_disconnect(self):
        _, events, own, user = await self.as_user()
        channel, client = channel_in("presence"), server_api()

        async def call(method, request):
            return await asyncio.to_thread(method, request)

        await call(client.subscribe, cent.SubscribeRequest(channel=channel, user=user, info={"a": 1}))
        await events.next("subscribed")
        presence = (await call(client.presence, cent.PresenceRequest(channel=channel))).presence
        self.assertEqual((presence[own].user, presence[own].chan_info), (user, {"a": 1}))
        stats = await call(client.presence_stats, cent.PresenceStatsRequest(channel=channel))
        self.assertEqual((stats.num_clients, stats.num_users), (1, 1))
        channels = (await call(client.channels, cent.ChannelsRequest(pattern=channel))).channels
        self.assertEqual(channels[channel].num_clients, 1)
        await call(client.unsubscribe, cent.UnsubscribeRequest(channel=channel, user=user))
        await events.next("unsubscribed")
        await call(client.disconnect, cent.DisconnectRequest(user=user))
        self.assertEqual((await events.next("disconnected")).code, 3503)
