"""An app with a volume on the worker's disk: it is backed up, the disk is lost, and a restore brings the same bytes back."""

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
HOST = "files.example.com"
MANIFEST = """apiVersion: apps.roost.dev/v1alpha1
kind: App
metadata: {{ name: files, namespace: web }}
spec:
  image: registry.example.com/shop:1.4.2
  host: files.example.com
  tls: {{ secret: drill-tls }}
  ports: [{{ port: 8080 }}]
  health: {{ path: /healthz }}
  env: {{ FILES: /data }}
  resources: {{ cpu: 20m, memory: 64Mi }}
  volumes: [{{ name: data, path: /data, size: 1Gi }}]
  backup:
    schedule: "15 3 * * *"
    repository: {{ url: "{url}", file: backup.env }}
"""
CLAIM = "data-files-0"


class Files:
    def __init__(self, play):
        self.play, self.person = play, play.person
        self.store = Store((play.outside, 8000), play.work / "store")
        self.person.drill_file("files.yaml", MANIFEST.format(url=self.store.url))
        self.person.drill_file("backup.env", f"RESTIC_PASSWORD={secrets.token_hex(16)}\n")
        self.person.does("roost", "secrets", "encrypt", "drills/backup.env")
        # The volume is made where the pod starts.
        self.person.kubectl("cordon", "server1")
        self.person.does("roost", "deploy", "drills/files.yaml")
        self.person.kubectl("uncordon", "server1")
        until("the app with a volume serves", lambda: self.person.answer(play.server, HOST))
        expect("the node of the volume", self.volume_node(), "worker1")
        self.content = {f"file{number}": secrets.token_bytes(secrets.randbelow(SIZE_MAX)) for number in range(FILES)}
        for name, content in self.content.items():
            self.put(name, content)

    def volume(self):
        return self.person.kubectl("-n", "web", "get", "persistentvolumeclaim", CLAIM, "-o", "jsonpath={.spec.volumeName}")

    def volume_node(self):
        path = "{.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]}"
        return self.person.kubectl("get", "persistentvolume", self.volume(), "-o", f"jsonpath={path}")

    def request(self, method, name, content=None):
        context = ssl.create_default_context(cafile=self.person.drills / "drill.pem")
        with socket.create_connection((self.play.server.public, 443), PATIENCE_S) as plain, context.wrap_socket(plain, server_hostname=HOST) as stream:
            connection = http.client.HTTPConnection(HOST)
            connection.sock = stream
            connection.request(method, f"/files/{name}", content)
            response = connection.getresponse()
            return response.status, response.read()

    def put(self, name, content):
        expect(f"the status of a write of {name}", self.request("PUT", name, content)[0], 200)

    def back_up(self):
        """Saves the volume, verifies a restore of it, and writes one file more. All pods of this run in the cluster."""
        began = time.monotonic()
        self.person.does("roost", "backup", "-n", "web", "files")
        self.snapshot = self.person.kubectl("-n", "web", "get", "app", "files", "-o", "jsonpath={.status.backup.lastSnapshot}")
        saved_s = time.monotonic() - began
        self.saved = time.monotonic()
        self.person.does("roost", "drill", "-n", "web", "files")
        total = sum(map(len, self.content.values()))
        print(
            f"  {len(self.content)} files with {total} bytes are saved after {saved_s:.0f} s, a restore of them is verified after "
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
        self.person.kubectl("-n", "web", "delete", "persistentvolumeclaim", CLAIM, "--wait=false")
        self.person.kubectl("-n", "web", "delete", "pod", "files-0", "--force", "--ignore-not-found")
        until("the app serves with an empty volume", lambda: self.person.answer(self.play.server, HOST))
        expect("the node of the new volume", self.volume_node(), "server1")
        self.person.does("roost", "restore", "-n", "web", "files", "--snapshot", self.snapshot)
        until("the app serves with the restored volume", lambda: self.person.answer(self.play.server, HOST))
        wrong = [name for name, content in self.content.items() if self.request("GET", name) != (200, content)]
        expect("files that differ from what was saved", wrong, [])
        expect("the status of a file from after the backup", self.request("GET", AFTER)[0], 404)
        print(
            f"  the node was given up, and {len(self.content)} files are back byte for byte after {time.monotonic() - began:.0f} s; "
            f"what was written in the {lost - self.saved:.0f} s from the snapshot to the loss is lost",
            flush=True,
        )

    def lost(self):
        conditions = json.loads(self.person.kubectl("-n", "web", "get", "app", "files", "-o", "json"))["status"]["conditions"]
        return next((condition["message"] for condition in conditions if condition["reason"] == "NodeLost"), None)

    def delete(self):
        self.person.kubectl("-n", "web", "delete", "app", "files", "--wait")
        self.person.kubectl("-n", "web", "delete", "persistentvolumeclaims", "-l", "apps.roost.dev/app=files", "--wait")
        self.store.shutdown()
