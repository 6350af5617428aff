"""The parts of WebSocket and of the client protocol that the tests need."""

import base64
import secrets
import socket
import struct

from node import ANSWER_TIMEOUT_S, Failed


def handshake(port, encoding="json", path="/connection/websocket"):
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    query = "?format=protobuf" if encoding == "protobuf" else ""
    return (
        f"GET {path}{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    ).encode()


def open_websocket(port, encoding="json", source="127.0.0.1", host="127.0.0.1"):
    own = (source, 0) if host == "127.0.0.1" else None
    connection = socket.create_connection((host, port), ANSWER_TIMEOUT_S, own)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(handshake(port, encoding))
    head = b""
    # The server sends nothing after the head before our first message.
    while not head.endswith(b"\r\n\r\n"):
        read = connection.recv(4_096)
        if not read:
            raise Failed(f"no WebSocket: {head[:80]!r}")
        head += read
    if not head.startswith(b"HTTP/1.1 101 "):
        raise Failed(f"no WebSocket: {head[:80]!r}")
    return connection


def client_frame(opcode, payload):
    """A frame with a zero mask, which is valid."""
    length = len(payload)
    if length < 126:
        head = bytes([0x80 | length])
    elif length < 65_536:
        head = b"\xfe" + struct.pack(">H", length)
    else:
        head = b"\xff" + struct.pack(">Q", length)
    return bytes([0x80 | opcode]) + head + bytes(4) + payload


class Frames:
    """Splits a server's bytes into frames, however they arrive."""

    def __init__(self):
        self.bytes = bytearray()

    def take(self, read):
        """The complete frames: opcode and payload. A server's frames are complete messages without a mask."""
        self.bytes += read
        at, found = 0, []
        while (size := self.size(at)) and at + size[0] + size[1] <= len(self.bytes):
            head, length = size
            first = self.bytes[at]
            if first & 0xF0 != 0x80 or self.bytes[at + 1] & 0x80:
                raise Failed(f"the server sent a frame that begins with {bytes(self.bytes[at:at + 2]).hex()}")
            found.append((first & 0xF, bytes(self.bytes[at + head : at + head + length])))
            at += head + length
        del self.bytes[:at]
        return found

    def size(self, at):
        have = len(self.bytes) - at
        if have < 2:
            return None
        short = self.bytes[at + 1] & 0x7F
        if short < 126:
            return 2, short
        if short == 126:
            return (4, struct.unpack_from(">H", self.bytes, at + 2)[0]) if have >= 4 else None
        return (10, struct.unpack_from(">Q", self.bytes, at + 2)[0]) if have >= 10 else None


def read_varint(payload, at):
    number = shift = 0
    while True:
        byte = payload[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def protobuf_replies(payload):
    """The messages of a frame, each as its fields."""
    at = 0
    while at < len(payload):
        length, at = read_varint(payload, at)
        yield protobuf_fields(payload[at : at + length])
        at += length


def protobuf_fields(message):
    """The fields by number: varints as numbers, others as bytes. If a field occurs more than once, the last one."""
    fields, at = {}, 0
    while at < len(message):
        tag, at = read_varint(message, at)
        if tag & 7 == 0:
            fields[tag >> 3], at = read_varint(message, at)
        elif tag & 7 == 2:
            length, at = read_varint(message, at)
            fields[tag >> 3] = message[at : at + length]
            at += length
        else:
            raise Failed(f"a field of wire type {tag & 7}")
    return fields
