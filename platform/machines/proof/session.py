"""A client of Dunlin that stays connected, in the JSON protocol over a WebSocket, and remembers what happened to its connection."""

import base64
import json
import os
import socket
import ssl
import struct
import threading
import time

PATIENCE_S = 60
PAUSE_S = 0.2


class Session(threading.Thread):
    """Connects, subscribes to a channel, answers pings, and connects again when the connection ends."""

    def __init__(self, address, host, authority, channel):
        super().__init__(daemon=True)
        self.address, self.host, self.channel = address, host, channel
        self.context = ssl.create_default_context(cafile=authority)
        self.messages = self.pings = self.connections = 0
        self.away_s, self.reasons = [], []
        self.since = None  # of the connection that is open
        self.is_ending = False
        self.start()

    def run(self):
        left = None
        while not self.is_ending:
            try:
                with self.connect() as stream:
                    self.send(stream, {"id": 1, "connect": {}})
                    self.send(stream, {"id": 2, "subscribe": {"channel": self.channel}})
                    self.listen(stream, left)
            except (OSError, EOFError, ValueError) as error:
                self.reasons.append(str(error))
            if self.since:
                left, self.since = time.monotonic(), None
            time.sleep(PAUSE_S)  # between two tries

    def connect(self):
        plain = socket.create_connection((self.address, 443), PATIENCE_S)
        stream = self.context.wrap_socket(plain, server_hostname=self.host)
        key = base64.b64encode(os.urandom(16)).decode()
        stream.sendall(
            f"GET /connection/websocket HTTP/1.1\r\nHost: {self.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.read(stream, 1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise ValueError(head.split(b"\r\n")[0].decode())
        return stream

    @staticmethod
    def read(stream, count):
        data = b""
        while len(data) < count:
            part = stream.recv(count - len(data))
            if not part:
                raise EOFError("the connection ended")
            data += part
        return data

    @staticmethod
    def send(stream, command):
        text = json.dumps(command).encode()
        mask = os.urandom(4)
        length = struct.pack("!B", 0x80 | len(text)) if len(text) < 126 else struct.pack("!BH", 0x80 | 126, len(text))
        stream.sendall(b"\x81" + length + mask + bytes(byte ^ mask[place % 4] for place, byte in enumerate(text)))

    def listen(self, stream, left):
        while True:
            first, length = self.read(stream, 2)
            if length == 126:
                (length,) = struct.unpack("!H", self.read(stream, 2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self.read(stream, 8))
            data = self.read(stream, length)
            if first & 15 == 8:
                raise EOFError(f"closed: {struct.unpack('!H', data[:2])[0] if data else ''} {data[2:].decode()}")
            for line in data.decode().splitlines():
                reply = json.loads(line)
                if "error" in reply:
                    raise ValueError(f"{reply['error']}")
                if not reply:
                    self.pings += 1
                    self.send(stream, {})
                elif "subscribe" in reply:
                    self.since = time.monotonic()
                    self.connections += 1
                    if left:
                        self.away_s.append(self.since - left)
                else:
                    self.messages += 1

    def age_s(self):
        return time.monotonic() - self.since if self.since else 0
