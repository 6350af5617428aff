"""A TCP proxy in front of the server. Its connections can be cut and paused."""

import asyncio
import contextlib
from urllib.parse import urlsplit, urlunsplit

from server import WS_URL

# A server ping on an otherwise silent connection is one WebSocket frame: the
# text `{}` in JSON, the single byte 0 (an empty message's length) in Protobuf.
_PINGS = (b"\x81\x02{}", b"\x82\x01\x00")


class Proxy:
    def __init__(self):
        self._open = True
        self._passing = asyncio.Event()
        self._passing.set()
        self._pings = 0
        self._pinged = asyncio.Condition()
        self._writers = set()
        self._tasks = set()
        self._server = None

    @classmethod
    async def start(cls) -> "Proxy":
        proxy = cls()
        proxy._server = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        return proxy

    @property
    def url(self) -> str:
        """The server's WebSocket address, through this proxy."""
        port = self._server.sockets[0].getsockname()[1]
        return urlunsplit(urlsplit(WS_URL)._replace(netloc=f"127.0.0.1:{port}"))

    def cut(self):
        """Cuts every connection and refuses new ones until `restore`."""
        self._open = False
        for writer in self._writers:
            writer.transport.abort()

    def restore(self):
        self._open = True

    def hold(self):
        """Keeps connections open but forwards nothing from the server until `release`."""
        self._passing.clear()

    def release(self):
        self._passing.set()

    async def pings(self, count: int):
        """Returns when `count` server pings have passed since the proxy started."""
        async with self._pinged:
            await self._pinged.wait_for(lambda: self._pings >= count)

    async def stop(self):
        self.release()
        self.cut()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        if not self._open:
            writer.transport.abort()
            return
        upstream = urlsplit(WS_URL)
        up_reader, up_writer = await asyncio.open_connection(upstream.hostname, upstream.port)
        self._writers |= {writer, up_writer}
        try:
            await asyncio.gather(
                self._pass(reader, up_writer), self._pass_from_server(up_reader, writer)
            )
        finally:
            self._writers -= {writer, up_writer}
            writer.transport.abort()
            up_writer.transport.abort()

    async def _pass(self, reader, writer):
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
        writer.transport.abort()

    async def _pass_from_server(self, reader, writer):
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65536):
                await self._passing.wait()
                writer.write(chunk)
                if chunk in _PINGS:
                    async with self._pinged:
                        self._pings += 1
                        self._pinged.notify_all()
        if not writer.is_closing():
            writer.close()
