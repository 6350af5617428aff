"""Clients of the client protocol over WebSocket, which read as a test says."""

import base64
import hashlib
import hmac
import json
import secrets
import socket
import ssl
import struct
import threading

from process import Failed

TIMEOUT_S = 30


def token(secret, user, channels=()):
    """A connection token, with server-side subscriptions to `channels`."""
    claims = {"sub": user} | ({"channels": list(channels)} if channels else {})
    encoded = lambda part: base64.urlsafe_b64encode(part).rstrip(b"=")
    parts = [encoded(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims)]
    signed = b".".join(parts)
    return (signed + b"." + encoded(hmac.new(secret.encode(), signed, hashlib.sha256).digest())).decode()


class Client:
    """A session. After `connect` and `subscribe`, nothing is read until `read`."""

    def __init__(self, port, host="127.0.0.1", receive_buffer=None, has_tls=False, headers=()):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect((host, port))
        if has_tls:
            self.socket = ssl._create_unverified_context().wrap_socket(self.socket)
        self.last_id, self.received, self.is_closed = 0, b"", threading.Event()
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        self.socket.sendall(
            f"GET /connection/websocket HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            f"{''.join(f'{name}: {value}{chr(13)}{chr(10)}' for name, value in headers)}\r\n".encode()
        )
        while b"\r\n\r\n" not in self.received:
            self.receive()
        head, _, self.received = self.received.partition(b"\r\n\r\n")
        if b" 101 " not in head:
            raise Failed(f"no WebSocket: {head!r}")

    def connect(self, given_token=""):
        self.id = self.command({"connect": {"token": given_token} if given_token else {}})["connect"]["client"]
        return self

    def begin_connect(self, given_token):
        """Does not wait for the reply."""
        self.send(json.dumps({"id": 1, "connect": {"token": given_token}}).encode())

    def subscribe(self, *channels):
        for channel in channels:
            self.command({"subscribe": {"channel": channel}})
        return self

    def command(self, command):
        self.last_id += 1
        self.send(json.dumps({"id": self.last_id, **command}).encode())
        while True:
            for line in self.message().split(b"\n"):
                answer = json.loads(line)
                if answer.get("id") == self.last_id:
                    if "error" in answer:
                        raise Failed(f"the session got {answer}")
                    return answer

    def message(self):
        head = self.exactly(2)
        length = head[1] & 0x7F
        if length == 126:
            length = struct.unpack(">H", self.exactly(2))[0]
        elif length == 127:
            length = struct.unpack(">Q", self.exactly(8))[0]
        return self.exactly(length)

    def exactly(self, count):
        while len(self.received) < count:
            self.receive()
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    def receive(self):
        read = self.socket.recv(65_536)
        if not read:
            raise Failed("the session's connection ended")
        self.received += read

    def send(self, payload):
        length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack(">H", len(payload))
        # A zero mask is valid.
        self.socket.sendall(b"\x81" + length + bytes(4) + payload)

    def read(self, bytes_per_second=None):
        """Reads on in a thread, and drops what it reads."""
        threading.Thread(target=self.read_on, args=(bytes_per_second,), daemon=True).start()
        return self

    def send_on(self, payload):
        """Sends the same message again and again in a thread, until it is closed."""
        threading.Thread(target=self.repeat, args=(payload,), daemon=True).start()

    def repeat(self, payload):
        try:
            while not self.is_closed.is_set():
                self.send(payload)
        except OSError:
            pass

    def read_on(self, bytes_per_second):
        try:
            while self.socket.recv(65_536 if bytes_per_second is None else bytes_per_second // 50):
                if bytes_per_second:
                    self.is_closed.wait(1 / 50)
        except OSError:
            pass

    def close(self):
        self.is_closed.set()
        self.socket.close()
