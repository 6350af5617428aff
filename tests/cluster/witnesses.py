"""Clients that write down what they are told of each channel, for the verdict on holes.

A `Stretch` is what a client knows of a channel without a break: it begins with a position, and goes on as long as each recovery
answers `recovered: true` in the same epoch. Whatever was published between its begin and the end that it has reached, it must have
heard.
"""

import http.client
import json
import threading
import time
from dataclasses import dataclass, field

from servers import Api, Failed

from wire import Frames, client_frame, open_websocket

BROKEN = (OSError, http.client.HTTPException, json.JSONDecodeError)
#: Temporary errors, and error 112 for a lost position.
TEMPORARY = {100, 111, 112, 503}
BATCH = 10
ANSWER_TIMEOUT_S = 60


@dataclass
class Stretch:
    """What a client knows of a channel from `begin` on. Times are of the clock `time.monotonic`."""

    client: str
    channel: str
    epoch: str
    begin: int
    end: int
    heard: dict = field(default_factory=dict)
    #: When a recovery that continued it was asked for, and from which offset.
    recoveries: list = field(default_factory=list)

    def hear(self, publication):
        offset = publication["offset"]
        if offset <= self.end and self.heard:
            raise Failed(f"{self.client}: {self.channel} goes back from {self.end} to {offset}")
        self.heard[offset] = publication["data"]["id"]
        self.end = max(self.end, offset)


class Records:
    """What all clients and publishers were told."""

    def __init__(self):
        self.lock = threading.Lock()
        self.stretches = []
        #: (channel, id) → (offset, when it was asked for, when it was acknowledged).
        self.acknowledged = {}
        self.refused = 0
        #: channel → [(when, epoch)], when a client was first told of an epoch.
        self.epochs = {}
        #: (when, channel, node), for each subscription that ended with 2500.
        self.ends = []

    def begin(self, client, channel, reply, begin):
        stretch = Stretch(client, channel, reply["epoch"], begin, begin)
        with self.lock:
            self.stretches.append(stretch)
            known = self.epochs.setdefault(channel, [])
            if all(epoch != stretch.epoch for _, epoch in known):
                known.append((time.monotonic(), stretch.epoch))
        return stretch

    def epoch_of(self, channel):
        with self.lock:
            return self.epochs[channel][-1][1]


class Publisher(threading.Thread):
    """Publishes batches at a fixed rate, each publication into the next channel."""

    def __init__(self, name, channels, per_second, world, pad):
        super().__init__(daemon=True)
        self.name, self.channels, self.per_second, self.world = name, channels, per_second, world
        self.number, self.pad = 0, "x" * pad

    def run(self):
        while not self.world.is_over:
            node = self.world.any_node()
            api = Api(node.port, node.host)
            try:
                while not self.world.is_quiet and node not in self.world.down:
                    began = time.monotonic()
                    self.publish(api)
                    time.sleep(max(0, BATCH / self.per_second - (time.monotonic() - began)))  # the rate
            except Failed as failure:
                self.world.fail(failure)
            except BROKEN:
                pass
            finally:
                api.close()
            time.sleep(0.02)  # the next node

    def publish(self, api):
        sent = []
        for _ in range(BATCH):
            self.number += 1
            sent.append((self.channels[self.number % len(self.channels)], f"{self.name}/{self.number}"))
        commands = [{"publish": {"channel": channel, "data": {"id": identity, "pad": self.pad}}} for channel, identity in sent]
        asked = time.monotonic()
        answer = api.ask("batch", {"commands": commands, "parallel": True})
        now = time.monotonic()
        if "error" in answer:
            raise OSError(str(answer))
        records, count = self.world.records, 0
        with records.lock:
            for (channel, identity), reply in zip(sent, answer["replies"]):
                if "publish" in reply:
                    records.acknowledged[channel, identity] = (reply["publish"]["offset"], asked, now)
                    count += 1
                elif reply["error"]["code"] in TEMPORARY:
                    records.refused += 1
                else:
                    raise Failed(f"{channel}: {reply['error']}")
        self.world.acknowledged(count)
        if count < len(sent):
            raise OSError("this node cannot publish now")


class Witness(threading.Thread):
    """A session with all channels. It stays at one node, or moves on when it is told to, and recovers."""

    def __init__(self, name, channels, world, node=None):
        super().__init__(daemon=True)
        self.name, self.channels, self.world, self.node = name, channels, world, node
        self.stretches, self.connection, self.asked, self.later, self.commands = {}, None, {}, [], 0

    def run(self):
        while not self.world.is_over:
            try:
                self.listen_at(self.node or self.world.any_node())
            except Failed as failure:
                # A node that was ending has not answered the handshake.
                if "no WebSocket" not in str(failure):
                    self.world.fail(failure)
                    return
            except BROKEN:
                pass
            time.sleep(0.02)  # the next node

    def leave(self):
        """Disconnects to continue elsewhere, as after a network failure."""
        try:
            self.connection.shutdown(2)
        except (OSError, AttributeError):
            pass  # it is already reconnecting

    def listen_at(self, node):
        self.connection = open_websocket(node.port, host=node.host)
        self.at = node.name
        try:
            self.connection.settimeout(0.25)
            self.commands, self.asked, self.later = 1, {}, []
            self.connection.sendall(client_frame(1, b'{"id":1,"connect":{}}'))
            for channel in self.channels:
                self.subscribe(channel)
            frames = Frames()
            while not self.world.is_over:
                try:
                    read = self.connection.recv(262_144)
                except TimeoutError:
                    read = None
                if read == b"":
                    raise OSError("the node has ended")
                for opcode, payload in frames.take(read or b""):
                    if opcode == 8:
                        raise OSError("closed")
                    for line in payload.decode().splitlines():
                        self.take(json.loads(line))
                while self.later and self.later[0][0] < time.monotonic():
                    self.subscribe(self.later.pop(0)[1])
        finally:
            self.connection.close()

    def subscribe(self, channel):
        self.commands += 1
        self.asked[self.commands] = (channel, time.monotonic())
        subscribe, stretch = {"channel": channel}, self.stretches.get(channel)
        if stretch:
            subscribe |= {"recover": True, "offset": stretch.end, "epoch": stretch.epoch}
        command = {"id": self.commands, "subscribe": subscribe}
        self.connection.sendall(client_frame(1, json.dumps(command).encode()))

    def take(self, message):
        push = message.get("push")
        if push and "pub" in push:
            self.stretches[push["channel"]].hear(push["pub"])
        elif push and "unsubscribe" in push:
            with self.world.records.lock:
                self.world.records.ends.append((time.monotonic(), push["channel"], self.at))
            self.subscribe(push["channel"])
        elif not message:
            self.connection.sendall(client_frame(1, b"{}"))
        elif "error" in message:
            if message["error"]["code"] not in TEMPORARY:
                raise Failed(f"{self.name}: {message['error']}")
            if message["id"] == 1:
                raise OSError("try again")
            self.later.append((time.monotonic() + 0.1, self.asked.pop(message["id"])[0]))
        elif "subscribe" in message:
            self.resume(*self.asked.pop(message["id"]), message["subscribe"])

    def resume(self, channel, asked, reply):
        stretch = self.stretches.get(channel)
        if stretch and reply.get("recovered"):
            if reply["epoch"] != stretch.epoch:
                raise Failed(f"{self.name}: {channel} recovered from {stretch.epoch} into {reply['epoch']}")
            stretch.recoveries.append((asked, stretch.end))
        else:
            begin = reply.get("offset", 0)
            if publications := reply.get("publications"):
                begin = publications[0]["offset"] - 1
            self.stretches[channel] = stretch = self.world.records.begin(self.name, channel, reply, begin)
            self.world.subscribed()
        for publication in reply.get("publications", []):
            stretch.hear(publication)
        stretch.end = max(stretch.end, reply.get("offset", 0))


def return_to(node, positions, world, name):
    """A client that was away comes back to a node with the position that it had in each channel: channel → (epoch, offset).
    Returns how many recovered, and the channels that did not."""
    connection, frames = open_websocket(node.port, host=node.host), Frames()
    connection.settimeout(ANSWER_TIMEOUT_S)
    asked, recovered, others = {}, 0, []

    def subscribe(channel):
        epoch, offset = positions[channel]
        asked[len(asked) + 2] = (channel, time.monotonic())
        subscribe = {"channel": channel, "recover": True, "offset": offset, "epoch": epoch}
        connection.sendall(client_frame(1, json.dumps({"id": len(asked) + 1, "subscribe": subscribe}).encode()))

    try:
        connection.sendall(client_frame(1, b'{"id":1,"connect":{}}'))
        for channel in positions:
            subscribe(channel)
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while recovered + len(others) < len(positions):
            read = connection.recv(262_144)
            if not read or time.monotonic() > deadline:
                raise OSError("no answer")
            for _, payload in frames.take(read):
                for line in payload.decode().splitlines():
                    message = json.loads(line)
                    if not message:
                        connection.sendall(client_frame(1, b"{}"))
                    elif message.get("id", 1) > 1:
                        channel, when = asked[message["id"]]
                        reply = message.get("subscribe")
                        if not reply:
                            if message["error"]["code"] not in TEMPORARY:
                                raise Failed(f"{name}: {message['error']}")
                            if message["error"]["code"] == 112:
                                others.append(channel)
                            else:
                                time.sleep(0.05)  # between two attempts
                                subscribe(channel)
                            continue
                        if not reply.get("recovered"):
                            others.append(channel)
                            continue
                        recovered += 1
                        epoch, offset = positions[channel]
                        if reply["epoch"] != epoch:
                            raise Failed(f"{name}: {channel} recovered from {epoch} into {reply['epoch']}")
                        stretch = world.records.begin(name, channel, reply, offset)
                        stretch.recoveries.append((when, offset))
                        for publication in reply.get("publications", []):
                            stretch.hear(publication)
                        stretch.end = max(stretch.end, reply.get("offset", 0))
    finally:
        connection.close()
    return recovered, others
