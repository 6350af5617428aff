"""The server under test: its addresses, its HTTP API, and tokens that it accepts."""

import asyncio
import base64
import collections
import hashlib
import hmac
import json
import os
import time
import urllib.request
import uuid


def _required(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise RuntimeError(f"{name} is not set (run through tests/sdk/with-server)")
    return value


WS_URL = _required("DUNLIN_WS_URL")
API_URL = _required("DUNLIN_API_URL")
API_KEY = _required("DUNLIN_API_KEY")
_HMAC_SECRET = _required("DUNLIN_HMAC_SECRET")

# A second server, which sends requests about clients without a token to a backend (see answers).
HOOKS_WS_URL = _required("HOOKS_WS_URL")
_HOOKS_API_URL = _required("HOOKS_API_URL")
_BACKEND_URL = _required("HOOKS_BACKEND_URL")

# Requests are local, so proxies from the environment must not be used.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


async def api(method: str, **body):
    """Calls the HTTP API; raises when the server answers with an error."""
    return await _api(API_URL, method, body)


async def hooks_api(method: str, **body):
    """The same, for the server with a backend."""
    return await _api(_HOOKS_API_URL, method, body)


async def answers(kind: str, about: str, *all):
    """Defines the backend's responses of this kind about a channel, user or method; the last one is repeated."""
    await asyncio.to_thread(_post, f"{_BACKEND_URL}/answers", {"kind": kind, "about": about, "answers": all})


async def asked(kind: str, about: str, count: int = 1):
    """Waits until the backend has received `count` requests, and returns all of them."""
    deadline = time.monotonic() + 20
    while True:
        all = await asyncio.to_thread(_post, f"{_BACKEND_URL}/asked", {"kind": kind, "about": about})
        if len(all) >= count:
            return [one["question"] for one in all]
        assert time.monotonic() < deadline, f"asked {len(all)} times of {count}: {kind} {about}"
        await asyncio.sleep(0.02)  # between two checks


def _post(url: str, body):
    request = urllib.request.Request(
        url,
        data=json.dumps(body).encode(),
        headers={"X-API-Key": API_KEY, "Content-Type": "application/json"},
    )
    with _opener.open(request, timeout=20) as answer:
        return json.load(answer)


async def _api(url: str, method: str, body):
    reply = await asyncio.to_thread(_post, f"{url}/{method}", body)
    if "error" in reply:
        raise RuntimeError(f"{method}: {reply['error']}")
    return reply["result"]


async def publish(channel: str, first: int, last: int):
    """Publishes {"n": n} for each n. Returns the position of the last publication."""
    position = None
    for n in range(first, last + 1):
        position = await api("publish", channel=channel, data={"n": n})
        record_offset(channel, position["offset"])
    return position


# On one node, the publications of a channel have the offsets 1, 2, 3 and so on. In a cluster, the channels of a namespace share a
# stream: the offsets of a channel rise and have gaps, so a publication is found by the offset that the HTTP API returned for it.
IS_CLUSTER = bool(os.environ.get("DUNLIN_CLUSTER"))
_recorded = collections.defaultdict(list)


def record_offset(channel: str, offset: int):
    """Records the offset of the channel's next publication."""
    assert offset > max(_recorded[channel], default=0), f"{channel}: offset {offset} after {_recorded[channel]}"
    _recorded[channel].append(offset)


async def record_history(channel: str, count: int):
    """The same for the first publications of a channel, if their offsets were not returned. The history of another node may lag
    by some milliseconds."""
    deadline, publications = time.monotonic() + 20, []
    while len(publications) < count:
        assert time.monotonic() < deadline, f"{channel}: {len(publications)} publications of {count}"
        publications = (await api("history", channel=channel, limit=-1))["publications"]
    for publication in publications:
        record_offset(channel, publication["offset"])


def number_of(channel: str, offset: int) -> int:
    """The number of the publication with this offset: 1 for the first one of the channel, 0 if there is none."""
    if not IS_CLUSTER:
        return offset
    return _recorded[channel].index(offset) + 1 if offset in _recorded[channel] else 0


def offset_of(channel: str, number: int) -> int:
    return _recorded[channel][number - 1] if IS_CLUSTER else number


def token(claims, secret: str = _HMAC_SECRET) -> str:
    """A JWT (HS256) with these claims, signed with the server's secret or another."""

    def part(value) -> str:
        return _base64url(json.dumps(value).encode())

    signed = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}"
    return f"{signed}.{_base64url(hmac.digest(secret.encode(), signed.encode(), hashlib.sha256))}"


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def in_seconds(seconds: int) -> float:
    """Unix time in seconds, `seconds` from now, with a fraction, so that a token lives as long as the test says."""
    return time.time() + seconds


def channel_in(namespace: str) -> str:
    """A channel that no other test uses."""
    return f"{namespace}:{uuid.uuid4()}"


def new_user() -> str:
    """A user that no other test uses."""
    return f"user-{uuid.uuid4()}"
