"""Machines with Debian 12 on a public and a private network, as a hoster hands them over: root's key, and nothing else."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

DEADLINE_S = 240
PROGRESS_S = 30
OUTSIDE = "203.0.113.1"
ROOT = Path(__file__).resolve().parents[3]


class Failed(Exception):
    """What was seen differs from what was expected."""


def run(*command, **options):
    """The completed command; what it printed is in the error if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def run_shown(command, log, hidden=(), **options):
    """The exit code and the output of a long command. Its newest line is printed now and then, unless it has a hidden word."""
    began = time.monotonic()
    with open(log, "w", encoding="utf-8") as output:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options)
    while True:
        try:
            code = process.wait(PROGRESS_S)
            return code, log.read_text("utf-8")
        except subprocess.TimeoutExpired:
            lines = [line for line in log.read_text("utf-8").splitlines() if line.strip() and not any(word in line for word in hidden)]
            print(f"    {time.monotonic() - began:.0f} s: {lines[-1].strip(' *')[:120] if lines else 'no output yet'}", flush=True)


def until(what, condition):
    deadline = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Failed(f"timed out after {DEADLINE_S} s: {what}")
        time.sleep(0.1)  # between two tries; the verdict is the condition's
    return value


def make_networks():
    """This network namespace is the outside; it has no address in the private network."""
    run("ip", "link", "set", "lo", "up")
    for bridge in ["public", "private"]:
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "link", "set", bridge, "up")
    run("ip", "address", "add", f"{OUTSIDE}/24", "dev", "public")


class Machine:
    """A machine, whose folder is a layer over the base."""

    # k3s brings its programs along; the stand-in has them in /opt/parts. The images lie where k3s imports them from.
    IMAGES = "/var/lib/rancher/k3s/agent/images"

    def __init__(self, work, prefix, packages, name, number):
        self.work, self.label, self.packages, self.name = work, f"{prefix}-{name}", packages, name
        self.is_server = name.startswith("server")
        self.folder = work / name
        self.public, self.private = f"203.0.113.{number}", f"10.78.0.{number}"
        self.supervisor = self.leader = None

    def make(self):
        # Containers' files are layers, too, which must not lie on this layer.
        for layer in ["files", "work", "root", "rancher", "kubelet"]:
            (self.folder / layer).mkdir(parents=True)
        layers = f"lowerdir={self.work}/base,upperdir={self.folder}/files,workdir={self.folder}/work"
        run("mount", "-t", "overlay", "overlay", "-o", layers, self.folder / "root")
        root = self.folder / "root"
        self.write_network(root / "etc/systemd/network")
        wants = root / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / "systemd-networkd.service").symlink_to("/lib/systemd/system/systemd-networkd.service")
        groups = root / "etc/systemd/system/cgroups.service"
        shutil.copy(ROOT / "platform/lab/machine/cgroups.service", groups)
        (root / "etc/systemd/system/sysinit.target.wants").mkdir(exist_ok=True)
        (root / "etc/systemd/system/sysinit.target.wants/cgroups.service").symlink_to("../cgroups.service")
        (root / "etc/hostname").write_text("debian\n", "utf-8")
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n", "utf-8")
        (root / "etc/apt/sources.list").write_text("deb [trusted=yes] file:/srv/packages ./\n", "utf-8")
        (root / "srv/packages").mkdir()
        (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
        shutil.copy(self.work / "key.pub", root / "root/.ssh/authorized_keys")
        for key in (root / "etc/ssh").glob("ssh_host_*"):
            key.unlink()
        run("ssh-keygen", "-A", "-f", root)

    def write_network(self, folder):
        for name, address in [("host0", self.public), ("private0", self.private)]:
            text = f"[Match]\nName={name}\n[Network]\nAddress={address}/24\nLinkLocalAddressing=no\n"
            (folder / f"10-{name}.network").write_text(text, "utf-8")

    def boot(self, before_private=None):
        """The private interface is down until before_private has returned."""
        veth = f"p-{self.name}"
        console = open(self.work / f"{self.name}.console", "w", encoding="utf-8")
        self.supervisor = subprocess.Popen(
            [ROOT / "scripts/machine-boot", self.label, self.folder / "root", "--network-bridge=public"]
            + [f"--network-veth-extra={veth}:private0", f"--bind-ro={self.packages}:/srv/packages", "--capability=all"]
            + ["--system-call-filter=add_key keyctl bpf @keyring @mount", "--bind=/dev/kmsg", f"--bind-ro={self.work}/parts:/opt/parts"]
            + [f"--bind={self.folder}/rancher:/var/lib/rancher", f"--bind={self.folder}/kubelet:/var/lib/kubelet"]
            + [f"--bind-ro={self.work}/images:{self.IMAGES}"],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
        )
        self.leader = until(f"{self.name} boots", self.find_leader)
        until(f"{self.name} has a private interface", lambda: Path(f"/sys/class/net/{veth}").exists() or self.link(veth))
        if before_private:
            before_private()
        run("ip", "link", "set", veth, "master", "private", "up")
        until(f"{self.name} accepts SSH", lambda: is_open(self.public, 22))

    @staticmethod
    def link(name):
        return subprocess.run(["ip", "link", "show", name], capture_output=True, check=False).returncode == 0

    def find_leader(self):
        if self.supervisor.poll() is not None:
            raise Failed(f"{self.name} did not boot:\n" + (self.work / f"{self.name}.console").read_text("utf-8")[-4000:])
        found = subprocess.run(["pgrep", "-x", "-P", str(self.supervisor.pid), "systemd"], capture_output=True, text=True, check=False)
        return int(found.stdout) if found.stdout else None

    def wipe(self):
        """The machine is lost with its disk, and an empty one has its addresses."""
        if self.leader:
            self.lose()
        self.make()
        self.boot()

    def restart(self, before_private):
        """The power fails, and comes back; the disk stays."""
        os.kill(self.leader, signal.SIGKILL)
        self.supervisor.wait()
        until(f"the private interface of {self.name} is gone", lambda: not self.link(f"p-{self.name}"))
        self.boot(before_private)

    def lose(self):
        """All processes end at once, and the disk is gone."""
        os.kill(self.leader, signal.SIGKILL)
        self.supervisor.wait()
        self.leader = None
        run("umount", self.folder / "root")
        shutil.rmtree(self.folder)

    def inside(self, *command):
        """What a command in the machine prints, without SSH and Ansible."""
        return run(*self.in_all(), *command).stdout

    def in_all(self):
        """The words before a command that runs in the machine."""
        return ["nsenter", "--target", str(self.leader), "--all", "--"]

    def inside_bytes(self, *command):
        return subprocess.run([*self.in_all(), *command], capture_output=True, check=True).stdout

    def in_network(self, *command):
        return ["nsenter", "--target", str(self.leader), "--net", "--", *map(str, command)]

    def reaches(self, address, port):
        """Whether a connection from this machine is accepted."""
        return not subprocess.run(self.in_network("python3", "-c", PROBE, address, port), check=False).returncode


PROBE = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 30).close()"


def is_open(address, port, patience_s=30):
    try:
        socket.create_connection((address, port), patience_s).close()
        return True
    except OSError:
        return False
