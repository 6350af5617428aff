"""Clients with the official SDK for Go, connected through the ingress controllers of all machines, and numbered publications for them."""

import json
import subprocess
import sys
import threading
from pathlib import Path

from checks import expect
from machine import Failed, until

HERE = Path(__file__).resolve().parent
CLIENTS, CHANNELS, PER_SECOND = 60, 20, 20  # clients of each machine
MANIFEST = """apiVersion: apps.roost.dev/v1alpha1
kind: Dunlin
metadata: {{ name: realtime, namespace: web }}
spec:
  image: registry.example.com/dunlin:0.1.0
  nodes: 3
  host: rt.example.com
  tls: {{ secret: drill-tls }}
  keys: {{ file: realtime.env }}
  resources: {{ cpu: 50m, cpuLimit: 2, memory: 256Mi }}
  nats: {{ servers: 3, image: "nats:{nats}", size: 1Gi, resources: {{ cpu: 50m, cpuLimit: 2, memory: 256Mi }} }}
  config:
    channel:
      namespaces:
      - {{ name: drain, history_size: 10000, history_ttl: 600s, force_recovery: true, allow_subscribe_for_client: true }}
    client: {{ recovery_max_publication_limit: 10000 }}
"""
KEYS = {"api_key": "machines-api-key", "token_hmac_secret_key": "machines-token-key-of-32-bytes-or-more", "nats_password": "letters"}


class Clients:
    """The program platform/lab/clients, connected to one machine."""

    def __init__(self, person, machine):
        command = [person.work / "bin/clients", f"{machine.public}:443", "wss://rt.example.com/connection/websocket", str(CLIENTS), str(CHANNELS)]
        environment = {"TOKEN_KEY": KEYS["token_hmac_secret_key"], "SSL_CERT_FILE": str(person.drills / "drill.pem")}
        self.last = {"connected": 0, "seen": 0, "next": 0}
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            self.last = json.loads(line)

    def report(self):
        if self.process.poll() is not None:
            raise Failed("the program clients has ended")
        return self.last

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.thread.join()
        return self.last


class Crowd:
    """A Dunlin of three nodes with three NATS servers, its clients, and who publishes."""

    def __init__(self, play):
        self.play, self.person = play, play.person
        nats = next(line for line in (HERE.parents[2] / "scripts/need").read_text("utf-8").splitlines() if line.startswith("NATS_SERVER="))
        self.person.drill_file("realtime.yaml", MANIFEST.format(nats=nats.partition("=")[2]))
        self.person.drill_file("realtime.env", "".join(f"{name}={value}\n" for name, value in KEYS.items()))
        self.person.does("roost", "secrets", "encrypt", "drills/realtime.env")
        self.person.does("roost", "deploy", "--wait", "10m", "drills/realtime.yaml")
        path = "{range .items[*]}{.spec.nodeName}{'\\n'}{end}"
        nodes = self.person.kubectl("-n", "web", "get", "pods", "-l", "apps.roost.dev/app=realtime,apps.roost.dev/part=nats", "-o", f"jsonpath={path}").split()
        expect("the nodes of the NATS servers", sorted(nodes), sorted(machine.name for machine in play.machines))
        self.clients = [Clients(self.person, machine) for machine in play.machines]
        until("all clients are connected", self.is_connected)
        self.publisher = self.publish()
        until("publications arrive", self.is_published)

    def is_connected(self):
        return all(clients.report()["connected"] == CLIENTS for clients in self.clients)

    def is_published(self):
        if self.publisher.poll() is not None:
            raise Failed("the publisher has ended")
        return all(clients.report()["seen"] > CLIENTS for clients in self.clients)

    def publish(self):
        # Machines of the test have no default route, by which real ones reach the addresses of services.
        self.play.worker.inside("ip", "route", "replace", "10.43.0.0/16", "dev", "cni0")
        address = self.person.kubectl("-n", "web", "get", "service", "realtime-internal", "-o", "jsonpath={.spec.clusterIP}")
        command = [sys.executable, HERE / "publisher.py", f"http://{address}:9000/api/publish", str(CHANNELS), str(PER_SECOND)]
        return subprocess.Popen(
            self.play.worker.in_network(*command), env={"API_KEY": KEYS["api_key"]}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def end(self):
        """All publications have reached all clients, each once and in order."""
        until("all clients are connected again", self.is_connected)
        output, _ = self.publisher.communicate()
        if self.publisher.returncode:
            raise Failed("the publisher has failed")
        published = json.loads(output)
        until("all clients have the last publications", lambda: all(clients.report()["next"] >= published["count"] for clients in self.clients))
        reports = [clients.end() for clients in self.clients]
        total = {name: sum(report[name] for report in reports) for name in ["seen", "closed", "missing", "late", "doubled", "unrecovered", "wrongSent"]}
        away_ms = max(report["awayMostMs"] for report in reports)
        print(
            f"  {CLIENTS * len(reports)} clients of the SDK for Go: {published['count']} publications, {total['seen']} deliveries, each once and in order but for "
            f"{total['missing']} missing, {total['late']} late, {total['doubled']} twice; {total['closed']} connections closed and recovered but for "
            f"{total['unrecovered']}, away for at most {away_ms / 1000:.1f} s; {published['retries']} attempts to publish were repeated",
            flush=True,
        )
        expect("deliveries", total["seen"], published["count"] * CLIENTS * len(reports) // CHANNELS)
        for name in ["missing", "late", "doubled", "unrecovered", "wrongSent"]:
            expect(f"publications or subscriptions: {name}", total[name], 0)
        expect("clients that gave up", [report["gone"] for report in reports if report["gone"]], [])
        expect("each client was disconnected", total["closed"] >= CLIENTS * len(reports), True)
        self.person.kubectl("-n", "web", "delete", "dunlin", "realtime", "--wait")
        self.person.kubectl("-n", "web", "delete", "persistentvolumeclaims", "-l", "apps.roost.dev/app=realtime", "--wait")
