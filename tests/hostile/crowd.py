"""Many clients in one thread: each reacts according to its kind whenever its socket is ready."""

import errno
import json
import selectors
import socket
import time

from node import Failed
from wire import Frames, client_frame, handshake

#: Client addresses, enough that no address runs out of ports.
SOURCES = [f"127.0.0.{last}" for last in range(2, 12)]
CONNECTS_AT_A_TIME = 250


class Client:
    """One connection. Kinds of clients override its methods."""

    receive_bytes = None

    def __init__(self, server, number):
        self.server, self.number = server, number
        self.socket, self.head, self.frames, self.closed = None, b"", Frames(), None

    def hello(self):
        """The bytes to send once the connection is established."""
        return handshake(self.server.port)

    def opened(self):
        """Called after the handshake response."""

    def frame(self, opcode, payload):
        """Called for each frame."""

    def wants_to_read(self):
        return True

    def send(self, payload, opcode=1):
        self.socket.sendall(client_frame(opcode, payload))

    def say(self, *commands):
        self.send("\n".join(map(json.dumps, commands)).encode())

    def read(self):
        """Processes received bytes; returns false when the connection has ended."""
        read = self.socket.recv(65_536)
        if not read:
            return False
        if self.head is not None:
            self.head += read
            if b"\r\n\r\n" not in self.head:
                return True
            head, read = self.head.split(b"\r\n\r\n", 1)
            if not head.startswith(b"HTTP/1.1 101 "):
                self.closed = int(head[9:12])
                return False
            self.head = None
            self.opened()
        for opcode, payload in self.frames.take(read):
            if opcode == 8:
                self.closed = int.from_bytes(payload[:2], "big")
            else:
                self.frame(opcode, payload)
        return True


class Crowd:
    """Clients, and the loop that serves them."""

    def __init__(self, clients):
        self.clients, self.selector = clients, selectors.DefaultSelector()
        self.to_connect, self.connecting, self.over = list(reversed(clients)), 0, 0

    def turn(self, timeout_s=0.05):
        while self.to_connect and self.connecting < CONNECTS_AT_A_TIME:
            self.connect(self.to_connect.pop())
        for key, events in self.selector.select(timeout_s):
            client = key.data
            try:
                if events & selectors.EVENT_WRITE:
                    self.stands(client)
                elif client.wants_to_read() and not client.read():
                    self.end(client)
            except (ConnectionResetError, BrokenPipeError):
                self.end(client)

    def connect(self, client):
        client.socket = socket.socket()
        client.socket.setblocking(False)
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if client.receive_bytes:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, client.receive_bytes)
        client.socket.bind((SOURCES[client.number % len(SOURCES)], 0))
        if client.socket.connect_ex(("127.0.0.1", client.server.port)) not in (0, errno.EINPROGRESS):
            raise Failed("the server takes no connection")
        self.selector.register(client.socket, selectors.EVENT_WRITE, client)
        self.connecting += 1

    def stands(self, client):
        failure = client.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            raise Failed(f"no connection: {errno.errorcode.get(failure, failure)}")
        self.connecting -= 1
        self.selector.modify(client.socket, selectors.EVENT_READ, client)
        client.socket.send(client.hello())

    def end(self, client):
        self.selector.unregister(client.socket)
        client.socket.close()
        client.socket = None
        self.over += 1

    def until(self, what, condition, timeout_s, each_turn=lambda: None):
        """Serves the clients until `condition`."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise Failed(f"not in {timeout_s} s: {what}")
            self.turn()
            each_turn()

    def drop(self):
        """Closes all connections at once and drops their state."""
        for client in self.clients:
            if client.socket:
                self.end(client)
            client.head, client.frames = b"", Frames()
        self.to_connect, self.connecting, self.over = list(reversed(self.clients)), 0, 0
