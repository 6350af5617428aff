"""A server process, and the resources that it uses."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_TIMEOUT_S = 30
ANSWER_TIMEOUT_S = 10
STOP_TIMEOUT_S = 35


class Failed(Exception):
    """The server's reaction differs from the expected one."""


class Node:
    """A server on a free port."""

    def __init__(self, binary, reactor=None, settings=None):
        self.port = free_port()
        config = json.loads((HERE / "server.json").read_text("utf-8"))
        self.key = config["http_api"]["key"]
        config["http_server"]["port"] = self.port
        self.folder = tempfile.TemporaryDirectory(prefix="dunlin-hostile-")
        for path, value in (settings or {}).items():
            value = value.replace("{folder}", self.folder.name) if isinstance(value, str) else value
            table = config
            *tables, name = path.split(".")
            for part in tables:
                table = table[int(part)] if isinstance(table, list) else table.setdefault(part, {})
            table[name] = value
        path = Path(self.folder.name) / "server.json"
        path.write_text(json.dumps(config), "utf-8")
        self.log = open(Path(self.folder.name) / "log", "w+b")
        command = [binary, "serve", "-c", str(path)] + (["--reactor", reactor] if reactor else [])
        # The server reads such variables as configuration, and rejects unknown ones.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DUNLIN_")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environment
        )

    def __enter__(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.request("GET", "/health", b"", {})[0] == 200:
                    return self
            except OSError:
                time.sleep(0.02)  # between two attempts; /health determines the result
        self.__exit__(RuntimeError)
        sys.exit("the server did not start")

    def __exit__(self, error, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if error or self.process.returncode != 0:
            self.log.seek(0)
            sys.stderr.write(self.log.read()[-10_000:].decode("utf-8", "replace"))
        if not error and self.process.returncode != 0:
            raise Failed(f"the server ended with {self.process.returncode}")
        self.log.close()
        self.folder.cleanup()

    def request(self, method, path, body, headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read(), response.headers
        finally:
            connection.close()

    def reactor(self) -> str:
        """The reactor of the server's shards, as the server reports it."""
        answer = self.request("POST", "/api/info", b"{}", {"X-API-Key": self.key})[1]
        return json.loads(answer)["result"]["nodes"][0].get("reactor", "a reactor it does not name")

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def memory_kib(self) -> int:
        """The private memory of the process."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
        raise Failed("the kernel says nothing about the server's memory")

    def files(self) -> int:
        """The number of open files, including sockets."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def free_port() -> int:
    first, last = map(int, os.environ.get("DUNLIN_TEST_PORTS", "0-0").split("-"))
    for port in range(first, last + 1):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    sys.exit("no free port")


def within(seconds, condition, between_s=0.01):
    """Waits until `condition` returns a true value, and returns it; after the deadline, returns the last value."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found or time.monotonic() > deadline:
            return found
        time.sleep(between_s)  # between two checks of the condition
