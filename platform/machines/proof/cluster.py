"""What people do with a cluster after the playbook: the lines of the README, apps, and requests from outside."""

import http.client
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time

from machine import ROOT, Failed, run, run_shown, until

README = ROOT / "platform/machines/README.md"
REQUEST_PATIENCE_S = 8
DRILL_HOSTS = ["files.example.com", "notes.example.com", "rt.example.com"]
REQUEST_PAUSE_S = 0.08  # between requests of one of the load's threads
MARK = "make machines` runs these lines"


def readme_lines():
    """The block of the README that follows the mark."""
    _, _, rest = README.read_text("utf-8").partition(MARK)
    found = re.search(r"```bash\n(.*?)```", rest, re.DOTALL)
    if not found:
        raise Failed(f"{README} has no block of bash after {MARK!r}")
    return found[1]


class Refusal:
    """Why there is no answer. It counts as nothing where an answer is waited for."""

    def __init__(self, reason):
        self.reason = reason

    def __bool__(self):
        return False


class Person:
    """Somebody outside of the private network, with a home, a key for SSH, and the programs of the README."""

    def __init__(self, play):
        self.play, self.work = play, play.work
        self.home = self.work / "home"
        self.home.mkdir(exist_ok=True)
        self.folder = self.home / "dunlin/platform"
        self.kubeconfig = self.folder / "machines/k3s.kubeconfig"
        self.drills = self.folder / "drills"

    def environment(self):
        """SSH asks for no password, and `git clone` takes the commit under test instead of the published one."""
        options = self.work / "ssh_config"
        options.write_text(
            f"Host *\n  IdentityFile {self.work}/key\n  IdentitiesOnly yes\n  BatchMode yes\n  UserKnownHostsFile {self.work}/known_hosts\n"
            "  StrictHostKeyChecking accept-new\n  ExitOnForwardFailure yes\n  ServerAliveInterval 5\n",
            "utf-8",
        )
        ssh = self.work / "bin/ssh"
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {options} "$@"\n', "utf-8")
        ssh.chmod(0o755)
        editor = self.work / "bin/editor"
        editor.write_text(f'#!/bin/sh\nexec cp {self.play.write_inventory()} "$1"\n', "utf-8")
        editor.chmod(0o755)
        return self.play.environment() | {
            "HOME": str(self.home), "EDITOR": str(editor), "SERVER": self.play.server.public, "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{self.work}/bin:{self.play.ansible}:{self.work}/parts:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "ANSIBLE_SSH_EXECUTABLE": str(ssh), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_VALUE_0": "https://github.com/dunlin-project/dunlin",
            "GIT_CONFIG_KEY_0": f"url.{self.work}/repository.git.insteadOf",
        }  # fmt: skip

    def follow_readme(self):
        began = time.monotonic()
        command = ["bash", "-euo", "pipefail", "-c", readme_lines()]
        code, text = run_shown(command, self.work / "readme.log", cwd=self.home, env=self.environment())
        if code:
            raise Failed(f"the lines of the README: exit code {code}\n{text[-6000:]}")
        print(f"  the lines of the README took {time.monotonic() - began:.0f} s", flush=True)
        return text

    def does(self, *command, **options):
        environment = self.environment() | options.pop("env", {})
        return run(*command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, **options).stdout

    def shows(self, *command):
        """A long command, with progress."""
        code, text = run_shown(command, self.work / "shown.log", cwd=self.folder, env=self.environment())
        if code:
            raise Failed(f"{' '.join(command)}: exit code {code}\n{text[-6000:]}")

    def drill_file(self, name, text):
        """A file beside those of the README. The first one comes with a certificate for its hosts, which it signs itself."""
        if not self.drills.exists():
            self.drills.mkdir()
            shutil.copy(self.folder / "apps/roost.yaml", self.drills)
            self.does("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=drill",
                      "-keyout", "drills/drill-key.pem", "-out", "drills/drill.pem", "-addext", f"subjectAltName={','.join(f'DNS:{host}' for host in DRILL_HOSTS)}")  # fmt: skip
            self.kubectl("-n", "web", "create", "secret", "tls", "drill-tls", "--cert=drills/drill.pem", "--key=drills/drill-key.pem")
        (self.drills / name).write_text(text, "utf-8")

    def kubectl(self, *arguments):
        return self.does("kubectl", *arguments)

    def connect(self):
        """Opens the tunnel again, if the server's SSH has ended it."""
        if subprocess.run(["kubectl", "get", "--raw", "/readyz"], env=self.environment(), capture_output=True, check=False).returncode:
            self.does("ssh", "-fN", "-L", "6443:127.0.0.1:6443", f"ops@{self.play.server.public}")
            until("the API server answers", lambda: self.kubectl("get", "--raw", "/readyz"))

    def move_to(self, node, *apps):
        """Has all pods of apps on one node."""
        others = [other for other in self.kubectl("get", "nodes", "-o", "name").split() if other != f"node/{node}"]
        self.kubectl("cordon", *others)
        for app in apps:
            self.kubectl("-n", "web", "delete", "pod", "-l", f"apps.roost.dev/app={app}", "--wait")
            until(f"{app} serves again", lambda app=app: self.answer(self.play.server, f"{app}.example.com"))
        for app in apps:
            self.kubectl("-n", "web", "wait", "--for=condition=Ready", "pod", "-l", f"apps.roost.dev/app={app}", "--timeout=240s")
        self.kubectl("uncordon", *others)

    def answer(self, machine, host, path="/"):
        """What an app answers through the ingress controller of a machine, on a connection of its own, or a refusal."""
        try:
            context = ssl.create_default_context(cafile=self.drills / "drill.pem" if host in DRILL_HOSTS else self.folder / "web.pem")
            with socket.create_connection((machine.public, 443), REQUEST_PATIENCE_S) as plain:
                with context.wrap_socket(plain, server_hostname=host) as stream:
                    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                    response = http.client.HTTPResponse(stream)
                    response.begin()
                    text = response.read().decode()
                    return text if response.status == 200 else Refusal(f"status {response.status}")
        except (OSError, http.client.HTTPException) as error:
            return Refusal(f"{type(error).__name__}: {error}")


class Load:
    """Asks an app over and over, and counts answers and failures."""

    def __init__(self, person, machine, host, threads=4):
        self.person, self.machine, self.host = person, machine, host
        self.answers, self.failures, self.longest_s, self.is_ending = 0, [], 0.0, False
        self.answered_since_failure, self.reasons = 0, {}
        self.began = time.monotonic()
        self.guard = threading.Lock()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.is_ending:
            began = time.monotonic()
            answer = self.person.answer(self.machine, self.host)
            with self.guard:
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                if not answer:
                    self.failures.append(began)
                    first, _, count = self.reasons.get(answer.reason, (began, None, 0))
                    self.reasons[answer.reason] = (first, began, count + 1)
                    self.answered_since_failure = 0
                else:
                    self.answers += 1
                    self.answered_since_failure += 1
            time.sleep(max(0.0, began + REQUEST_PAUSE_S - time.monotonic()))  # the rate of the load

    def end(self):
        self.is_ending = True
        for thread in self.threads:
            thread.join()

    def report(self):
        """Each reason of a failure, with how often it was there and when, in seconds from the start."""
        return [
            f"{self.machine.name}: {reason}: {count} times, {first - self.began:.0f} to {last - self.began:.0f} s"
            for reason, (first, last, count) in self.reasons.items()
        ]
