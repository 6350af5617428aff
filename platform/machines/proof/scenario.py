#!/usr/bin/env python3
"""Plays what happens to machines, in this order; each step finds the state that the one before has left. See ../test.

    scenario.py WORK PREFIX PACKAGES [STEP...]
"""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path

import drills
from checks import HUGE_PAGES, TUNNEL, check_end_state, check_firewall, check_ssh, expect
from cluster import Person
from machine import OUTSIDE, Failed, Machine, make_networks, run, run_shown, until
from session import Session

HERE = Path(__file__).resolve().parent


class Scenario:
    """Two machines, and the playbook's runs."""

    def __init__(self, work, prefix, packages):
        self.work, self.token = work, secrets.token_hex(16)
        # A store of copies of snapshots, and its password.
        self.copies, self.copies_password = None, secrets.token_hex(16)
        self.version, self.next = sorted(path.name for path in (work / "k3s").iterdir())
        for name in ["key", "tunnel-key"]:
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", work / name)
        self.server, self.worker, self.more = (
            Machine(work, prefix, packages, name, number) for name, number in [("server1", 11), ("worker1", 12), ("worker2", 13)]
        )
        self.machines = [self.server, self.worker]
        self.outside = OUTSIDE
        self.ansible = Path(sys.executable).parent
        self.person = Person(self)
        for file in ["site.yml", "rotate-token.yml", "rotate-certificates.yml", "ansible.cfg", "roles"]:
            (work / "playbook").mkdir(exist_ok=True)
            run("cp", "-r", HERE.parent / file, work / "playbook")

    def inventory(self):
        variables = {
            "ansible_user": "ops",
            "private_interface": "private0",
            "users_admins": [{"name": "ops", "keys": [(self.work / "key.pub").read_text("utf-8").strip()]}],
            "users_tunnels": [{"name": TUNNEL, "keys": [(self.work / "tunnel-key.pub").read_text("utf-8").strip()]}],
            "kernel_huge_pages": HUGE_PAGES,
            "k3s_version": self.version,
            "k3s_binary_path": str(self.work / "k3s" / self.version),
            "k3s_binary_sha256": run("sha256sum", self.work / "k3s" / self.version).stdout.split()[0],
            "k3s_ready_tries": 60,
            "k3s_copies": bool(self.copies),
            "k3s_copies_keep": 0,
        }

        def group(machines):
            return {"hosts": {machine.name: {"ansible_host": machine.public, "private_address": machine.private} for machine in machines}}

        return {"all": {"vars": variables, "children": {"k3s_server": group(self.machines[:1]), "k3s_agent": group(self.machines[1:])}}}

    def write_inventory(self):
        hosts = self.work / "hosts.json"
        hosts.write_text(json.dumps(self.inventory()), "utf-8")
        return hosts

    def environment(self, token=None):
        return os.environ | {
            "K3S_TOKEN": token or self.token,
            "K3S_COPIES_REPOSITORY": f"{self.copies.url}/{self.server.name}/" if self.copies else "",
            "K3S_COPIES_PASSWORD": self.copies_password,
            "ANSIBLE_HOME": str(self.work / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.work / "cp"),
            "ANSIBLE_SSH_ARGS": f"-F none -o ControlMaster=auto -o ControlPersist=30s -o UserKnownHostsFile={self.work}/known_hosts "
            "-o StrictHostKeyChecking=accept-new -o ServerAliveInterval=5",
            "ANSIBLE_PRIVATE_KEY_FILE": str(self.work / "key"),
        }

    def play(self, *arguments, token=None, playbook="site.yml", more=None):
        """The exit code and the output of a run of the playbook."""
        began = time.monotonic()
        command = [self.ansible / "ansible-playbook", "-i", self.write_inventory(), playbook, *arguments]
        options = {"cwd": self.work / "playbook", "env": self.environment(token) | (more or {})}
        hidden = [self.token, self.copies_password, *(more or {}).values()]
        code, text = run_shown(command, self.work / "playbook.log", hidden, **options)
        print(f"  {playbook} {' '.join(map(str, arguments))}: exit code {code}, {time.monotonic() - began:.0f} s", flush=True)
        if any(secret in text for secret in hidden):
            raise Failed("the output of a run has a secret")
        return code, text

    def succeed(self, *arguments, **options):
        code, text = self.play(*arguments, **options)
        if code:
            raise Failed(f"the run failed:\n{text[-6000:]}")
        return {name: int(count) for name, count in re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", text, re.MULTILINE)}

    def refuse(self, sentence, *arguments, **options):
        code, text = self.play(*arguments, **options)
        flat = " ".join(text.split())
        if not code or sentence not in flat:
            raise Failed(f"exit code {code}, and expected {sentence!r} in:\n{text[-6000:]}")

    def replace(self, machine):
        machine.lose()
        self.boot_empty(machine)

    def boot_empty(self, machine):
        machine.wipe()
        shutil.rmtree(self.work / "cp", ignore_errors=True)
        subprocess.run(["ssh-keygen", "-R", machine.public, "-f", self.work / "known_hosts"], capture_output=True, check=False)

    def end_state(self):
        for machine, other in zip(self.machines, self.machines[1:] + self.machines[:1], strict=True):
            check_end_state(machine, other, self.server, self.work, self.version, self.token)

    def unchanged(self):
        expect("changes of a second run", self.succeed(), {machine.name: 0 for machine in self.machines})

    def show_cluster(self):
        """What helps to find the cause of a failure."""
        for machine in [machine for machine in self.machines if machine.leader]:
            for command in ["k3s kubectl get nodes,pods -A -o wide", "tail -n 6 /var/log/k3s-parts/*", "journalctl -n 20 --no-pager -u 'k3s*'"]:
                shown = subprocess.run([*machine.in_all(), "sh", "-c", command], capture_output=True, text=True, check=False)
                print(shown.stdout + shown.stderr, file=sys.stderr, flush=True)

    def calls(self, machine):
        return machine.inside("cat", "/var/lib/rancher/k3s/calls").splitlines()


def first_run(play):
    """The lines of the README on bare machines: from `git clone` to a Dunlin that serves the arena."""
    play.person.follow_readme()
    play.end_state()
    for machine in [play.server, play.worker]:
        drills.arena_is_served(play, machine)
    play.session = Session(play.server.public, "arena.example.com", play.person.folder / "web.pem", "arena:hunt")
    until("the session gets ticks of the arena", lambda: play.session.messages > 50)


def second_run(play):
    play.unchanged()
    rules = check_firewall(play.server)
    expect("a table of another program", "table ip probe" in rules, True)
    for verb in ["reload", "restart"]:
        play.server.inside("systemctl", verb, "nftables")
        expect(f"rules after a {verb}", sorted(check_firewall(play.server).split("\n")), sorted(rules.split("\n")))


def wrong_token(play):
    machines = [play.server, play.worker]
    before = [machine.inside("sha256sum", "/etc/rancher/k3s/token") for machine in machines]
    play.refuse("The token differs from the token of the server on server1; nothing was changed there.", token="wrong-token-of-someone")
    expect("the tokens of the machines", [machine.inside("sha256sum", "/etc/rancher/k3s/token") for machine in machines], before)


def refused_settings(play):
    """A missing package without apt, and a program with another checksum: nothing is changed, and a sentence names the cause."""
    rules = check_firewall(play.worker)
    without_apt = json.dumps({"packages_install": False, "packages_more": ["no-such-package"]})
    play.refuse("worker1 lacks the packages no-such-package, and packages_install is false.", "-l", "worker1", "-e", without_apt)
    before = play.worker.inside("ls", "-l", "/usr/local/bin")
    play.refuse("Nothing was copied. Correct the one that is wrong.", "-l", "worker1", "-e", f"k3s_binary_sha256={'0' * 64}")
    play.refuse("An agent must not be newer than the server", "-l", "worker1", "-e", f"k3s_version={play.next}")
    skipped = f"runs k3s {play.version}, and k3s_version is v1.99.0+k3s1. Nothing was changed there. Upgrade to a release of"
    play.refuse(skipped, "-l", "server1", "-e", "k3s_version=v1.99.0+k3s1")
    play.refuse("is not the first address of private_interface host0 on worker1.", "-l", "worker1", "-e", "private_interface=host0")
    two = play.work / "two.json"
    two.write_text(json.dumps({"k3s_server": {"hosts": {"worker1": {}}}}), "utf-8")
    play.refuse("The group k3s_server has 2 machines: server1, worker1.", "-l", "worker1", "-i", two)
    expect("programs of the worker", play.worker.inside("ls", "-l", "/usr/local/bin"), before)
    expect("rules of the worker", check_firewall(play.worker), rules)


def failed_replacement(play):
    """The run for a lost worker's replacement fails before the handlers, is tried with a wrong token, and is repeated."""
    play.replace(play.worker)
    play.refuse("no-such-package", "-l", "worker1", "-e", '{"packages_more": ["no-such-package"]}')
    check_ssh(play.worker, play.work)
    check_firewall(play.worker)
    sentence = "The server refused the token of worker1. Set K3S_TOKEN to the token of the server, and run again."
    play.refuse(sentence, "-l", "worker1", "-e", "k3s_ready_tries=3", token="wrong-token-of-someone")
    play.succeed("-l", "worker1")
    play.end_state()
    expect("the old node was deleted", any("kubectl delete node worker1" in call for call in play.calls(play.server)), True)
    play.unchanged()


def restarted(play):
    """The worker's power fails. When it is back, the private address comes late, and everything that needs it starts all the same."""
    starts = "systemctl show --property=NRestarts --value prometheus-node-exporter"

    def late():
        # Debian's unit gives up after five attempts.
        until("the node exporter was started more than five times", lambda: int(drills.shown(play.worker, starts) or 0) > 5)

    play.worker.restart(late)
    shutil.rmtree(play.work / "cp", ignore_errors=True)
    drills.arena_is_served(play, play.worker)
    play.end_state()
    play.unchanged()


def handlers_without_force(play):
    """Without force_handlers, the same failure leaves a state that a later run does not mend, and the checks find it."""
    site = play.work / "playbook/site.yml"
    text = site.read_text("utf-8")
    expect("site.yml has force_handlers", "force_handlers: true" in text, True)
    site.write_text(text.replace("force_handlers: true", "force_handlers: false"), "utf-8")
    play.replace(play.worker)
    play.refuse("no-such-package", "-l", "worker1", "-e", '{"packages_more": ["no-such-package"]}')
    site.write_text(text, "utf-8")
    play.succeed("-l", "worker1")
    try:
        check_ssh(play.worker, play.work)
    except Failed as found:
        print(f"  found: {found}")
        play.replace(play.worker)
        play.succeed("-l", "worker1")
        return
    raise Failed("a lost handler was not found")


STEPS = [first_run, second_run, wrong_token, refused_settings, drills.lost_worker, restarted, failed_replacement, handlers_without_force]
STEPS += [drills.upgrade, drills.rotated_token, drills.rotated_certificates, drills.restored_server, drills.bootstrapped]


def main():
    work, prefix, packages, *chosen = sys.argv[1:]
    unknown = set(chosen) - {step.__name__ for step in STEPS}
    if unknown:
        sys.exit(f"there is no step {', '.join(sorted(unknown))}; the steps are {', '.join(step.__name__ for step in STEPS)}")
    steps = [step for step in STEPS if not chosen or step.__name__ in chosen or step is first_run]
    os.chdir(work)
    make_networks()
    play = Scenario(Path(work), prefix, packages)
    began = time.monotonic()
    for machine in play.machines:
        machine.wipe()
    print(f"two machines accept SSH after {time.monotonic() - began:.0f} s", flush=True)
    for number, step in enumerate(steps, 1):
        print(f"step {number} of {len(steps)}: {step.__name__}", flush=True)
        began = time.monotonic()
        try:
            step(play)
        except Failed as failed:
            print(f"{step.__name__}: {failed}", file=sys.stderr, flush=True)
            play.show_cluster()
            sys.exit(1)
        print(f"  passed after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
