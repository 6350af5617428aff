"""A store of backups outside of the cluster: the REST protocol of restic, in a folder."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LIST = "application/vnd.x.restic.rest.v2"
KINDS = {"data", "keys", "locks", "snapshots", "index"}
# Folders of the app, then a kind and a name, or `config`.
PATH = re.compile(r"/(?:[a-z0-9-]+/)*(?:[a-z]+/)?[a-f0-9]*(?:config)?")


class Store(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address, folder, only_adds=False):
        """A store that only adds removes nothing but locks, as rest-server with --append-only."""
        super().__init__(address, Handler)
        self.folder, self.only_adds = folder, only_adds
        folder.mkdir()
        self.url = f"rest:http://{address[0]}:{address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def size(self):
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def place(self):
        path = self.path.partition("?")[0]
        return self.server.folder / path.strip("/") if PATH.fullmatch(path) else None

    def answer(self, status, content=b"", **headers):
        self.send_response(status)
        for name, value in ({"Content_Length": len(content)} | headers).items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_POST(self):
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        place = self.place()
        if place is None or place.is_file():
            return self.answer(403)
        if "create=true" in self.path:
            for kind in KINDS:
                (place / kind).mkdir(parents=True, exist_ok=True)
            return self.answer(200)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(place.name + ".part")
        part.write_bytes(content)
        part.rename(place)
        return self.answer(200)

    def do_HEAD(self):
        place = self.place()
        if place is None or not place.is_file():
            return self.answer(404)
        return self.answer(200, Content_Length=place.stat().st_size)

    def do_GET(self):
        place = self.place()
        if place is not None and self.path.endswith("/") and place.name in KINDS:
            files = [{"name": path.name, "size": path.stat().st_size} for path in place.glob("*") if path.suffix != ".part"]
            return self.answer(200, json.dumps(files).encode(), Content_Type=LIST)
        if place is None or not place.is_file():
            return self.answer(404)
        content = place.read_bytes()
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not span:
            return self.answer(200, content)
        first, last = int(span[1]), int(span[2] or len(content) - 1)
        part = content[first : last + 1]
        return self.answer(206, part, Content_Range=f"bytes {first}-{first + len(part) - 1}/{len(content)}")

    def do_DELETE(self):
        place = self.place()
        if place is None or not place.is_file():
            return self.answer(404)
        if self.server.only_adds and place.parent.name != "locks":
            return self.answer(403)
        place.unlink()
        return self.answer(200)
