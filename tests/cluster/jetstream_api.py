"""Requests to the JetStream API of a NATS server."""

import base64
import json
import secrets
import socket

#: Requests under way at a time, and the time that their answers may take.
PIPELINED, ANSWER_TIMEOUT_S = 200, 30


class Connection:
    """A connection to a server, with an inbox of its own."""

    def __init__(self, host, port, timeout_s=ANSWER_TIMEOUT_S):
        self.inbox = f"_INBOX.{secrets.token_hex(8)}"
        self.connection = socket.create_connection((host, port), timeout=min(timeout_s, 10))
        self.connection.settimeout(timeout_s)
        self.stream = self.connection.makefile("rb")
        options = {"verbose": False, "headers": True, "no_responders": True}
        self.connection.sendall(f"CONNECT {json.dumps(options)}\r\nSUB {self.inbox}.* 1\r\n".encode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()
        self.connection.close()

    def send(self, subject, number, body=None):
        payload = json.dumps(body).encode() if body is not None else b""
        head = f"PUB $JS.API.{subject} {self.inbox}.{number} {len(payload)}\r\n"
        self.connection.sendall(head.encode() + payload + b"\r\n")

    def answers(self):
        """The number of each request, and its answer as an object; None if nobody answers."""
        for line in self.stream:
            words = line.split()
            if not words:
                continue
            if words[0] == b"PING":
                self.connection.sendall(b"PONG\r\n")
            elif words[0] in (b"MSG", b"HMSG"):
                number, body = int(words[1].rsplit(b".", 1)[1]), self.stream.read(int(words[-1]))
                yield number, json.loads(body) if words[0] == b"MSG" else None  # the status of nobody

    def ask(self, subject, body=None):
        self.send(subject, 0, body)
        return next(self.answers(), (0, None))[1]


def ask(host, port, subject, body=None, timeout_s=ANSWER_TIMEOUT_S):
    """The answer of JetStream as an object. None if nobody answers."""
    with Connection(host, port, timeout_s) as connection:
        return connection.ask(subject, body)


def stored_in(host, port, stream):
    """All messages that the leader of a stream has: sequence → (subject, data, headers). None if the stream is gone or has no leader."""
    with Connection(host, port) as connection:
        info = connection.ask(f"STREAM.INFO.{stream}")
        if not info or "state" not in info:
            return None
        found, numbers = {}, list(range(max(1, info["state"]["first_seq"]), info["state"]["last_seq"] + 1))
        for at in range(0, len(numbers), PIPELINED):
            part = numbers[at : at + PIPELINED]
            for number in part:
                connection.send(f"STREAM.MSG.GET.{stream}", number, {"seq": number})
            for _, (number, answer) in zip(part, connection.answers()):
                if not answer:
                    return None
                if message := answer.get("message"):
                    found[number] = message["subject"], *(base64.b64decode(message.get(part, "")) for part in ("data", "hdrs"))
        return found
