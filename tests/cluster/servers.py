"""NATS servers and nodes of a cluster, each a separate process on the loopback interface."""

import errno
import http.client
import json
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "crash"), str(HERE.parent / "process"), str(HERE.parent / "hostile")]

from network import command_in, run  # noqa: E402
from process import TIMEOUT_S, Failed, Process, Server, free_port, request  # noqa: E402
from storage_node import Api  # noqa: E402, F401

NATS_VERSION = "2.15.2"
#: A replica that was away for long catches up in parts.
STEP_TIMEOUT_S = 180
#: Maximum lag of a replica in sync, caused by messages in flight.
LAG_MAX = 500
#: Suffix of the name of the stream of leases.
LEASE = "_LEASE"


def nats_binary():
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "dunlin" / f"nats-server-{NATS_VERSION}" / "nats-server"


class NatsServer(Process):
    """Consecutive processes of one server on the same folder."""

    def __init__(self, folder, index, place, route_port, routes, program=None):
        self.config = folder / f"nats-{index}.conf"
        command = command_in(place.namespace, [program or nats_binary(), "-c", self.config])
        super().__init__(command, folder / f"nats-{index}.log")
        self.index, self.place, self.store = index, place, folder / f"nats-{index}"
        self.name, host, port, self.monitor_port = f"n{index}", place.host, place.port, free_port()
        cluster = f'cluster {{ name: test, listen: "{host}:{route_port}", routes: [{", ".join(routes)}] }}'
        self.config.write_text(
            (HERE / "nats.conf").read_text("utf-8")
            .replace("SERVER_NAME", self.name)
            .replace("HOST", host)
            .replace("MONITOR", str(self.monitor_port))
            .replace("PORT", str(port))
            .replace("STORE", str(self.store))
            + (f"\n{cluster}\n" if len(routes) > 1 else ""),
            "utf-8",
        )

    def streams(self):
        """The streams that this server reports, each with its leader and its other replicas."""
        found = json.loads(request(self.monitor_port, "GET", "/jsz?streams=true", host=self.place.host)[1])
        streams = [each for account in found.get("account_details", []) for each in account.get("stream_detail", [])]
        return {each["name"]: each.get("cluster", {}) for each in streams}

    def is_listening(self):
        try:
            socket.create_connection((self.place.host, self.place.port), 1).close()
        except OSError:
            return False
        return True

    def stop(self):
        """Shuts the server down, which hands over its streams."""
        self.terminate()

    def wait_until_current(self):
        """Waits until the server has caught up with the others, so that a second server may be stopped."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                if request(self.monitor_port, "GET", "/healthz", host=self.place.host)[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass  # it is starting
            time.sleep(0.05)  # between two checks
        raise Failed(f"{self.name} is not current in {TIMEOUT_S} s")

    def has_small_disk(self, size):
        """Stores its streams on a separate disk. Requires a mount namespace."""
        self.store.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(self.store))

    def fill_disk(self):
        with open(self.store / "filler", "wb") as filler:
            free = os.statvfs(self.store)
            try:
                os.posix_fallocate(filler.fileno(), 0, free.f_bavail * free.f_frsize)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def empty_disk(self):
        (self.store / "filler").unlink()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


class Node(Server):
    """A node of the cluster."""

    def __init__(self, binary, folder, name, urls, replicas, place):
        super().__init__(binary, folder / name, json.loads((HERE / "server.json").read_text("utf-8")))
        self.command = command_in(place.namespace, self.command)
        self.host, self.place = place.host, place
        self.config["node"] = {"name": name}
        self.config["broker"]["nats"] = {"url": urls, "jetstream": {"replicas": replicas}}
        self.name = name

    def is_ready(self):
        """Whether the node can use the cluster. None while `/health` and the metrics differ."""
        status, body = self.health()
        if status != 200:
            raise Failed(f"{self.name}: /health is answered with {status}")
        said = json.loads(body).get("cluster", {}).get("ready", True)
        metric = f"dunlin_cluster_ready {int(said)}" in self.get("/metrics")[1].splitlines()
        return said if metric else None

    def leases(self):
        """Whether the node holds its lease, the number of leases that others hold, and the number that it has taken."""
        names = ["lease_held", "leases_elsewhere", "leases_taken_total"]
        samples = dict(line.rsplit(" ", 1) for line in self.get("/metrics")[1].splitlines() if line[:1] != "#")
        return tuple(int(samples[f"dunlin_cluster_{name}"]) for name in names)

    def stop(self):
        """Shuts the node down. Its exit status may tell that NATS was away."""
        self.terminate()

    def begin_stop(self):
        self.process.send_signal(signal.SIGTERM)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


@dataclass
class Place:
    """The address of a process: on the machine's loopback interface, or in a namespace."""

    host: str = "127.0.0.1"
    port: int = 0
    namespace: str = ""


class Cluster:
    """NATS servers, and nodes that use them. With a network, each has a separate address."""

    def __init__(self, binary, folder, server_count, node_count, network=None, nats=None):
        self.network = network

        def place(name):
            return Place(network.add(name), free_port(), name) if network else Place(port=free_port())

        places, routes = [place(f"n{index}") for index in range(server_count)], [free_port() for _ in range(server_count)]
        urls = [f"nats://{each.host}:{route}" for each, route in zip(places, routes)]
        self.servers = [
            NatsServer(folder, index, each, route, urls, nats) for index, (each, route) in enumerate(zip(places, routes))
        ]
        addresses = ",".join(f"nats://{each.host}:{each.port}" for each in places)
        replicas = 3 if server_count >= 3 else 1
        self.nodes = []
        for index in range(node_count):
            name = f"node-{index}"
            self.nodes.append(Node(binary, folder, name, addresses, replicas, place(name)))

    def start(self):
        for server in self.servers:
            server.start()
        # The first node creates the streams.
        for node in self.nodes:
            node.start()

    def end(self):
        for process in self.nodes + self.servers:
            process.end()

    def wait_for_readiness(self, is_ready):
        """Waits until all nodes report that they can use the cluster, or that they cannot."""
        what = "all nodes are ready" if is_ready else "no node is ready"
        self.wait_until(what, lambda: all(node.is_ready() is is_ready for node in self.nodes))

    def leader_in_step(self, of_leases=False):
        """The leader of a stream of publications, or of the stream of leases, whose other replicas are in sync, so that the stream
        tolerates a failure. None if there is no such stream."""
        for server in self.servers:
            for name, stream in server.streams().items():
                if name.endswith(LEASE) != of_leases:
                    continue
                copies = stream.get("replicas") or []
                in_step = [each for each in copies if each.get("current") and each.get("lag", 0) <= LAG_MAX]
                if stream.get("leader") == server.name and len(in_step) == len(self.servers) - 1:
                    return server
        return None

    def wait_until_in_step(self, of_leases=False):
        """Returns the leader of a stream of publications, or of the stream of leases."""
        leaders = []

        def is_in_step():
            leaders[:] = [self.leader_in_step(of_leases)]
            return leaders[0] is not None

        self.wait_until("all copies of the stream are in step", is_in_step, STEP_TIMEOUT_S)
        return leaders[0]

    def wait_until(self, what, is_so, timeout_s=TIMEOUT_S):
        deadline = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > deadline:
                raise Failed(f"not in {timeout_s} s: {what}")
            time.sleep(0.05)  # between two checks
