"""The server under test: where it is, its HTTP API, and tokens it accepts."""

import asyncio
import base64
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
_API_URL = _required("DUNLIN_API_URL")
_API_KEY = _required("DUNLIN_API_KEY")
_HMAC_SECRET = _required("DUNLIN_HMAC_SECRET")

# Loopback only: a proxy named by the environment must not be asked.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


async def api(method: str, **body):
    """Calls the HTTP API; raises when the server answers with an error."""
    return await asyncio.to_thread(_call, method, body)


def _call(method: str, body):
    request = urllib.request.Request(
        f"{_API_URL}/{method}",
        data=json.dumps(body).encode(),
        headers={"X-API-Key": _API_KEY, "Content-Type": "application/json"},
    )
    with _opener.open(request, timeout=20) as answer:
        reply = json.load(answer)
    if "error" in reply:
        raise RuntimeError(f"{method}: {reply['error']}")
    return reply["result"]


async def publish(channel: str, first: int, last: int):
    """Publishes {"n": n} for each n; gives the position of the last."""
    position = None
    for n in range(first, last + 1):
        position = await api("publish", channel=channel, data={"n": n})
    return position


def token(claims, secret: str = _HMAC_SECRET) -> str:
    """A JWT (HS256) with these claims, signed with the server's secret or another."""

    def part(value) -> str:
        return _base64url(json.dumps(value).encode())

    signed = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}"
    return f"{signed}.{_base64url(hmac.digest(secret.encode(), signed.encode(), hashlib.sha256))}"


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def in_seconds(seconds: int) -> int:
    """Unix seconds. Tokens live for 2 seconds at least: whole seconds are all a
    token knows, and 1 could be none by the time it is read."""
    return int(time.time()) + seconds


def channel_in(namespace: str) -> str:
    """A channel that no other test uses."""
    return f"{namespace}:{uuid.uuid4()}"


def new_user() -> str:
    """A user that no other test uses."""
    return f"user-{uuid.uuid4()}"
