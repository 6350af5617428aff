"""Plays one row of the table to a server.

    {"name": TEXT, "why": TEXT, ..., "expect": {...}}

A row describes the sent bytes in one of these ways:

    "head": {"line": TEXT, "set": {FIELD: VALUE or null}, "add": [LINE, ...], "raw": CONTENT, "then": CONTENT}
        a WebSocket handshake and its changes; "raw" replaces all of it, "then" follows it
    "send": CONTENT             bytes after a good handshake
    "say": [MESSAGE, ...]       messages of the client protocol after a good `connect`, each a frame; an object is JSON
        "encoding": "protobuf"  instead of JSON
        "connect": false        without the `connect`, or another one instead of {}
        "opcode": KIND          of the frames
    "http": {"method", "path", "key", "fields": {...}, "body": CONTENT, "raw": CONTENT}
        "kept": true            on a connection that has already carried a request and its response

and how they are sent: "each": {NAME: [VALUE, ...] or {"from": N, "to": N}} plays the row once for every value. "pieces": "bytes"
sends one byte at a time, and "cuts" plays the row once for every position at which the bytes can be split. "hang_up": true
shuts down our side after the bytes; "receive_bytes": N limits the kernel's receive buffer. "may_be_cut": true: the server
reads only a part of our bytes after the close frame, so the kernel may drop its messages before we read them.

The expected response ("expect"):

    {"status": N}               of the HTTP response; "field": [NAME, VALUE] in its head, "text" in its body
    {"close": N}                the code of a close frame; "reason": TEXT
    {"closed": true}            a close frame without a code
    {"ended": true}             nothing, and the end of the connection
    {"error": N}                the command with the id 2, or "id": N, is answered with this error, and the session lives
    {"reply": JSON}             it is answered with this reply, with "$any" for any value; the session lives
    {"lives": true}             nothing is closed: a ping sent afterwards is answered
"""

import json
import socket

import content
from node import ANSWER_TIMEOUT_S, Failed
from wire import Frames, client_frame, protobuf_fields, protobuf_replies

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
PATH = "/connection/websocket"
PING = b"still there?"


def play(server, row) -> int:
    """Plays a row. Returns the number of sent inputs."""
    inputs = 0
    for names in variants(row.get("each", {})):
        filled = content.fill({key: row[key] for key in row if key != "each"}, names)
        sent, before = build(server, filled)
        for pieces in cut(sent, row.get("pieces")):
            inputs += 1
            try:
                play_once(server, filled, before, pieces)
            except (Failed, OSError, ValueError, IndexError) as failure:
                told = f" with {names}" if names else ""
                told += f", cut behind {len(pieces[0])} bytes" if row.get("pieces") == "cuts" else ""
                raise Failed(f"{failure}{told}") from None
    return inputs


def variants(each):
    found = [{}]
    for name, values in each.items():
        if isinstance(values, dict):
            values = range(values["from"], values["to"] + 1)
        found = [{**names, name: value} for names in found for value in values]
    return found


def cut(sent, how):
    if how == "bytes":
        return [[sent[at : at + 1] for at in range(len(sent))]]
    if how == "cuts":
        return [[sent[:at], sent[at:]] for at in range(1, len(sent))]
    return [[sent]]


def build(server, row):
    """The bytes of the row, and the valid bytes before them."""
    if "head" in row:
        return head(row["head"]), b""
    if "http" in row:
        return request(server, row["http"]), b""
    encoding = row.get("encoding", "json")
    opened = head({"line": f"GET {PATH}?format=protobuf HTTP/1.1"} if encoding == "protobuf" else {})
    if "send" in row:
        return content.content(row["send"]), opened
    connect = row.get("connect", True)
    messages = [] if connect is False else [connect_message(encoding, {} if connect is True else connect)]
    before = b"".join(client_frame(2 if encoding == "protobuf" else 1, message) for message in messages)
    opcode = content.KINDS[row.get("opcode", "binary" if encoding == "protobuf" else "text")]
    return b"".join(client_frame(opcode, said(message)) for message in row["say"]), opened + before


def connect_message(encoding, connect):
    if encoding == "protobuf":
        return content.content({"pb1": [[1, 1], [4, [[1, {"token": connect["token"]}]] if connect else []]]})
    fields = {"token": {"$token": connect["token"]}} if connect else {}
    return content.content({"json": {"id": 1, "connect": fields}})


def said(message):
    is_content = isinstance(message, (str, list)) or (
        isinstance(message, dict) and len(set(message) & {"hex", "repeat", "frame", "pb", "pb1", "json"}) > 0
    )
    return content.content(message if is_content else {"json": message})


def head(parts):
    if "raw" in parts:
        return content.content(parts["raw"])
    fields = {
        "Host": "dunlin.example",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": KEY,
        **parts.get("set", {}),
    }
    lines = [content.content(parts.get("line", f"GET {PATH} HTTP/1.1"))]
    lines += [f"{name}: ".encode() + content.content(value) for name, value in fields.items() if value is not None]
    lines += [content.content(line) for line in parts.get("add", [])]
    return b"\r\n".join(lines) + b"\r\n\r\n" + content.content(parts.get("then", ""))


def request(server, parts):
    if "raw" in parts:
        return content.content(parts["raw"])
    body = content.content(parts.get("body", ""))
    fields = {"Host": "dunlin.example", "Content-Length": str(len(body)), "Connection": "close"}
    if parts.get("key", True):
        fields["X-API-Key"] = server.key
    fields.update(parts.get("fields", {}))
    lines = [content.content(parts.get("line", f"{parts.get('method', 'POST')} {parts['path']} HTTP/1.1"))]
    lines += [f"{name}: ".encode() + content.content(value) for name, value in fields.items() if value is not None]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def play_once(server, row, before, pieces):
    expect = row["expect"]
    with socket.socket() as connection:
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if "receive_bytes" in row:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, row["receive_bytes"])
        connection.connect(("127.0.0.1", server.port))
        answer = Answer(connection)
        if row.get("http", {}).get("kept"):
            answer.keep()
        lives = not {"status", "close", "closed", "ended"} & set(expect) and row.get("ping", True)
        if len(pieces) == 1:
            pieces = [before + pieces[0] + (client_frame(9, PING) if lives else b"")]
        else:
            pieces = [before, *pieces] + ([client_frame(9, PING)] if lives else [])
        for piece in pieces:
            try:
                connection.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                break  # the earlier messages may still be in the kernel's buffer
        if row.get("hang_up"):
            connection.shutdown(socket.SHUT_WR)
        if "status" in expect:
            return answer.check_status(expect)
        if "head" not in row or "then" in row["head"]:
            answer.check_status({"status": 101})
        check_session(answer, row, expect)


def check_session(answer, row, expect):
    if expect.get("ended"):
        frames = answer.frames_until_end()
        return same([f for f in frames if f[0] == 8], [])
    if "close" in expect or "closed" in expect:
        frames = answer.frames_until_end()
        closes = [payload for opcode, payload in frames if opcode == 8]
        got = [(int.from_bytes(payload[:2], "big") or None, payload[2:].decode()) for payload in closes]
        if row.get("may_be_cut") and not got and len(frames) < row["send"]["times"]:
            return None
        want = (expect.get("close"), expect.get("reason", got[0][1] if got else ""))
        return same(got, [want], frames)
    wanted = None if "lives" in expect else expect.get("id", 2)
    reply = answer.reply_and_pong(row, wanted)
    if "lives" in expect:
        return None
    if "error" in expect:
        return same(reply.get("error", {}).get("code"), expect["error"], reply)
    return same(fits(reply, expect["reply"]), True, reply)


def decoded(row, payload):
    if row.get("encoding") != "protobuf":
        return [json.loads(line) for line in payload.split(b"\n")]
    replies = []
    for fields in protobuf_replies(payload):
        reply = {"id": fields.get(1, 0)}
        if 2 in fields:
            reply["error"] = {"code": protobuf_fields(fields[2]).get(1)}
        replies.append(reply)
    return replies


def fits(got, want):
    if want == "$any":
        return True
    if isinstance(want, dict):
        return isinstance(got, dict) and got.keys() == want.keys() and all(fits(got[k], want[k]) for k in want)
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(map(fits, got, want))
    return type(got) is type(want) and got == want


def same(got, want, whole=None):
    if got != want:
        told = f" in {str(whole)[:300]}" if whole is not None else ""
        raise Failed(f"got {str(got)[:300]}, not {want}{told}")


class Answer:
    """Reads the server's messages from a socket."""

    def __init__(self, connection):
        self.connection, self.rest = connection, b""

    def more(self):
        try:
            read = self.connection.recv(65_536)
        except ConnectionResetError:
            # The server closed the connection without reading all our bytes.
            read = b""
        except TimeoutError:
            raise Failed(f"nothing came for {ANSWER_TIMEOUT_S} s after {self.rest[-200:]!r}") from None
        self.rest += read
        return len(read) > 0

    def check_status(self, expect):
        while b"\r\n\r\n" not in self.rest:
            if not self.more():
                raise Failed(f"the connection ended after {self.rest[:200]!r}, not with status {expect['status']}")
        whole, self.rest = self.rest.split(b"\r\n\r\n", 1)
        line, *lines = whole.decode("latin-1").split("\r\n")
        same(int(line.split(" ")[1]), expect["status"], line)
        if "field" in expect:
            name, value = expect["field"]
            got = [text.split(": ", 1)[1] for text in lines if text.lower().startswith(name.lower() + ":")]
            same(got, [value], lines)
        if expect["status"] != 101 and expect.get("ends", True):
            while self.more():
                pass
            if expect.get("text") is not None and expect["text"].encode() not in self.rest:
                raise Failed(f"{expect['text']!r} is not in {self.rest[:300]!r}")

    def keep(self):
        """A request and its response, after which the connection stays open."""
        self.connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: dunlin.example\r\n\r\n")
        while b"404 page not found\n" not in self.rest:
            if not self.more():
                raise Failed(f"the connection ended after {self.rest[:200]!r}, not with status 404")
        same(self.rest[:12], b"HTTP/1.1 404")
        self.rest = b""

    def frames_until_end(self):
        while self.more():
            pass
        return Frames().take(self.rest)

    def reply_and_pong(self, row, wanted):
        """The last reply with the id `wanted`, after it and the pong have arrived."""
        reader, pong, reply = Frames(), False, None
        while True:
            found = reader.take(self.rest)
            self.rest = b""
            for opcode, payload in found:
                if opcode == 8:
                    raise Failed(f"the session was closed: {payload!r}")
                pong = pong or (opcode, payload) == (10, PING)
                if opcode in (1, 2):
                    replies = [r for r in decoded(row, payload) if r.get("id") == wanted]
                    reply = replies[-1] if replies else reply
            if pong and (reply or wanted is None):
                return reply
            if not self.more():
                raise Failed(f"the connection ended after {found[-3:]}")
