"""Apps with a volume on the worker's disk: they are backed up, the disk is lost, and a restore brings the same bytes back."""

import http.client
import json
import secrets
import socket
import ssl
import time

from checks import expect
from machine import until
from store import Store

FILES, SIZE_MAX = 40, 400_000
PATIENCE_S = 10
AFTER = "after-the-backup"
MANIFEST = """apiVersion: apps.roost.dev/v1alpha1
kind: App
metadata: {{ name: {name}, namespace: web }}
spec:
  image: registry.example.com/shop:1.4.2
  host: {name}.example.com
  onNodeLoss: {policy}
  tls: {{ secret: drill-tls }}
  ports: [{{ port: 8080 }}]
  health: {{ path: /healthz }}
  env: {{ FILES: /data }}
  resources: {{ cpu: 20m, memory: 64Mi }}
  volumes: [{{ name: data, path: /data, size: 1Gi }}]
  backup:
    schedule: "15 3 * * *"
    repository: {{ url: "{url}/{name}", file: {name}.env }}
"""


def open_store(play):
    return Store((play.outside, 8000), play.work / "store")


class Files:
    """An app that keeps files in its volume, with a policy for the loss of its node."""

    def __init__(self, play, store, name, policy):
        self.play, self.person, self.store, self.name = play, play.person, store, name
        self.host, self.claim = f"{name}.example.com", f"data-{name}-0"
        self.person.drill_file(f"{name}.yaml", MANIFEST.format(url=store.url, name=name, policy=policy))
        self.person.drill_file(f"{name}.env", f"RESTIC_PASSWORD={secrets.token_hex(16)}\n")
        self.person.does("roost", "secrets", "encrypt", f"drills/{name}.env")
        # The volume is made where the pod starts.
        self.person.kubectl("cordon", "server1")
        self.person.does("roost", "deploy", f"drills/{name}.yaml")
        self.person.kubectl("uncordon", "server1")
        until(f"{name}, with a volume, serves", self.answer)
        expect("the node of the volume", self.volume_node(), "worker1")
        self.content = {f"file{number}": secrets.token_bytes(secrets.randbelow(SIZE_MAX)) for number in range(FILES)}
        for name, content in self.content.items():
            self.put(name, content)

    def answer(self):
        return self.person.answer(self.play.server, self.host)

    def volume(self):
        return self.person.kubectl("-n", "web", "get", "persistentvolumeclaim", self.claim, "-o", "jsonpath={.spec.volumeName}")

    def volume_node(self):
        path = "{.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]}"
        return self.person.kubectl("get", "persistentvolume", self.volume(), "-o", f"jsonpath={path}")

    def request(self, method, name, content=None):
        context = ssl.create_default_context(cafile=self.person.drills / "drill.pem")
        with socket.create_connection((self.play.server.public, 443), PATIENCE_S) as plain, context.wrap_socket(plain, server_hostname=self.host) as stream:
            connection = http.client.HTTPConnection(self.host)
            connection.sock = stream
            connection.request(method, f"/files/{name}", content)
            response = connection.getresponse()
            return response.status, response.read()

    def put(self, name, content):
        expect(f"the status of a write of {name}", self.request("PUT", name, content)[0], 200)

    def back_up(self):
        """Saves the volume, verifies a restore of it, and writes one file more. All pods of this run in the cluster."""
        began = time.monotonic()
        self.person.does("roost", "backup", "-n", "web", self.name)
        self.snapshot = self.status()["backup"]["lastSnapshot"]
        saved_s = time.monotonic() - began
        self.saved = time.monotonic()
        self.person.does("roost", "drill", "-n", "web", self.name)
        total = sum(map(len, self.content.values()))
        print(
            f"  {self.name}: {len(self.content)} files with {total} bytes are saved after {saved_s:.0f} s, a restore of them is verified after "
            f"{time.monotonic() - began:.0f} s; the store has {self.store.size()} bytes",
            flush=True,
        )
        self.put(AFTER, b"lost with the disk")

    def restore(self, lost):
        """The steps of docs/backups.md for a node that does not come back, which was lost at a time."""
        status = until("the lost volume is reported", self.lost)
        print(f"  reported: {status}", flush=True)
        began = time.monotonic()
        self.person.kubectl("patch", "persistentvolume", self.volume(), "-p", '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}')
        self.person.kubectl("delete", "node", "worker1", "--ignore-not-found")
        self.person.kubectl("-n", "web", "delete", "persistentvolumeclaim", self.claim, "--wait=false")
        self.person.kubectl("-n", "web", "delete", "pod", f"{self.name}-0", "--force", "--ignore-not-found")
        until("the app serves with an empty volume", self.answer)
        expect("the node of the new volume", self.volume_node(), "server1")
        self.person.does("roost", "restore", "-n", "web", self.name, "--snapshot", self.snapshot)
        until("the app serves with the restored volume", self.answer)
        self.compare()
        print(
            f"  {self.name}: the node was given up, and {len(self.content)} files are back byte for byte after {time.monotonic() - began:.0f} s; "
            f"what was written in the {lost - self.saved:.0f} s from the snapshot to the loss is lost",
            flush=True,
        )

    def restored_by_policy(self, lost):
        """The operator gives the node up by itself, as docs/backups.md describes."""
        loss = until("the operator has restored the snapshot", self.restored_loss)
        until("the app serves with the new claim", self.answer)
        served_s = time.monotonic() - lost
        expect("the snapshot and the generation of the claim", (loss["snapshot"], loss["generation"]), (self.snapshot, 2))
        old, self.claim = self.claim, f"data-{self.name}-gen2-0"
        expect("the node of the new volume", self.volume_node(), "server1")
        self.person.kubectl("-n", "web", "get", "persistentvolumeclaim", old)
        self.compare()
        print(f"  {self.name}: the operator moved the app, which serves {len(self.content)} files byte for byte {served_s:.0f} s after the loss", flush=True)
        print(f"  reported: {self.status()['backup']['operation']['message']}", flush=True)

    def restored_loss(self):
        loss = self.status()["backup"].get("nodeLoss", {})
        return loss if loss.get("restored") else None

    def compare(self):
        wrong = [name for name, content in self.content.items() if self.request("GET", name) != (200, content)]
        expect("files that differ from what was saved", wrong, [])
        expect("the status of a file from after the backup", self.request("GET", AFTER)[0], 404)

    def status(self):
        return json.loads(self.person.kubectl("-n", "web", "get", "app", self.name, "-o", "json"))["status"]

    def lost(self):
        return next((condition["message"] for condition in self.status()["conditions"] if condition["reason"] == "NodeLost"), None)

    def delete(self):
        self.person.kubectl("-n", "web", "delete", "app", self.name, "--wait")
        self.person.kubectl("-n", "web", "delete", "persistentvolumeclaims", "-l", f"apps.roost.dev/app={self.name}", "--wait")
