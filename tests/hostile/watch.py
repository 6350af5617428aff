"""Well-behaved sessions that must receive every publication of a running stream while attacks take place."""

import http.client
import json
import selectors
import threading
import time

from node import ANSWER_TIMEOUT_S, Failed, within
from wire import Frames, client_frame, open_websocket, protobuf_fields, protobuf_replies

CHANNEL = "watched:stream"
PUBLISH_EVERY_S = 0.02
#: Number of sessions per encoding, enough that each shard has some.
SESSIONS_PER_ENCODING = 4


class Follower:
    """The publications that one session has received. Reports gaps, duplicates and the end of the connection."""

    def __init__(self, name):
        self.name, self.offset, self.seen, self.fault = name, None, 0, None

    def begin(self, offset):
        self.offset = offset

    def see(self, offset):
        if self.offset is not None and offset != self.offset + 1 and not self.fault:
            self.fault = f"{self.name}: offset {offset} came after {self.offset}"
        self.offset = offset
        self.seen += 1

    def ended(self, how):
        self.fault = self.fault or f"{self.name}: the session was ended: {how}"


class Watch:
    """Publishes into a channel and watches it with several sessions, on separate threads."""

    def __init__(self, server):
        self.server = server
        self.selector = selectors.DefaultSelector()
        self.followers, self.published, self.stopping, self.faults = [], 0, False, []
        self.slowest_s = 0
        for encoding in ("json", "protobuf"):
            for number in range(SESSIONS_PER_ENCODING):
                self.open(encoding, Follower(f"{encoding} watcher {number + 1}"))
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.follow, self.publish)]
        for thread in self.threads:
            thread.start()
        if not within(ANSWER_TIMEOUT_S, lambda: all(follower.seen for follower in self.followers)):
            raise Failed("the watchers get nothing")

    def open(self, encoding, follower):
        connection = open_websocket(self.server.port, encoding)
        session = (connection, Frames(), encoding, follower)
        if encoding == "json":
            commands = b'{"id":1,"connect":{}}\n{"id":2,"subscribe":{"channel":"%s"}}' % CHANNEL.encode()
            connection.sendall(client_frame(1, commands))
        else:
            channel = CHANNEL.encode()
            subscribe = b"\x08\x02\x2a" + bytes([len(channel) + 2]) + b"\x0a" + bytes([len(channel)]) + channel
            connection.sendall(client_frame(2, b"\x04\x08\x01\x22\x00" + bytes([len(subscribe)]) + subscribe))
        connection.setblocking(False)
        self.selector.register(connection, selectors.EVENT_READ, session)
        self.followers.append(follower)

    def publish(self):
        connection, headers = None, {"X-API-Key": self.server.key}
        while not self.stopping:
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=ANSWER_TIMEOUT_S)
                body = json.dumps({"channel": CHANNEL, "data": {"number": self.published}})
                began = time.monotonic()
                connection.request("POST", "/api/publish", body, headers)
                answer = json.loads(connection.getresponse().read())
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                if "result" not in answer:
                    raise Failed(f"answered with {answer}")
                self.published = answer["result"]["offset"]
            except (OSError, http.client.HTTPException, Failed, ValueError) as error:
                self.faults.append(f"the publisher: {error!r}")
                return
            time.sleep(PUBLISH_EVERY_S)  # the rate of the stream; no check depends on it

    def follow(self):
        while not self.stopping:
            for key, _ in self.selector.select(0.1):
                connection, frames, encoding, follower = key.data
                try:
                    read = connection.recv(65_536)
                    if not read:
                        raise Failed("without a word")
                    for opcode, payload in frames.take(read):
                        if opcode == 8:
                            raise Failed(repr(payload))
                        see = see_json if encoding == "json" else see_protobuf
                        see(connection, payload, follower)
                except (OSError, Failed) as error:
                    follower.ended(error)
                    self.selector.unregister(connection)

    def fault(self):
        """The disturbances so far, or None."""
        faults = [follower.fault for follower in self.followers if follower.fault]
        return "; ".join(self.faults + faults)

    def stop(self):
        """Ends the stream and returns the disturbances: None, if every watcher received all publications."""
        self.stopping = True
        for thread in self.threads:
            thread.join()
        self.stopping, last = False, self.published
        follow = threading.Thread(target=self.follow, daemon=True)
        follow.start()
        within(ANSWER_TIMEOUT_S, lambda: all(f.fault or f.offset == last for f in self.followers))
        self.stopping = True
        follow.join()
        behind = [f"{f.name}: at {f.offset}, not {last}" for f in self.followers if not f.fault and f.offset != last]
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        return "; ".join(filter(None, [self.fault(), *behind]))


def see_json(connection, payload, follower):
    for line in payload.split(b"\n"):
        reply = json.loads(line)
        if not reply:
            connection.sendall(client_frame(1, b"{}"))
        elif "error" in reply:
            raise Failed(repr(reply))
        elif "subscribe" in reply:
            follower.begin(reply["subscribe"].get("offset", 0))
        elif "pub" in reply.get("push", {}):
            follower.see(reply["push"]["pub"]["offset"])


def see_protobuf(connection, payload, follower):
    for reply in protobuf_replies(payload):
        if not reply:
            connection.sendall(client_frame(2, b"\0"))
        elif 2 in reply:
            raise Failed(repr(reply))
        elif 6 in reply:
            follower.begin(protobuf_fields(reply[6]).get(9, 0))
        elif 4 in reply and 4 in (push := protobuf_fields(reply[4])):
            follower.see(protobuf_fields(push[4])[6])
