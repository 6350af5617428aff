"""Publishers and subscribers that remember unacknowledged publications, and continue after a crash as an SDK would."""

import http.client
import json
import socket
import threading
import time
from collections import deque

from storage_node import TIMEOUT_S, Api, Failed

from wire import Frames, client_frame, handshake

BROKEN = (OSError, http.client.HTTPException)
PADDING_BYTES_MAX = 400
BATCH_MAX = 8
#: The number of acknowledged publications that a publisher remembers. It resends some of them after a restart. The server
#: remembers 400 idempotency keys per channel, more than all publishers of the channel remember.
ANSWERED_MAX, SENT_AGAIN = 60, 4
#: The number of all publications that a publisher remembers under load.
SENT_TWICE_PART = 0.1
#: A subscriber that reconnects on purpose does so after this many publications.
RESTLESS_AFTER = 40


class Publisher:
    """Publishes into channels, one request after the other. `kind`:

    plain       no resends
    keyed       with an idempotency key; resends unacknowledged publications, and occasionally acknowledged ones
    twins       two concurrent publications with the same key
    versioned   with a version, in a separate channel; resends unacknowledged publications
    batch       several plain ones in a request
    """

    def __init__(self, name, kind, channels, world, random):
        self.name, self.kind, self.channels = name, kind, channels
        self.world, self.random = world, random
        self.number = 0
        #: Published data by id, in the order of publishing.
        self.unanswered, self.answered = [], deque(maxlen=ANSWERED_MAX)

    def publish_until_broken(self, port):
        api = Api(port)
        try:
            while not self.world.is_over:
                self.publish_some(api)
        except BROKEN:
            pass
        finally:
            api.close()

    def publish_some(self, api):
        if self.kind == "keyed" and self.answered and self.random.random() < SENT_TWICE_PART:
            identity, body = self.random.choice(self.answered)
            self.take(identity, body, api.ask("publish", body), "acked")
            return
        if self.kind == "batch":
            new = [self.new() for _ in range(self.random.randint(1, BATCH_MAX))]
        elif self.kind == "twins":
            new = [self.new()] * 2
        else:
            new = [self.new()]
        self.unanswered = list(dict(new).items())
        for identity, body in self.unanswered:
            self.world.record("sent", identity, body["channel"])
        if len(new) == 1:
            replies = [api.ask("publish", new[0][1])]
        else:
            commands = [{"publish": body} for _, body in new]
            answer = api.ask("batch", {"commands": commands, "parallel": self.kind == "twins"})
            replies = answer.get("replies", [answer] * len(new))
            replies = [reply if "error" in reply else {"result": reply["publish"]} for reply in replies]
        for (identity, body), reply in zip(new, replies):
            self.take(identity, body, reply, "acked")

    def new(self):
        self.number += 1
        identity = f"{self.name}/{self.number}"
        data = {"id": identity, "padding": "x" * self.random.randint(0, PADDING_BYTES_MAX)}
        body = {"channel": self.random.choice(self.channels), "data": data}
        if self.kind in ("keyed", "twins"):
            body["idempotency_key"] = identity
        if self.kind == "versioned":
            body["version"] = self.number
        return identity, body

    def take(self, identity, body, reply, how):
        if "error" in reply:
            self.world.refused(identity, reply["error"])
            return False
        position = reply["result"]
        self.world.record(how, identity, body["channel"], position["offset"], position["epoch"])
        self.unanswered = [(open_identity, rest) for open_identity, rest in self.unanswered if open_identity != identity]
        self.answered.append((identity, body))
        return True

    def send_again(self, port):
        """The unacknowledged publications, and some acknowledged ones, as if their replies had been lost."""
        if self.kind not in ("keyed", "twins", "versioned"):
            self.unanswered = []
            return
        known = self.random.sample(list(self.answered), min(len(self.answered), SENT_AGAIN))
        again = known + self.unanswered
        api = Api(port)
        try:
            for identity, body in again:
                self.world.record("sent", identity, body["channel"])
                how = "passed" if self.kind == "versioned" else "acked"
                if not self.take(identity, body, api.ask("publish", body), how):
                    raise Failed(f"{identity} is refused when it is sent again")
        finally:
            api.close()


class Subscriber:
    """A connection that is subscribed to channels, and keeps a position in each."""

    def __init__(self, name, channels, world, positions=None, is_restless=False):
        self.name, self.channels, self.world = name, channels, world
        #: Epoch and offset by channel.
        self.positions = positions or {}
        self.is_restless = is_restless
        self.subscribed, self.socket, self.is_leaving = set(), None, False

    def run(self, port):
        """Connects, and reconnects after disconnecting on purpose, until the server closes the connection."""
        while self.session(port) and not self.is_leaving:
            pass

    def session(self, port):
        """Runs one connection. Returns whether it disconnected on purpose."""
        self.subscribed = set()
        try:
            self.socket = self.connect(port)
            frames, seen = Frames(), 0
            with self.socket:
                while not self.is_leaving:
                    read = self.socket.recv(65_536)
                    if not read:
                        return False
                    for opcode, payload in frames.take(read):
                        if opcode == 8:
                            return False
                        seen += sum(self.take(json.loads(line)) for line in payload.decode().split("\n") if line)
                    if self.is_restless and seen >= RESTLESS_AFTER:
                        return True
        except OSError:
            return False
        finally:
            self.subscribed = set()
        return True

    def connect(self, port):
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
                break
            except OSError:
                if time.monotonic() > deadline or self.world.is_over:
                    raise
                time.sleep(0.01)  # between two attempts; the server is starting
        connection.sendall(handshake(port))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            read = connection.recv(4_096)
            if not read:
                raise OSError("no handshake")
            head += read
        commands = [{"id": 1, "connect": {}}]
        for number, channel in enumerate(self.channels):
            subscribe = {"channel": channel}
            if channel in self.positions:
                epoch, offset = self.positions[channel]
                subscribe |= {"recover": True, "epoch": epoch, "offset": offset}
            commands.append({"id": 2 + number, "subscribe": subscribe})
        connection.sendall(client_frame(1, "\n".join(map(json.dumps, commands)).encode()))
        return connection

    def take(self, message):
        """Number of publications."""
        if not message:
            self.socket.sendall(client_frame(1, b"{}"))
        elif "error" in message:
            self.world.refused(self.name, message["error"])
            self.is_leaving = True
        elif "subscribe" in message:
            return self.resume(self.channels[message["id"] - 2], message["subscribe"])
        elif "push" in message:
            push = message["push"]
            if "pub" in push:
                self.see(push["channel"], push["pub"])
                return 1
            if "disconnect" not in push:
                self.world.refused(self.name, push)
        return 0

    def resume(self, channel, reply):
        asked, has_recovered = self.positions.get(channel), reply.get("recovered", False)
        offset = asked[1] if asked and has_recovered else reply.get("offset", 0)
        publications = reply.get("publications", [])
        self.world.record("resumed", self.name, channel, asked, reply["epoch"], offset, has_recovered)
        self.positions[channel] = reply["epoch"], offset
        for publication in publications:
            self.see(channel, publication)
        self.subscribed.add(channel)
        return len(publications)

    def see(self, channel, publication):
        offset = publication["offset"]
        self.world.record("seen", self.name, channel, offset, publication["data"]["id"])
        self.positions[channel] = self.positions[channel][0], offset

    def has_seen(self, tops):
        """Whether it is subscribed to all its channels and has received all publications up to these offsets."""
        return all(
            channel in self.subscribed and self.positions[channel][1] >= tops[channel] for channel in self.channels
        )

    def leave(self):
        self.is_leaving = True
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class World:
    """The state that all publishers and subscribers share."""

    def __init__(self):
        self.records, self.errors = [], []
        self.acknowledged, self.changed = 0, threading.Condition()
        self.is_over = False

    def record(self, *record):
        self.records.append(record)
        if record[0] == "acked":
            with self.changed:
                self.acknowledged += 1
                self.changed.notify_all()

    def refused(self, who, error):
        self.errors.append((who, error))

    def wait_for_acknowledgements(self, count, timeout_s):
        with self.changed:
            if not self.changed.wait_for(lambda: self.acknowledged >= count, timeout_s):
                raise Failed(f"{self.acknowledged} of {count} publications acknowledged in {timeout_s} s")


class Threads:
    """Threads with a deadline. `join` raises the exception of a thread that failed."""

    def __init__(self):
        self.threads, self.failures = [], []

    def start(self, function, *arguments):
        thread = threading.Thread(target=self.guarded, args=(function, *arguments), daemon=True)
        self.threads.append(thread)
        thread.start()

    def guarded(self, function, *arguments):
        try:
            function(*arguments)
        except Exception as failure:  # noqa: BLE001, passed on
            self.failures.append(failure)

    def join(self, what, timeout_s):
        deadline = time.monotonic() + timeout_s
        for thread in self.threads:
            thread.join(max(0, deadline - time.monotonic()))
            if thread.is_alive():
                raise Failed(f"not over in {timeout_s} s: {what}")
        self.threads = []
        if self.failures:
            raise self.failures[0]
