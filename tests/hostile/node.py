"""A server process, and the resources that it uses."""

import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "process"))

from process import Failed, Server, request, within  # noqa: E402, F401

ANSWER_TIMEOUT_S = 10


def registered_sockets(ring: Path) -> int:
    """The number of sockets in the table of a ring's registered files, which the kernel lists unless the ring is busy."""
    for _ in range(1000):
        _, listed, files = ring.read_text().partition("UserFiles:")
        if listed:
            return files.partition("UserBufs:")[0].count("socket:")
    raise Failed(f"the kernel does not list the registered files in {ring}")


class Node(Server):
    """A server in a folder of its own, which ends with it."""

    def __init__(self, binary, reactor=None, settings=None):
        self.temporary = tempfile.TemporaryDirectory(prefix="dunlin-hostile-")
        config = json.loads((HERE / "server.json").read_text("utf-8"))
        self.key = config["http_api"]["key"]
        for path, value in (settings or {}).items():
            value = value.replace("{folder}", self.temporary.name) if isinstance(value, str) else value
            table = config
            *tables, name = path.split(".")
            for part in tables:
                table = table[int(part)] if isinstance(table, list) else table.setdefault(part, {})
            table[name] = value
        super().__init__(binary, self.temporary.name, config)
        self.command += ["--reactor", reactor] if reactor else []

    def __enter__(self):
        try:
            self.start()
        except Failed:
            self.__exit__(Failed)
            raise
        return self

    def __exit__(self, error, *_):
        try:
            if error:
                sys.stderr.write(self.last_log(10_000))
                self.terminate()
            else:
                self.stop()
        finally:
            self.end()
            self.temporary.cleanup()

    def request(self, method, path, body, headers):
        return request(self.port, method, path, body, headers, timeout_s=ANSWER_TIMEOUT_S)

    def reactor(self) -> str:
        """The reactor of the server's shards, as the server reports it."""
        answer = self.request("POST", "/api/info", b"{}", {"X-API-Key": self.key})[1]
        return json.loads(answer)["result"]["nodes"][0].get("reactor", "a reactor it does not name")

    def memory_kib(self) -> int:
        """The private memory of the process."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
        raise Failed("the kernel says nothing about the server's memory")

    def files(self) -> int:
        """The number of open files, including sockets, also those in the tables of rings."""
        descriptors = Path(f"/proc/{self.process.pid}/fd")
        count = 0
        for number in os.listdir(descriptors):
            count += 1
            try:
                if "io_uring" in os.readlink(descriptors / number):
                    count += registered_sockets(descriptors.parent / "fdinfo" / number)
            except FileNotFoundError:
                pass
        return count
