"""One TCP port in front of several nodes: new connections go to nodes that are healthy, in turn."""

import asyncio
import json

#: Connections of clients at a time; further ones are closed at once.
CONNECTIONS_MAX = 1_024
#: What is read of a connection before it is known whether it is for a WebSocket.
HEAD_BYTES_MAX = 16_384
HEAD_TIMEOUT_S = 10
CHUNK_BYTES = 65_536
DIAL_TIMEOUT_S = 2
HEALTH_INTERVAL_S = 0.5
HEALTH_TIMEOUT_S = 2


class Backend:
    """A node, and what its last answer to `/health` says."""

    def __init__(self, name, port):
        self.name, self.port = name, port
        self.is_alive = self.is_ready = False

    async def check(self):
        """Returns whether the state has changed."""
        before = (self.is_alive, self.is_ready)
        try:
            status, body = await asyncio.wait_for(request(self.port, "GET", "/health"), HEALTH_TIMEOUT_S)
            self.is_alive = status == 200
            self.is_ready = self.is_alive and json.loads(body).get("cluster", {}).get("ready", True)
        except (OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            self.is_alive = self.is_ready = False
        return before != (self.is_alive, self.is_ready)


class Balancer:
    def __init__(self, backends, changed):
        self.backends, self.changed = backends, changed
        self.connections, self.turns, self.server, self.checks = set(), {True: 0, False: 0}, None, []

    async def start(self, port):
        self.checks = [asyncio.create_task(self.check(backend)) for backend in self.backends]
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", port, limit=HEAD_BYTES_MAX)

    async def stop(self):
        if self.server:
            self.server.close()
        tasks = self.checks + list(self.connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def check(self, backend):
        while True:
            if await backend.check():
                self.changed()
            await asyncio.sleep(HEALTH_INTERVAL_S)

    async def serve(self, reader, writer):
        task = asyncio.current_task()
        try:
            if len(self.connections) < CONNECTIONS_MAX:
                self.connections.add(task)
                await self.pass_on(reader, writer)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # either side has ended
        except asyncio.CancelledError:
            pass  # the balancer stops
        finally:
            self.connections.discard(task)
            writer.close()

    async def pass_on(self, reader, writer):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_TIMEOUT_S)
        # WebSockets have turns of their own: two pages, with their requests for files, go to two nodes.
        is_websocket = b"\r\nupgrade: websocket" in head.lower()
        for backend in self.candidates(is_websocket):
            try:
                dialed = asyncio.open_connection("127.0.0.1", backend.port)
                node_reader, node_writer = await asyncio.wait_for(dialed, DIAL_TIMEOUT_S)
                break
            except (OSError, asyncio.TimeoutError):
                continue
        else:
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        try:
            node_writer.write(head)
            await join_streams((reader, node_writer), (node_reader, writer))
        finally:
            node_writer.close()

    def candidates(self, is_websocket):
        """The nodes in the order in which they are tried."""
        ready = [each for each in self.backends if each.is_ready]
        usable = ready or [each for each in self.backends if each.is_alive]
        if not usable:
            return []
        self.turns[is_websocket] += 1
        first = self.turns[is_websocket] % len(usable)
        return usable[first:] + usable[:first]


async def join_streams(*pairs):
    """Copies in both directions until one of them ends."""
    copies = [asyncio.create_task(copy(reader, writer)) for reader, writer in pairs]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in copies:
            each.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def copy(reader, writer):
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()


async def request(port, method, path, body=b"", headers=()):
    """One HTTP request to a node. Returns the status and the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=HEAD_BYTES_MAX)
    try:
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers)
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n{fields}\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        answer = await reader.read(HEAD_BYTES_MAX)
        while not reader.at_eof() and len(answer) < HEAD_BYTES_MAX:
            answer += await reader.read(HEAD_BYTES_MAX)
        top, _, content = answer.partition(b"\r\n\r\n")
        return int(top.split()[1]), content
    except IndexError:
        raise OSError("no HTTP answer") from None
    finally:
        writer.close()
