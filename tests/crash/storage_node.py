"""A server with a storage in a directory that outlives its process."""

import http.client
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "process"), str(HERE.parent / "hostile")]

from process import TIMEOUT_S, Failed, Server, free_port  # noqa: E402

API_KEY = "crash-api-key"
HISTORY_PAGE = 2_000


class Api:
    """The API on one connection."""

    def __init__(self, port, host="127.0.0.1"):
        self.connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)

    def ask(self, method, body):
        """Sends a request. Returns the result or the protocol error. Raises `OSError` or `HTTPException` if the connection breaks."""
        self.connection.request("POST", f"/api/{method}", json.dumps(body), {"X-API-Key": API_KEY})
        response = self.connection.getresponse()
        answer = response.read()
        if response.status != 200:
            return {"error": {"code": response.status, "message": answer[:200].decode("utf-8", "replace")}}
        return json.loads(answer)

    def history(self, channel):
        """Epoch, top offset and all publications as offset and data, page by page."""
        found, since = [], None
        while True:
            body = {"channel": channel, "limit": HISTORY_PAGE} | ({"since": since} if since else {})
            answer = self.ask("history", body)
            if "error" in answer:
                raise Failed(f"the history of {channel} is answered with {answer['error']}")
            page = answer["result"]
            publications = page.get("publications", [])
            found += [(each["offset"], each["data"]) for each in publications]
            if len(publications) < HISTORY_PAGE:
                return page["epoch"], page.get("offset", 0), found
            since = {"offset": found[-1][0], "epoch": page["epoch"]}

    def close(self):
        self.connection.close()


class StorageNode(Server):
    """Consecutive processes of a server on the same folder and storage."""

    def __init__(self, binary, folder, storage=None, settings=None):
        super().__init__(binary, folder, json.loads((HERE / "server.json").read_text("utf-8")))
        self.storage = Path(storage or self.folder / "storage")
        #: Settings of the next start, in addition to the file's.
        self.settings = settings or {}
        #: Operators' paths are on the internal port, if there is one.
        self.has_internal_port, self.internal_port = False, None

    def configure(self):
        config = super().configure()
        config["storage"] = config["storage"] | {"path": str(self.storage)}
        if self.has_internal_port:
            self.internal_port = config["http_server"]["internal_port"] = free_port()
        for name, value in self.settings.items():
            config[name] = config.get(name, {}) | value if isinstance(value, dict) else value
        return config

    def wait_until_healthy(self):
        self.wait_for_health(self.internal_port or self.port, self.host)

    def health(self):
        return self.get("/health", self.internal_port)

    def kill_after(self, seconds):
        """Kills the process after this time. Fails if it has ended before."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return self.kill()
        raise Failed(f"the server ended with {code} by itself: {self.last_log()}")
