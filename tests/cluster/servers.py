"""NATS servers and nodes of a cluster, each a process of its own on the loopback interface."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "crash"), str(HERE.parent / "hostile")]

from node import Failed, free_port  # noqa: E402
from storage_node import Api, StorageNode  # noqa: E402, F401

NATS_VERSION = "2.15.2"
START_TIMEOUT_S = 60


def nats_binary():
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "dunlin" / f"nats-server-{NATS_VERSION}" / "nats-server"


class NatsServer:
    """Processes of one server, one after the other, on the same folder."""

    def __init__(self, folder, index, port, route_port, routes):
        self.index, self.port, self.process = index, port, None
        self.config, self.log = folder / f"nats-{index}.conf", folder / f"nats-{index}.log"
        cluster = f'cluster {{ name: test, listen: "127.0.0.1:{route_port}", routes: [{", ".join(routes)}] }}'
        self.config.write_text(
            (HERE / "nats.conf").read_text("utf-8")
            .replace("SERVER_NAME", f"n{index}")
            .replace("PORT", str(port))
            .replace("STORE", str(folder / f"nats-{index}"))
            + (f"\n{cluster}\n" if len(routes) > 1 else ""),
            "utf-8",
        )

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [nats_binary(), "-c", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


class Node(StorageNode):
    """A node of the cluster."""

    def __init__(self, binary, folder, name, urls, replicas):
        super().__init__(binary, folder / name)
        self.config = json.loads((HERE / "server.json").read_text("utf-8"))
        self.config["node"] = {"name": name}
        self.config["broker"]["nats"] = {"url": urls, "jetstream": {"replicas": replicas}}
        self.name = name

    def is_ready(self):
        """Whether it can use the cluster. None while `/health` and the metrics do not agree."""
        status, body = self.health()
        if status != 200:
            raise Failed(f"{self.name}: /health is answered with {status}")
        said = json.loads(body).get("cluster", {}).get("ready", True)
        metric = f"dunlin_cluster_ready {int(said)}" in self.get("/metrics")[1].splitlines()
        return said if metric else None

    def spawn(self):
        """Starts a process on another port, so that no client of the one before is taken for one of this."""
        self.port = self.config["http_server"]["port"] = free_port()
        path = self.folder / "server.json"
        path.write_text(json.dumps(self.config), "utf-8")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DUNLIN_")}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "serve", "-c", str(path)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            )


class Cluster:
    """So many NATS servers, and nodes that use them."""

    def __init__(self, binary, folder, server_count, node_count):
        ports, routes = ([free_port() for _ in range(server_count)] for _ in range(2))
        urls = [f"nats://127.0.0.1:{port}" for port in routes]
        self.servers = [
            NatsServer(folder, index, port, route, urls) for index, (port, route) in enumerate(zip(ports, routes))
        ]
        addresses = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
        replicas = 3 if server_count >= 3 else 1
        self.nodes = [Node(binary, folder, f"node-{index}", addresses, replicas) for index in range(node_count)]

    def start(self):
        for server in self.servers:
            server.start()
        # The first one makes the streams.
        for node in self.nodes:
            node.start()

    def end(self):
        for process in [each.process for each in self.nodes + self.servers]:
            if process and process.poll() is None:
                process.kill()
                process.wait()

    def wait_for_readiness(self, is_ready):
        """Waits until all nodes say that they can use the cluster, or that they cannot."""
        what = "all nodes are ready" if is_ready else "no node is ready"
        self.wait_until(what, lambda: all(node.is_ready() is is_ready for node in self.nodes))

    def wait_until(self, what, is_so, timeout_s=START_TIMEOUT_S):
        deadline = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > deadline:
                raise Failed(f"not in {timeout_s} s: {what}")
            time.sleep(0.05)  # between two looks
