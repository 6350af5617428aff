"""A server with a storage in a directory that outlives its process."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "hostile"))

from node import Failed, free_port  # noqa: E402

#: Deadline of all waits. On an idle machine, each takes less than a second.
START_TIMEOUT_S = 60
ANSWER_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
API_KEY = "crash-api-key"
HISTORY_PAGE = 2_000


class Api:
    """The API on one connection."""

    def __init__(self, port, host="127.0.0.1"):
        self.connection = http.client.HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)

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


class StorageNode:
    """Consecutive processes of a server on the same folder."""

    def __init__(self, binary, folder, storage=None, settings=None):
        self.binary, self.folder = str(Path(binary).resolve()), Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.storage = Path(storage or self.folder / "storage")
        #: Settings of the next start, in addition to the file's.
        self.settings = settings or {}
        self.environment = {}
        #: Operators' paths are on the internal port, if there is one.
        self.has_internal_port, self.internal_port = False, None
        self.host, self.port, self.process, self.log = "127.0.0.1", None, None, self.folder / "log"

    def spawn(self):
        """Starts a process on a new port, so that no client of the previous process reaches this one."""
        config = json.loads((HERE / "server.json").read_text("utf-8"))
        self.port = config["http_server"]["port"] = free_port()
        config["storage"]["path"] = str(self.storage)
        if self.has_internal_port:
            self.internal_port = config["http_server"]["internal_port"] = free_port()
        for name, value in self.settings.items():
            config[name] = config.get(name, {}) | value if isinstance(value, dict) else value
        path = self.folder / "server.json"
        path.write_text(json.dumps(config), "utf-8")
        # The server reads such variables as configuration, and rejects unknown ones.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DUNLIN_")}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "serve", "-c", str(path)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment | self.environment,
            )

    def start(self):
        self.spawn()
        self.wait_until_healthy()

    def wait_until_healthy(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.health()[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)  # between two attempts; /health determines the result
        raise Failed(f"the server did not start; it ended with {self.process.poll()}: {self.last_log()}")

    def health(self):
        return self.get("/health", self.internal_port)

    def get(self, path, port=None):
        connection = http.client.HTTPConnection(self.host, port or self.port, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def kill_after(self, seconds):
        """Kills the process after this time. Fails if it has ended before."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return self.kill()
        raise Failed(f"the server ended with {code} by itself: {self.last_log()}")

    def stop(self):
        """Stops the process with SIGTERM and expects success."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"not stopped {STOP_TIMEOUT_S} s after SIGTERM") from None
        if code != 0:
            raise Failed(f"the server ended with {code} after SIGTERM: {self.last_log()}")

    def end(self):
        """Ends the process in any state."""
        if self.process and self.process.poll() is None:
            self.kill()

    def last_log(self):
        return self.log.read_text("utf-8", "replace")[-3_000:]
