"""A private network for a test. Each process of a cluster has an address in a network namespace, and any two can be partitioned.

`enter()` restarts the program in separate network and mount namespaces, which cannot change the machine and end with the
program. It needs root, or the permission to create user namespaces.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "process"))

from process import Failed  # noqa: E402

SUBNET = "10.77.0"
ENTERED = "DUNLIN_TEST_NETWORK"

#: Packets from and to the members of the set are dropped silently.
RULES = """
table ip dunlin {
  set parted { type ipv4_addr; }
  chain arriving { type filter hook input priority 0; ip saddr @parted drop; }
  chain leaving { type filter hook output priority 0; ip daddr @parted drop; }
}
"""


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def enter():
    """Restarts the program in separate namespaces. Returns only in the restarted program."""
    if os.environ.pop(ENTERED, None):
        return
    for tool in ("ip", "nft", "unshare", "mount"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            sys.exit(f"the test needs {tool}: run scripts/need network")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", *as_root, "--net", "--mount", "--propagation", "private"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        sys.exit("the test needs network namespaces: run it as root, or allow user namespaces")
    os.environ[ENTERED] = "1"
    os.execvp(command[0], [*command, sys.executable, *sys.argv])


class Network:
    """Addresses on one switch."""

    def __init__(self, subnet=SUBNET):
        self.subnet = subnet
        run("ip", "link", "set", "lo", "up")
        # The names of namespaces are files in this folder.
        os.makedirs("/run/netns", exist_ok=True)
        run("mount", "-t", "tmpfs", "none", "/run/netns")
        run("ip", "link", "add", "switch", "type", "bridge")
        # The address of the test itself.
        run("ip", "addr", "add", f"{subnet}.254/24", "dev", "switch")
        run("ip", "link", "set", "switch", "up")
        self.members = []

    def add(self, name):
        """Creates a namespace with its own address. Returns the address."""
        address, cable = f"{self.subnet}.{len(self.members) + 1}", f"v-{name}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", cable, "master", "switch", "up")
        run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", name, "link", "set", device, "up")
        run("ip", "netns", "exec", name, "nft", "-f", "-", text=RULES)
        self.members.append(name)
        return address

    def address(self, name):
        return f"{self.subnet}.{self.members.index(name) + 1}"

    def part(self, name, others):
        """Drops all packets between one member and the others, in both directions."""
        addresses = ", ".join(map(self.address, others))
        run("ip", "netns", "exec", name, "nft", "add", "element", "ip", "dunlin", "parted", f"{{ {addresses} }}")

    def join(self):
        """Ends all partitions."""
        for name in self.members:
            run("ip", "netns", "exec", name, "nft", "flush", "set", "ip", "dunlin", "parted")


def command_in(namespace, command):
    """The command that runs this command in a namespace. The process keeps its id."""
    return ["ip", "netns", "exec", namespace, *map(str, command)] if namespace else command
