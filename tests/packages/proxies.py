#!/usr/bin/env python3
"""Connects clients through the proxies of packaging/, in a separate network namespace.

    proxies.py BINARY

nginx and Caddy run with the unchanged files, except that nginx.conf is included in an `http` block with a generated
certificate, and Caddy creates its certificate itself instead of requesting it from an authority. Clients connect over TLS
from several addresses of 127.0.0.0/8.
"""

import base64
import http.client
import json
import os
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "process"))

from process import Failed, Process  # noqa: E402

PACKAGING = HERE.parent.parent / "packaging"
NAME = "realtime.example.com"
KEY = "proxies-key"
DEADLINE_S = 60
STEP_S = 20
CONFIG = {
    "http_server": {"address": "127.0.0.1", "port": 8000, "trusted_proxies": ["127.0.0.1"]},
    "http_api": {"key": KEY},
    "health": {"enabled": True},
    "prometheus": {"enabled": True},
    "http_stream": {"enabled": True},
    "sse": {"enabled": True},
    "client": {
        "allowed_origins": ["https://app.example.com"],
        "allow_anonymous_connect_without_token": True,
        "address_connection_limit": 2,
    },
    "channel": {
        "namespaces": [
            {"name": "news", "allow_subscribe_for_client": True, "allow_subscribe_for_anonymous": True}
        ]
    },
}


def expect(what, got, wanted):
    if got != wanted:
        raise Failed(f"{what}: {got!r}, expected {wanted!r}")


def until(what, condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"not within {DEADLINE_S} s: {what}")
        time.sleep(0.05)  # between two checks of the condition


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), STEP_S).close()
        return True
    except OSError:
        return False


@contextmanager
def running(folder, command, environment=None):
    """A process that is terminated at the end."""
    process = Process(command, folder / f"{Path(command[0]).name}.log")
    process.environment = environment or {}
    process.start()
    try:
        yield process
    except BaseException:
        sys.stderr.write(process.last_log(4_000))
        raise
    finally:
        process.terminate()


class Client:
    """A request over TLS from one address. Its response can be read by lines or by frames."""

    def __init__(self, source, head, body=b""):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        raw = socket.create_connection(("127.0.0.1", 443), STEP_S, (source, 0))
        self.socket = context.wrap_socket(raw, server_hostname=NAME)
        self.socket.sendall(f"{head}Host: {NAME}\r\n\r\n".encode() + body)
        self.read = self.socket.makefile("rb")
        self.lines = b""
        self.status = int(self.read.readline().split()[1])
        self.headers = http.client.parse_headers(self.read)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.read.close()
        self.socket.close()

    def chunk(self):
        size = int(self.read.readline(), 16)
        data = self.read.read(size)
        self.read.readline()
        return data

    def reply(self):
        """The next line of a stream of JSON. A proxy may send a line in several chunks, or several lines in one."""
        while b"\n" not in self.lines:
            chunk = self.chunk()
            if not chunk:
                raise Failed(f"the stream ended after {self.lines!r}")
            self.lines += chunk
        line, self.lines = self.lines.split(b"\n", 1)
        return json.loads(line)

    def frame(self):
        head = self.read.read(2)
        length = head[1] & 0x7F
        if length == 126:
            length = int.from_bytes(self.read.read(2), "big")
        return self.read.read(length)

    def send(self, command):
        payload = json.dumps(command).encode()
        length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
        self.socket.sendall(b"\x81" + length + bytes(4) + payload)


def websocket(source, extra=""):
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    return Client(
        source,
        "GET /connection/websocket HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\nOrigin: https://app.example.com\r\n{extra}",
    )


def publish(text):
    body = json.dumps({"channel": "news:1", "data": {"text": text}}).encode()
    request = urllib.request.Request("http://127.0.0.1:8000/api/publish", body, {"X-API-Key": KEY})
    expect("publish", json.load(urllib.request.urlopen(request, timeout=STEP_S)), {"result": {}})


def play_websocket():
    with websocket("127.0.0.2") as client:
        expect("WebSocket", client.status, 101)
        client.send({"id": 1, "connect": {}})
        expect("connect", json.loads(client.frame())["id"], 1)
        client.send({"id": 2, "subscribe": {"channel": "news:1"}})
        expect("subscribe", json.loads(client.frame())["id"], 2)
        publish("over WebSocket")
        expect("push", json.loads(client.frame())["push"]["pub"]["data"], {"text": "over WebSocket"})


def play_stream():
    """The reply must arrive while the stream is open: no proxy may buffer it."""
    body = json.dumps({"id": 1, "connect": {"subs": {}}}).encode()
    head = f"POST /connection/http_stream HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with Client("127.0.0.2", head, body) as client:
        expect("HTTP stream", client.status, 200)
        reply = client.reply()
        command = json.dumps({"id": 2, "subscribe": {"channel": "news:1"}})
        sent = json.dumps({"session": reply["connect"]["session"], "node": reply["connect"]["node"], "data": command}).encode()
        head = f"POST /emulation HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(sent)}\r\n"
        with Client("127.0.0.2", head, sent) as emulation:
            expect("emulation", emulation.status, 204)
        expect("subscribe", client.reply()["id"], 2)
        publish("over a stream")
        expect("push", client.reply()["push"]["pub"]["data"], {"text": "over a stream"})


def play_events():
    query = "cf_connect=%7B%22id%22%3A1%2C%22connect%22%3A%7B%7D%7D"
    with Client("127.0.0.2", f"GET /connection/sse?{query} HTTP/1.1\r\nAccept: text/event-stream\r\n") as client:
        expect("server-sent events", client.status, 200)
        seen = b""
        while b"data: " not in seen or not seen.endswith(b"\n\n"):
            seen += client.chunk()


def play_addresses():
    """Limits apply to the client's real address, whatever it sends in X-Forwarded-For."""
    spoofed = iter(range(1, 255))

    def come(source):
        return websocket(source, f"X-Forwarded-For: 192.0.2.{next(spoofed)}\r\n")

    with come("127.0.0.3") as first, come("127.0.0.3") as second, come("127.0.0.3") as third:
        expect("sessions of an address", [first.status, second.status, third.status], [101, 101, 429])
        with come("127.0.0.4") as other:
            expect("a session of another address", other.status, 101)


def play_closed_paths():
    for path in ["/api/info", "/metrics", "/health", "/"]:
        with Client("127.0.0.2", f"GET {path} HTTP/1.1\r\n") as client:
            expect(path, client.status, 404)


def nginx(folder):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={NAME}"]
        + ["-keyout", folder / "key", "-out", folder / "crt"],
        check=True,
        capture_output=True,
    )
    site = (PACKAGING / "nginx.conf").read_text("utf-8").replace(f"/etc/ssl/private/{NAME}.", f"{folder}/")
    places = "".join(f"{name}_temp_path {folder}/{name};\n" for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    whole = f"daemon off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{places}{site}}}\n"
    (folder / "nginx.conf").write_text(whole, "utf-8")
    return ["/usr/sbin/nginx", "-e", "stderr", "-c", str(folder / "nginx.conf")], {}


def caddy(folder):
    site = (PACKAGING / "Caddyfile").read_text("utf-8")
    (folder / "Caddyfile").write_text("{\n\tlocal_certs\n\tskip_install_trust\n\tadmin off\n}\n" + site, "utf-8")
    places = {name: str(folder) for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"]}
    return ["/usr/bin/caddy", "run", "--config", str(folder / "Caddyfile")], places


def through(binary, make):
    with tempfile.TemporaryDirectory(prefix="dunlin-proxies-") as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
        command, environment = make(folder)
        with running(folder, [binary, "serve", "-c", folder / "config.json"]) as server:
            server.wait_for_health(8000)
            with running(folder, command, environment):
                until("the proxy answers", lambda: answers(443))
                until("the proxy has a certificate", has_certificate)
                for play in [play_websocket, play_stream, play_events, play_addresses, play_closed_paths]:
                    play()
                    print(f"{make.__name__}: {play.__name__.removeprefix('play_')}")


def has_certificate():
    try:
        with Client("127.0.0.2", "GET / HTTP/1.1\r\n"):
            return True
    except (ssl.SSLError, OSError, IndexError):
        return False


def main():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    binary = os.path.abspath(sys.argv[1])
    for make in [nginx, caddy]:
        through(binary, make)


if __name__ == "__main__":
    main()
