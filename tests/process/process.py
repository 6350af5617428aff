"""Processes of the tests: how every test in Python starts a server, waits for it and ends it."""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

#: Deadline of all waits. On an idle machine, each takes less than a second.
TIMEOUT_S = 60


class Failed(Exception):
    """The reaction of the tested program differs from the expected one."""


class Process:
    """Consecutive processes of a program with one log."""

    def __init__(self, command, log):
        self.command, self.log = command, Path(log)
        #: Variables of the next process, beside those of the test without the server's.
        self.environment = {}
        #: Further arguments of `subprocess.Popen`.
        self.options = {}
        self.process = None

    def spawn(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in self.command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                **{"env": own_environment() | self.environment} | self.options,
            )

    def start(self):
        self.spawn()

    def is_alive(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def terminate(self):
        """Ends the process with SIGTERM and returns its exit status."""
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"not stopped {TIMEOUT_S} s after SIGTERM") from None

    def stop(self):
        """Ends the process with SIGTERM and expects success."""
        if code := self.terminate():
            raise Failed(f"ended with {code} after SIGTERM, or before: {self.last_log()}")

    def end(self):
        """Ends the process in any state."""
        if self.process and self.is_alive():
            self.kill()

    def last_log(self, size=3_000):
        return self.log.read_text("utf-8", "replace")[-size:]

    def wait_for_health(self, port, host="127.0.0.1"):
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and self.is_alive():
            try:
                if request(port, "GET", "/health", host=host)[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.01)  # between two attempts; /health determines the result
        ended = "" if self.is_alive() else f"; it ended with {self.process.poll()}"
        raise Failed(f"the server did not start{ended}: {self.last_log()}")


class Server(Process):
    """Consecutive processes of a server on the same folder, where its configuration and its log are."""

    def __init__(self, binary, folder, config):
        self.binary, self.folder = str(Path(binary).resolve()), Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config_path = self.folder / "server.json"
        super().__init__([self.binary, "serve", "-c", self.config_path], self.folder / "log")
        self.config, self.host, self.port = config, "127.0.0.1", None

    def configure(self):
        """The configuration of the next process, which has a new port, so that no client of the previous one reaches it."""
        self.port = free_port()
        table = self.config.get("http_server", {})
        return self.config | {"http_server": table | {"address": self.host, "port": self.port}}

    def spawn(self):
        self.config_path.write_text(json.dumps(self.configure()), "utf-8")
        super().spawn()

    def start(self):
        self.spawn()
        self.wait_until_healthy()

    def wait_until_healthy(self):
        self.wait_for_health(self.port, self.host)

    def get(self, path, port=None):
        status, body, _ = request(port or self.port, "GET", path, host=self.host)
        return status, body.decode()

    def health(self):
        return self.get("/health")


def own_environment():
    """Without variables of the server, which reads them as configuration, and rejects unknown ones."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("DUNLIN_", "OTEL_"))}


def request(port, method, path, body=b"", headers=None, host="127.0.0.1", timeout_s=TIMEOUT_S):
    """The status, the body and the headers of a response."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


#: Linux takes ports of outgoing connections from 32768 on. No outgoing connection takes one of these between its choice and its use.
PORTS = range(10_000, 32_768)


def free_port() -> int:
    """DUNLIN_TEST_PORTS=FIRST-LAST restricts the ports to a range, whose first free one is taken."""
    given = os.environ.get("DUNLIN_TEST_PORTS")
    first, last = map(int, given.split("-")) if given else (PORTS.start, PORTS.stop - 1)
    # Other tests choose at the same time.
    for port in range(first, last + 1) if given else random.sample(PORTS, 100):
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
