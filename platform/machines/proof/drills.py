"""What a team goes through with a cluster that serves apps: a lost machine, an upgrade, new keys, a restored server."""

import json
import os
import re
import secrets
import shutil
import subprocess
import time

from checks import TUNNEL, expect
from cluster import Load
from crowd import Crowd
from machine import OUTSIDE, until
from session import Session
from store import Store
from volumes import Files, open_store

# The longest of the ingress controller's default timeouts is 180 s.
OUTLASTS_S = 200
# From the loss of a machine until its apps without volumes serve again, and until an empty machine has taken its place. A machine that
# is busy with other work may need more.
LOST_S_MAX = int(os.environ.get("LOST_S_MAX", "90"))
REPLACED_S_MAX = int(os.environ.get("REPLACED_S_MAX", "360"))
ANSWERS_AGAIN = 200


def arena_is_served(play, machine):
    answer = play.person.answer
    page = until(f"{machine.name} serves the arena", lambda: answer(machine, "arena.example.com", "/arena/"))
    expect("a script in the page of the arena", "<script" in page, True)
    shop = until(f"{machine.name} serves the shop", lambda: answer(machine, "shop.example.com"))
    expect("the client's address that the shop sees", json.loads(shop)["client"], OUTSIDE)


def lost_worker(play):
    """The worker is lost with all that it ran, and an empty machine takes its place."""
    person = play.person
    until("a session outlasts the ingress controller's timeouts", lambda: play.session.age_s() > OUTLASTS_S)
    expect("connections of the session", play.session.connections, 1)
    print(f"  a session is open for {play.session.age_s():.0f} s, with {play.session.pings} pings", flush=True)
    store = open_store(play)
    files, notes = Files(play, store, "files", "Wait"), Files(play, store, "notes", "RestoreFromBackup")
    for app in (files, notes):
        app.back_up()
    person.move_to("worker1", "arena", "shop")
    path = "{range .items[*]}{.spec.nodeName}{'\\n'}{end}"
    nodes = person.kubectl("-n", "web", "get", "pods", "-l", "apps.roost.dev/app=shop", "-o", f"jsonpath={path}").split()
    expect("the nodes of the shop's pods, before the loss", set(nodes), {"worker1"})
    load = Load(person, play.server, "shop.example.com")
    until("requests are answered", lambda: load.answers > 20)
    began = time.monotonic()
    play.worker.lose()
    until("a request fails", lambda: load.failures)
    until("the shop serves without failures", lambda: load.answered_since_failure > ANSWERS_AGAIN)
    load.end()
    served_s = load.failures[-1] - began
    print(f"  the shop's last failed request was {served_s:.0f} s after the loss, of {len(load.failures)}", flush=True)
    expect(f"the shop served again {served_s:.0f} s after the loss, in less than {LOST_S_MAX} s", served_s < LOST_S_MAX, True)
    person.kubectl("delete", "node", "worker1")
    until("the arena serves", lambda: person.answer(play.server, "arena.example.com", "/arena/"))
    print(f"  the arena, whose node was deleted from the cluster by hand, serves after {time.monotonic() - began:.0f} s", flush=True)
    notes.restored_by_policy(began)
    files.restore(began)
    play.boot_empty(play.worker)
    play.refuse("a lost machine of this name: web/data-notes-0. Their pods would start with empty volumes.", "-l", "worker1")
    for app in (files, notes):
        app.delete()
    store.shutdown()
    play.succeed("-l", "worker1")
    arena_is_served(play, play.worker)
    replaced_s = time.monotonic() - began
    print(f"  all apps serve on both machines {replaced_s:.0f} s after the loss", flush=True)
    expect(f"all apps served {replaced_s:.0f} s after the loss, in less than {REPLACED_S_MAX} s", replaced_s < REPLACED_S_MAX, True)
    play.end_state()


def upgrade(play):
    """A third machine joins. Then the server, and each agent: drained before its restart, with pods again after it, under load."""
    person = play.person
    person.connect()
    play.machines.append(play.more)
    play.boot_empty(play.more)
    play.succeed()
    crowd = Crowd(play)
    loads = [Load(person, machine, "shop.example.com", threads=3) for machine in play.machines]
    sessions = [Session(machine.public, "arena.example.com", person.folder / "web.pem", "arena:hunt") for machine in play.machines]
    until("all sessions get ticks", lambda: all(session.messages > 50 for session in sessions))
    before = {machine.name: len(play.calls(machine)) for machine in play.machines}
    old, play.version = play.version, play.next
    play.succeed()
    for load in loads:
        load.end()
    answers, failures = sum(load.answers for load in loads), sum(len(load.failures) for load in loads)
    print(f"  {answers} requests were answered, {failures} failed, at most {max(load.longest_s for load in loads):.2f} s for an answer", flush=True)
    expect(f"failed requests: {sum((load.report() for load in loads), [])}", failures, 0)
    until("all sessions are back", lambda: all(session.since and session.away_s for session in sessions))
    away_s = [seconds for session in sessions for seconds in session.away_s]
    print(f"  sessions closed {len(away_s)} times: {sorted(set(sum((session.reasons for session in sessions), [])))}; away for at most {max(away_s):.1f} s", flush=True)
    for session in sessions:
        session.is_ending = True
    person.connect()
    crowd.end()
    play.end_state()
    order_was_kept(play, before)
    play.refuse("Kubernetes has no downgrade", "-l", "server1", "-e", f"k3s_version={old}")
    play.unchanged()
    give_up(play, play.more)


def order_was_kept(play, before):
    """The server is first; each machine is drained and takes pods again before the next one is touched."""
    on_server = play.calls(play.server)[before["server1"]:]
    words = [" ".join(word for word in call.split()[1:] if not word.startswith("--")) for call in on_server]
    wanted = ["kubectl drain server1", "server starts", "kubectl uncordon server1"]
    for agent in play.machines[1:]:
        wanted += [f"kubectl drain {agent.name}", f"kubectl uncordon {agent.name}"]
        expect(f"starts of {agent.name}", play.calls(agent)[before[agent.name]:], [f"{play.next} agent starts"])
    expect("the order of an upgrade", words, wanted)


def give_up(play, machine):
    """A machine leaves the cluster for good."""
    play.person.connect()
    play.person.kubectl("drain", machine.name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=240s")
    play.person.kubectl("delete", "node", machine.name)
    play.machines.remove(machine)
    machine.lose()
    play.succeed()


def pods(play):
    """Each pod of the apps with the start of its container: what changes if it is replaced or restarted."""
    path = "{range .items[*]}{.metadata.uid} {.status.containerStatuses[0].state.running.startedAt}{'\\n'}{end}"
    return sorted(play.person.kubectl("-n", "web", "get", "pods", "-o", f"jsonpath={path}").splitlines())


def rotated_token(play):
    play.person.connect()
    old, new, before = play.token, secrets.token_hex(16), pods(play)
    play.refuse("K3S_TOKEN differs from the token of the server", playbook="rotate-token.yml", token="wrong-token-of-someone", more={"K3S_NEW_TOKEN": new})
    play.succeed(playbook="rotate-token.yml", more={"K3S_NEW_TOKEN": new})
    play.token = new
    play.end_state()
    play.refuse("The token differs from the token of the server on server1; nothing was changed there.", token=old)
    play.succeed(playbook="rotate-token.yml", token=old, more={"K3S_NEW_TOKEN": new})
    play.unchanged()
    play.person.connect()
    expect("pods of apps", pods(play), before)


def serials(play):
    """The serial numbers of the certificates of the API server and of both kubelets."""
    found = []
    for machine, port in [(play.server, 6443), (play.server, 10250), (play.worker, 10250)]:
        command = f"openssl s_client -connect {machine.private}:{port} </dev/null 2>/dev/null | openssl x509 -noout -serial"
        # A kubelet that was restarted does not listen yet.
        found.append(until(f"a certificate at {machine.private}:{port}", lambda: shown(machine, command)))
    return found


def shown(machine, command):
    """What a command of the shell prints in the machine; nothing if it fails."""
    done = subprocess.run([*machine.in_all(), "sh", "-c", command], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def rotated_certificates(play):
    play.person.connect()
    before, pods_before = serials(play), pods(play)
    play.succeed(playbook="rotate-certificates.yml")
    expect("certificates that stayed", [serial for serial in serials(play) if serial in before], [])
    play.end_state()
    play.person.connect()
    expect("pods of apps", pods(play), pods_before)


# A claim whose volume is on the server.
KEPT = """apiVersion: v1
kind: PersistentVolume
metadata: { name: kept }
spec:
  capacity: { storage: 1Mi }
  accessModes: [ReadWriteOnce]
  storageClassName: kept
  hostPath: { path: /var/lib/kept }
  nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [{ key: kubernetes.io/hostname, operator: In, values: [server1] }] }] } }
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: kept }
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: kept
  volumeName: kept
  resources: { requests: { storage: 1Mi } }
"""


def copies_begin(play):
    """A run makes the server copy its snapshots, to a store that removes nothing; the first one is taken for it. A short password is refused."""
    play.copies = Store((play.outside, 8001), play.work / "copies", only_adds=True)
    short = {"K3S_COPIES_PASSWORD": secrets.token_hex(8)[:15]}
    play.refuse("K3S_COPIES_PASSWORD 15, at least 16 are needed.", "-l", "server1", more=short)
    play.succeed("-l", "server1")
    expect("the copies", [name.partition("-")[0] for name in copied_names(play)], ["first"])
    expect("the timer of the copies", play.server.inside("systemctl", "is-active", "k3s-snapshot-copies.timer").strip(), "active")
    hidden = play.copies_password in play.server.inside("ps", "axww") + play.server.inside("journalctl")
    expect("the password of the store in arguments and the journal", hidden, False)
    play.unchanged()


def copied_names(play):
    lines = play.server.inside("/usr/local/sbin/k3s-snapshot-copies", "list").splitlines()
    return [line.split()[-1] for line in lines]


def copied(play, name):
    """What the timer starts copies the snapshot, and the node exporter has its time."""
    play.server.inside("systemctl", "start", "k3s-snapshot-copies.service")
    expect(f"{name} is the newest copy", copied_names(play)[-1], name)
    path = f"/var/lib/rancher/k3s/server/db/snapshots/{name}"
    taken_s = int(play.server.inside("stat", "--format=%Y", path))
    text = play.server.inside("curl", "--silent", "--show-error", "--max-time", "30", f"http://{play.server.private}:9100/metrics")
    found = re.search(r"^k3s_snapshot_copied_timestamp_seconds (\S+)$", text, re.MULTILINE)
    expect("the time of the newest copy in the metrics", found and int(float(found[1])), taken_s)
    first_bytes = play.server.inside_bytes("head", "-c", "4096", path)
    clear = [file for file in play.copies.folder.rglob("*") if file.is_file() and first_bytes in file.read_bytes()]
    expect("files of the store that have the snapshot in clear", clear, [])


def copies_end(play):
    """The steps after this one have no store; a run removes what copied."""
    play.copies.shutdown()
    play.copies.server_close()
    play.copies = None
    play.succeed("-l", "server1")
    left = "ls -d /etc/rancher/k3s/copies /etc/systemd/system/k3s-snapshot-copies.* /var/lib/prometheus/node-exporter/k3s-* 2>/dev/null || true"
    expect("what is left of the copies", play.server.inside("sh", "-c", left), "")
    play.unchanged()


def restored_server(play):
    """The server is lost with its disk. An empty machine, the copy of a snapshot and the token make it again; pods of the worker run on."""
    person = play.person
    person.connect()
    copies_begin(play)
    person.connect()
    # The worker was drained last, so until now all pods of the shop can be on the server.
    person.move_to("worker1", "shop")
    person.kubectl("-n", "web", "create", "configmap", "before-snapshot")
    (person.folder / "kept.yaml").write_text(KEPT, "utf-8")
    person.kubectl("-n", "web", "apply", "-f", "kept.yaml")
    person.kubectl("-n", "web", "wait", "--for=jsonpath={.status.phase}=Bound", "persistentvolumeclaim/kept", "--timeout=60s")
    saved = play.server.inside("k3s", "etcd-snapshot", "save", "--name", "drill")
    path = play.server.inside("sh", "-c", "ls /var/lib/rancher/k3s/server/db/snapshots/drill-*").strip()
    expect("the snapshot", path in saved, True)
    name = path.rpartition("/")[2]
    copied(play, name)
    person.kubectl("-n", "web", "create", "configmap", "after-snapshot")
    nonsense = play.work / "nonsense"
    nonsense.write_bytes(secrets.token_bytes(50_000))
    pods_before = pods(play)
    play.refuse("k3s runs on server1 again, with the datastore of before.", "-l", "server1", "-e", f"k3s_restore_from={nonsense}")
    person.connect()
    expect("an object from before a refused snapshot", "after-snapshot" in person.kubectl("-n", "web", "get", "configmaps", "-o", "name"), True)
    until("both nodes are ready after a refused snapshot", lambda: person.kubectl("get", "nodes").count(" Ready ") == 2)
    expect("pods of apps after a refused snapshot", pods(play), pods_before)
    began = time.monotonic()
    play.replace(play.server)
    until("the worker serves without the server", lambda: person.answer(play.worker, "shop.example.com"))
    play.refuse("the store has no copy no-such-one of server1; it has first-", "-l", "server1", "-e", "k3s_restore_from=copies:no-such-one")
    restore = ["-l", "server1", "-e", "k3s_restore_from=copies:latest"]
    play.refuse("The snapshot was taken with another token.", *restore, token="wrong-token-of-someone")
    play.refuse("a lost machine of this name: web/kept. Their pods would start with empty volumes.", *restore)
    person.connect()
    person.kubectl("-n", "web", "delete", "-f", "kept.yaml")
    play.succeed("-l", "server1")
    person.connect()
    names = person.kubectl("-n", "web", "get", "configmaps", "-o", "name")
    expect("objects from before and after the snapshot", ["before-snapshot" in names, "after-snapshot" in names], [True, False])
    until("both nodes are ready", lambda: person.kubectl("get", "nodes").count(" Ready ") == 2)
    for machine in [play.server, play.worker]:
        arena_is_served(play, machine)
    print(f"  restored, and all apps serve on both machines, {time.monotonic() - began:.0f} s after the loss", flush=True)
    play.end_state()
    play.unchanged()
    expect("files of restored snapshots", "restored-snapshot" in play.server.inside("ls", "/var/lib/rancher/k3s/server"), False)
    names = copied_names(play)
    expect("copies after the restore, of the lost server and of the new one", [name in names, len(names) > 2], [True, True])
    copies_end(play)


BOOTSTRAP = """inventory: hosts.json
playbook: ../machines/site.yml
token: token.env
ssh: ops@{server}
kubeconfig: k3s.kubeconfig
operator: [../crd, ../deploy, tls.yaml]
identities: [{{ name: ci, namespace: web, role: deployer }}]
apps: [apps]
"""


def bootstrapped(play):
    """Both machines are lost, and `roost bootstrap` makes everything anew from a folder; a second run changes nothing."""
    person = play.person
    person.connect()
    folder = person.folder / "site"
    folder.mkdir()
    (folder / "tls.yaml").write_text(
        person.kubectl("-n", "web", "create", "secret", "tls", "web-tls", "--cert=web.pem", "--key=web-key.pem", "--dry-run=client", "-o", "yaml"), "utf-8"
    )
    shutil.copytree(person.folder / "apps", folder / "apps")
    shutil.copy(person.folder / "apps/roost.yaml", folder)
    (folder / "bootstrap.yaml").write_text(BOOTSTRAP.format(server=play.server.public), "utf-8")
    shutil.copy(play.write_inventory(), folder / "hosts.json")
    (folder / "token.env").write_text(f"K3S_TOKEN={play.token}\n", "utf-8")
    person.does("roost", "secrets", "encrypt", "site/token.env")
    for machine in [play.server, play.worker]:
        play.replace(machine)
    began = time.monotonic()
    plan = person.does("roost", "bootstrap", "--plan", "site")
    expect("the plan for bare machines", "set up or check the nodes server1, worker1" in plan, True)
    person.shows("roost", "bootstrap", "site")
    for machine in [play.server, play.worker]:
        arena_is_served(play, machine)
    print(f"  all apps serve {time.monotonic() - began:.0f} s after `roost bootstrap`", flush=True)
    again = person.does("roost", "bootstrap", "site")
    expect("steps that a second run has done", [line for line in again.splitlines() if ": done in" in line], [])
    play.end_state()
    identity_works(play, folder)


def identity_works(play, folder):
    """The kubeconfig of an access identity, with the private address of the server, works on the private network."""
    shutil.copy(folder / "k3s.kubeconfig", play.person.kubeconfig)
    play.person.connect()
    server = f"https://{play.server.private}:6443"
    text = play.person.does("roost", "identity", "create", "reader", "--role", "reader", "-n", "web", "--server", server)
    file = play.work / "reader.kubeconfig"
    file.write_text(text, "utf-8")
    status_works(play, file, play.worker.in_network())
    # From outside, through the user that can do nothing else.
    play.person.does("ssh", "-fN", "-i", play.work / "tunnel-key", "-L", "16443:127.0.0.1:6443", f"{TUNNEL}@{play.server.public}")
    file.write_text(text.replace(server, "https://127.0.0.1:16443"), "utf-8")
    status_works(play, file, [])


def status_works(play, file, before):
    command = [*before, play.work / "bin/roost", "status", "-n", "web", "--kubeconfig", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"HOME": str(play.work), "PATH": "/usr/bin"})
    expect(f"roost status with the identity: {done.stdout}{done.stderr}", "all objects match the spec" in done.stdout, True)
