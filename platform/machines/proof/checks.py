"""What a machine must be like when the playbook has run, seen from outside of Ansible."""

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

from machine import Failed, is_open, run, until

OPEN = {22, 80, 443}
# The API server, the node exporter, the kubelet, etcd, a node port, and one that is translated to another.
CLOSED = {6443, 9100, 10250, 2379, 30080, 31000}
# A closed port drops packets, so a connection to it ends by the clock. That the same port is open inside is checked as well.
CLOSED_PATIENCE_S = 3
TUNNEL = "tunnel"
SSHD = {
    "permitrootlogin": "no",
    "passwordauthentication": "no",
    "kbdinteractiveauthentication": "no",
    "pubkeyauthentication": "yes",
    "maxauthtries": "3",
    "x11forwarding": "no",
}
SYSCTLS = {
    "net.core.somaxconn": "65535",
    "net.ipv4.tcp_max_syn_backlog": "65535",
    "net.ipv4.ip_local_port_range": "1024\t65535",
    "net.ipv4.ip_local_reserved_ports": "2379-2381,6443-6444,9100,10248-10260,30000-32767",
    "net.ipv4.tcp_fin_timeout": "15",
    "net.ipv4.ip_forward": "1",
}
HUGE_PAGES = 16
# What a container cannot set is compared with the files that a machine sets it from at boot.
KERNEL_FILES = {
    "/etc/sysctl.d/90-machines-host.conf": [
        "fs.file-max = 4194304", "fs.nr_open = 2097152", "fs.inotify.max_user_instances = 8192", "fs.inotify.max_user_watches = 524288",
        "net.core.netdev_max_backlog = 65535", "net.netfilter.nf_conntrack_max = 1048576", "vm.overcommit_memory = 1",
        f"vm.nr_hugepages = {HUGE_PAGES}", "kernel.panic = 10", "kernel.panic_on_oops = 1",
    ],
    "/etc/modules-load.d/machines.conf": ["br_netfilter", "overlay", "nf_conntrack"],
    "/etc/security/limits.d/90-machines.conf": ["* - nofile 1048576", "root - nofile 1048576"],
}  # fmt: skip
UNITS = ["ssh", "nftables", "prometheus-node-exporter", "logrotate.timer", "apt-daily-upgrade.timer"]
LISTENER = """
import socket, sys, threading
for port in map(int, sys.argv[1:]):
    try:
        listener = socket.create_server(("", port))
    except OSError:
        continue
    threading.Thread(target=lambda listener=listener: [listener.accept() for _ in iter(int, 1)]).start()
print("ready", flush=True)
"""


def expect(what, got, wanted):
    if got != wanted:
        raise Failed(f"{what}: {got!r}, expected {wanted!r}")


def check_ssh(machine, work):
    """Both what the files say, and what the running server does: it may not have read them."""
    lines = [line.split(" ", 1) for line in machine.inside("sshd", "-T").splitlines() if " " in line]
    users = {value for name, value in lines if name == "allowusers"}
    expect(f"{machine.name}: users that may log in", users, {"ops", TUNNEL} if machine.is_server else {"ops"})
    words = dict(lines)
    for name, wanted in SSHD.items():
        expect(f"{machine.name}: sshd -T: {name}", words.get(name), wanted)
    for user, is_accepted in [("ops", True), ("root", False), (TUNNEL, False)]:
        got = ssh(machine, work, user, "-i", work / "key")
        expect(f"{machine.name}: a login of {user} with the key", got.returncode == 0, is_accepted)
    methods = re.search(r"Permission denied \((.*)\)", ssh(machine, work, "ops", "-o", "PreferredAuthentications=none").stderr)
    expect(f"{machine.name}: the methods of the running SSH server", methods and methods[1], "publickey")


def ssh(machine, work, user, *arguments):
    command = ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={work}/known_hosts"]
    return subprocess.run([*command, *arguments, f"{user}@{machine.public}", "true"], capture_output=True, text=True, check=False)


def forwarded(machine, work, target):
    """What an HTTP request through SSH to a port behind the machine gets, and what ssh says."""
    command = ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={work}/known_hosts"]
    command += ["-i", work / "tunnel-key", "-W", target, f"{TUNNEL}@{machine.public}"]
    done = subprocess.run(command, input="GET / HTTP/1.0\r\n\r\n", capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


def check_tunnel(machine, work):
    """The user for tunnels reaches the API server of the server, and nothing else; other machines do not have it."""
    got = ssh(machine, work, TUNNEL, "-i", work / "tunnel-key")
    if not machine.is_server:
        expect(f"{machine.name}: a login of {TUNNEL}", "Permission denied" in got.stderr, True)
        return
    expect(f"{machine.name}: a command of {TUNNEL}", (got.returncode, "not available" in got.stdout), (1, True))
    answer, _ = forwarded(machine, work, "127.0.0.1:6443")
    expect(f"{machine.name}: the API server through {TUNNEL}", "HTTP request to an HTTPS server" in answer, True)
    for target in ["127.0.0.1:22", "127.0.0.1:2379", f"{machine.private}:10250"]:
        answer, said = forwarded(machine, work, target)
        expect(f"{machine.name}: {target} through {TUNNEL}", (answer, "administratively prohibited" in said), ("", True))
    back = ssh(machine, work, TUNNEL, "-i", work / "tunnel-key", "-o", "ExitOnForwardFailure=yes", "-R", "18080:127.0.0.1:22")
    expect(f"{machine.name}: a port on it for {TUNNEL}", "remote port forwarding failed" in back.stderr, True)


def check_users(machine):
    expect(f"{machine.name}: ops with sudo", machine.inside("su", "ops", "-c", "sudo -n id -u").strip(), "0")
    expect(f"{machine.name}: password of ops", machine.inside("getent", "shadow", "ops").split(":")[1], "*")
    machine.inside("visudo", "-c")
    if machine.is_server:
        expect(f"{machine.name}: shell of {TUNNEL}", machine.inside("getent", "passwd", TUNNEL).strip().split(":")[-1], "/usr/sbin/nologin")
        expect(f"{machine.name}: groups of {TUNNEL}", machine.inside("id", "-Gn", TUNNEL).strip(), TUNNEL)


def check_ports(machine, other):
    """Everything listens; from outside only three ports are open, also where a destination is translated."""
    rules = "add table ip probe; add chain ip probe to { type nat hook prerouting priority dstnat; }; add rule ip probe to tcp dport 31000 redirect to :80"
    machine.inside("nft", rules)
    listener = subprocess.Popen(
        machine.in_network("python3", "-c", LISTENER, *sorted(OPEN | CLOSED)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        expect("the listener", listener.stdout.readline(), "ready\n")
        with ThreadPoolExecutor(16) as pool:
            for port, is_reached in zip(OPEN, pool.map(lambda port: is_open(machine.public, port), OPEN), strict=True):
                expect(f"{machine.name}: port {port} from outside", is_reached, True)
            answers = pool.map(lambda port: is_open(machine.public, port, CLOSED_PATIENCE_S), CLOSED)
            for port, is_reached in zip(CLOSED, answers, strict=True):
                expect(f"{machine.name}: port {port} from outside", is_reached, False)
        for port in sorted(OPEN | CLOSED):
            expect(f"{machine.name}: port {port} from {other.name}", other.reaches(machine.private, port), True)
    finally:
        listener.kill()
        listener.wait()


def check_firewall(machine):
    rules = machine.inside("nft", "list", "ruleset")
    for part in ["table inet machines", "hook prerouting priority mangle; policy drop;", "tcp dport { 22, 80, 443 } accept"]:
        expect(f"{machine.name}: nft list ruleset has {part!r}", part in rules, True)
    return rules


def check_kernel(machine):
    for name, wanted in SYSCTLS.items():
        expect(f"{machine.name}: {name}", machine.inside("sysctl", "-n", name).strip(), wanted)
    for path, wanted in KERNEL_FILES.items():
        expect(f"{machine.name}: {path}", machine.inside("cat", path).splitlines(), wanted)
    limit = machine.inside("systemctl", "show", "--property=DefaultLimitNOFILE", "--value").strip()
    expect(f"{machine.name}: open files of services", limit, "1048576")


def check_system(machine):
    expect(f"{machine.name}: hostname", machine.inside("hostname").strip(), machine.name)
    for unit in UNITS:
        expect(f"{machine.name}: {unit}", machine.inside("systemctl", "is-active", unit).strip(), "active")
        expect(f"{machine.name}: {unit} at boot", machine.inside("systemctl", "is-enabled", unit).strip(), "enabled")
    expect(f"{machine.name}: the clock at boot", machine.inside("systemctl", "is-enabled", "systemd-timesyncd").strip(), "enabled")
    exporter = machine.inside("systemctl", "show", "--property=Restart,StartLimitIntervalUSec", "prometheus-node-exporter").split()
    expect(f"{machine.name}: restarts of the node exporter", sorted(exporter), ["Restart=always", "StartLimitIntervalUSec=0"])
    failed = machine.inside("systemctl", "--failed", "--plain", "--no-legend", "--output=json")
    expect(f"{machine.name}: failed units", json.loads(failed), [])
    settings = machine.inside("apt-config", "dump")
    expect(f"{machine.name}: unattended upgrades", 'APT::Periodic::Unattended-Upgrade "1";' in settings, True)
    journal = machine.inside("sh", "-c", "ls -d /var/log/journal/*")
    expect(f"{machine.name}: a journal on the disk", bool(journal.strip()), True)


def check_metrics(machine, other):
    url = f"http://{machine.private}:9100/metrics"
    text = run(*other.in_network("curl", "--silent", "--show-error", "--max-time", "30", url)).stdout
    for name in ["node_load1 ", "node_systemd_unit_state{"]:
        expect(f"{machine.name}: {name.strip('{ ')} from {other.name}", f"\n{name}" in text, True)
    expect(f"{machine.name}: addresses of the node exporter", listening(machine, 9100), {f"{machine.private}:9100"})


def listening(machine, port):
    lines = machine.inside("ss", "--no-header", "--tcp", "--listening", "--numeric").splitlines()
    return {line.split()[3] for line in lines if line.split()[3].endswith(f":{port}")}


def check_k3s(machine, server, version, token):
    role = "server" if machine is server else "agent"
    unit = "k3s" if role == "server" else "k3s-agent"
    expect(f"{machine.name}: {unit}", machine.inside("systemctl", "is-active", unit).strip(), "active")
    expect(f"{machine.name}: {unit} at boot", machine.inside("systemctl", "is-enabled", unit).strip(), "enabled")
    expect(f"{machine.name}: the program", version in machine.inside("k3s", "--version"), True)
    for path in ["config.yaml", "token", "applied"]:
        got = machine.inside("stat", "--format=%a %U:%G", f"/etc/rancher/k3s/{path}").strip()
        expect(f"{machine.name}: /etc/rancher/k3s/{path}", got, "600 root:root")
    config = machine.inside("cat", "/etc/rancher/k3s/config.yaml")
    lines = [f'node-ip: "{machine.private}"', 'flannel-iface: "private0"', "token-file: /etc/rancher/k3s/token"]
    for line in lines if role == "server" else [*lines, f'server: "https://{server.private}:6443"']:
        expect(f"{machine.name}: config.yaml has {line}", line in config.splitlines(), True)
    expect(f"{machine.name}: the token", machine.inside("cat", "/etc/rancher/k3s/token").strip() == token, True)
    expect(f"{machine.name}: the token in arguments and the journal", token in machine.inside("ps", "axww") + machine.inside("journalctl"), False)
    node = until(f"{machine.name} is ready", lambda: ready(server, machine.name, version))
    expect(f"{machine.name}: address of the node", node["status"]["addresses"][0]["address"], machine.private)
    expect(f"{machine.name}: takes pods", node["spec"].get("unschedulable", False), False)


def ready(server, name, version):
    text = server.inside("k3s", "kubectl", "get", "node", name, "--ignore-not-found", "-o", "json")
    node = json.loads(text) if text.strip() else None
    if not node or node["status"]["nodeInfo"]["kubeletVersion"] != version:
        return None
    return node if {"Ready": "True"}.items() <= {part["type"]: part["status"] for part in node["status"]["conditions"]}.items() else None


def check_end_state(machine, other, server, work, version, token):
    check_ssh(machine, work)
    check_users(machine)
    check_tunnel(machine, work)
    check_firewall(machine)
    check_kernel(machine)
    check_system(machine)
    check_metrics(machine, other)
    check_ports(machine, other)
    check_k3s(machine, server, version, token)
