"""A server that takes profiles as Pyroscope's `/ingest` does: a stand-in, because Pyroscope's own server cannot be had here.

It is written against the Go module github.com/grafana/pyroscope/api v1.6.0 (`model/labelset`: the format of `name`) and the server's handler
of `/ingest` (`pkg/ingester/pyroscope/ingest_handler.go`): which parameters it reads, how, and with which status it refuses them.
"""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

#: As `labelset.IsLabelNameRuneAllowed` and `labelset.IsServiceNameRuneAllowed`.
LABEL_CHARS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")
NAME_CHARS = LABEL_CHARS | set("-./")
#: `max_profile_size_bytes` of the server, of the profile before compression.
PROFILE_BYTES_MAX = 4 << 20


class Refused(Exception):
    """What the server answers with status 400."""


def label_set(text):
    """The application and its labels: `labelset.Parse`."""
    state, key, value, labels = "name", "", "", {}
    for char in text + "{":
        if state == "name":
            if char == "{":
                state, name = "label", value.strip()
                if not name or not set(name) <= NAME_CHARS:
                    raise Refused(f"name: invalid service name {name!r}")
                labels["__name__"] = name
            else:
                value += char
        elif state == "label":
            if char == "}":
                state = "done"
            elif char == "=":
                state, value = "value", ""
            else:
                key += char
        elif state == "value":
            if char in ",}":
                state, key = "label", key.strip()
                if not key or (key != "__name__" and not set(key) <= LABEL_CHARS):
                    raise Refused(f"name: invalid label name {key!r}")
                labels[key], key = value.strip(), ""
            else:
                value += char
    return labels


class Push:
    """A profile that was pushed."""

    def __init__(self, path, headers, body):
        parameters = {name: values[-1] for name, values in parse_qs(urlsplit(path).query).items()}
        self.labels = label_set(parameters.get("name", ""))
        if parameters.get("format") != "pprof":
            raise Refused("only pprof is taken here")
        self.from_s, self.until_s = int(parameters["from"]), int(parameters["until"])
        self.spy, self.rate = parameters["spyName"], int(parameters["sampleRate"])
        self.headers = {name.lower(): value for name, value in headers.items()}
        # The server takes both.
        self.pprof = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
        if len(self.pprof) > PROFILE_BYTES_MAX:
            raise Refused("profile is too large")
        self.is_heap = b"inuse_space" in self.pprof


class Pyroscope:
    """The server. `status` is what it answers; while `gate` is not set, it answers nothing."""

    def __init__(self):
        self.pushes, self.refusals, self.requests, self.status, self.is_closed = [], [], 0, 200, False
        self.gate = threading.Event()
        self.gate.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                status, text = outer.take(self.path, self.headers, body)
                if outer.is_closed:
                    self.close_connection = True
                    return
                try:
                    self.send_response(status)
                    self.send_header("content-length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
                except OSError:
                    # The node has not waited for it.
                    self.close_connection = True

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path, headers, body):
        self.requests += 1
        if urlsplit(path).path != "/below/ingest":
            return 404, b"not found"
        self.gate.wait()
        if self.status != 200:
            return self.status, b"broken by the test"
        try:
            self.pushes.append(Push(path, headers, body))
        except (Refused, KeyError, ValueError, OSError) as refused:
            self.refusals.append(repr(refused))
            return 400, repr(refused).encode()
        return 200, b""

    def close(self):
        """Nothing listens on the port any more, and connections end."""
        self.is_closed = True
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()
