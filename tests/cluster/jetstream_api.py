"""Requests to the JetStream API of a NATS server."""

import json
import secrets
import socket


def ask(host, port, subject, body=None):
    """The answer of JetStream as an object. None if nobody answers."""
    inbox = f"_INBOX.{secrets.token_hex(8)}"
    payload = json.dumps(body).encode() if body is not None else b""
    with socket.create_connection((host, port), timeout=10) as connection:
        stream = connection.makefile("rb")
        options = {"verbose": False, "headers": True, "no_responders": True}
        connection.sendall(
            f"CONNECT {json.dumps(options)}\r\nSUB {inbox} 1\r\n".encode()
            + f"PUB $JS.API.{subject} {inbox} {len(payload)}\r\n".encode() + payload + b"\r\n"
        )
        for line in stream:
            words = line.split()
            if words[0] == b"PING":
                connection.sendall(b"PONG\r\n")
            elif words[0] == b"HMSG":
                return None  # the status of nobody
            elif words[0] == b"MSG":
                return json.loads(stream.read(int(words[-1])))
    return None
