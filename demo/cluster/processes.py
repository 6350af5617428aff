"""The processes of a cluster on the loopback interface: NATS servers and nodes. A process that ends is started again."""

import asyncio
import ctypes
import json
import os
import random
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEMO_CONFIG = HERE.parent / "config.json"
NATS_VERSION = "2.15.2"

#: Below the range from which Linux takes ports of outgoing connections, so that nothing takes a port of a process that is down.
PORTS = range(20_000, 32_000)
NODE_STOP_TIMEOUT_S = 5
SERVER_STOP_TIMEOUT_S = 5


def nats_binary():
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "dunlin" / f"nats-server-{NATS_VERSION}" / "nats-server"


def free_port(taken):
    for port in random.sample(PORTS, 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in taken:
            taken.add(port)
            return port
    sys.exit(f"no free port from {PORTS.start} to {PORTS.stop - 1}")


class Process:
    """One process after the other, with the same name, port and files."""

    stop_timeout_s = SERVER_STOP_TIMEOUT_S

    def __init__(self, name, port, command, log, environment=None):
        self.name, self.port, self.command, self.log = name, port, command, log
        self.environment = environment or {}
        self.child = None

    @property
    def pid(self):
        return self.child.pid if self.child and self.child.returncode is None else None

    async def start(self):
        # The server reads variables with this prefix as configuration.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DUNLIN_")}
        with open(self.log, "ab") as log:
            self.child = await asyncio.create_subprocess_exec(
                *map(str, self.command), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=environment | self.environment,
                # Ctrl-C is for the supervisor, which ends its processes in order.
                start_new_session=True, preexec_fn=end_with_parent,
            )

    async def stop(self):
        if self.pid is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            # A process that was paused ends only when it goes on.
            for each in (number, signal.SIGCONT):
                try:
                    self.child.send_signal(each)
                except ProcessLookupError:
                    pass
            try:
                await asyncio.wait_for(self.child.wait(), self.stop_timeout_s)
                return
            except asyncio.TimeoutError:
                continue


class NatsServer(Process):
    def __init__(self, folder, index, port, routes):
        name = f"nats-{index}"
        config = folder / f"{name}.conf"
        text = (HERE / "nats.conf").read_text("utf-8")
        addresses = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
        for word, value in [
            ("SERVER_NAME", name), ("ROUTES", addresses), ("ROUTE", str(routes[index])), ("PORT", str(port)),
            ("STORE", str(folder / name)),
        ]:
            text = text.replace(word, value)
        config.write_text(text, "utf-8")
        super().__init__(name, port, [nats_binary(), "-c", config], folder / f"{name}.log")


@dataclass
class NodeSettings:
    """What all nodes have in common. `api_key` is the one of their server API."""

    servers: list
    hook_port: int
    api_key: str
    seat_grace: str | None


class Node(Process):
    stop_timeout_s = NODE_STOP_TIMEOUT_S

    def __init__(self, command, folder, index, port, settings):
        name = f"node-{index}"
        config = folder / f"{name}.json"
        config.write_text(json.dumps(node_config(name, port, settings)), "utf-8")
        super().__init__(name, port, [*command, "-c", config], folder / f"{name}.log")


class Prices(Process):
    """Publishes the prices, on the first node that accepts them, and plays in the arena on all nodes."""

    def __init__(self, binary, folder, nodes, key, bots):
        command = [
            Path(binary).with_name("dunlin-demo"), *(f"--node=127.0.0.1:{node.port}" for node in nodes), f"--bots={bots}",
            f"--seats={folder / 'bots.json'}",
        ]
        super().__init__("prices", None, command, folder / "prices.log", {"DUNLIN_HTTP_API_KEY": key})


def node_config(name, port, settings):
    """The configuration of `make run`, for a node of a cluster: NATS keeps the channels and the arena."""
    config = json.loads(DEMO_CONFIG.read_text("utf-8"))
    del config["storage"]
    config["node"] = {"name": name}
    config["shards"] = 1
    config["http_server"]["port"] = port
    config["http_api"] = {"key": settings.api_key}
    config["shutdown"] = {"timeout": "2s"}
    # Three streams for each namespace: while one of them elects a leader, the others go on.
    jetstream = {"replicas": 3 if len(settings.servers) >= 3 else 1, "partitions": 3}
    urls = ",".join(f"nats://127.0.0.1:{server.port}" for server in settings.servers)
    config["broker"] = {"enabled": True, "type": "nats", "nats": {"url": urls, "jetstream": jetstream}}
    hook = f"http://127.0.0.1:{settings.hook_port}/connect/{name}"
    config["client"]["proxy"] = {"connect": {"enabled": True, "endpoint": hook, "timeout": "5s"}}
    namespaces = config["channel"]["namespaces"]
    for each in namespaces:
        each.pop("durability", None)
        # Paths of players need a storage.
        each.get("room", {}).pop("paths", None)
        if each["name"] == "arena" and settings.seat_grace:
            each["room"]["seat_grace"] = settings.seat_grace
    namespaces.append({
        "name": "nodes",
        "history_size": 1,
        "history_ttl": "1h",
        "force_recovery": True,
        "force_recovery_mode": "cache",
        "allow_subscribe_for_client": True,
        "allow_subscribe_for_anonymous": True,
    })
    return config


class Supervisor:
    """Starts the processes, and starts each again that ends."""

    def __init__(self, processes, restart_delay_s, log, changed):
        self.processes, self.restart_delay_s, self.log, self.changed = processes, restart_delay_s, log, changed
        self.watches = []

    async def start(self):
        for process in self.processes:
            await process.start()
        self.changed()
        self.watches = [asyncio.create_task(self.watch(process)) for process in self.processes]

    async def watch(self, process):
        while True:
            status = await process.child.wait()
            self.changed()
            how = f"signal {-status}" if status < 0 else f"status {status}"
            self.log(f"{process.name} has ended ({how}). It starts again in {self.restart_delay_s:g} s; its log is {process.log}")
            await asyncio.sleep(self.restart_delay_s)
            await process.start()
            self.changed()
            self.log(f"{process.name} has started again: kill -9 {process.pid}")

    async def stop(self):
        for watch in self.watches:
            watch.cancel()
        await asyncio.gather(*self.watches, return_exceptions=True)
        # Nodes before NATS: without it they could not end their work.
        for kind in (Prices, Node, NatsServer):
            await asyncio.gather(*(each.stop() for each in self.processes if isinstance(each, kind)))


def end_with_parent(supervisor=os.getpid()):
    """In a new process: have the kernel end it when the supervisor is killed."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    # It may have been killed before the call.
    if os.getppid() != supervisor:
        os._exit(1)
