"""Runs `dunlin-bench` on one server after the other, and reads what it and the servers report."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dunlin/peers"
#: A run that takes longer has failed.
RUN_TIMEOUT_S = 240
#: Of a server whose metrics are read while it runs.
PORT = 26_100
#: The exit codes of a run that has a result: all goals met, or one missed.
HAS_RESULT = (0, 3)


def started(program, *arguments, speaks=None):
    """The options of `dunlin-bench` that start this server."""
    options = [f"--spawn={program}", f"--spawn-args={' '.join(map(str, arguments))}"]
    return options + ([f"--speaks={speaks}"] if speaks else [])


def in_node(name, speaks, *arguments):
    return started("node", HERE / "node" / f"{name}.mjs", "-c", "{config}", *arguments, speaks=speaks)


def feed(walk, marshal, slots):
    """A Go broadcaster of bench/peers/feed-go."""
    return started(BUILT / "feed-go", "-c", "{config}", "-walk", walk, "-marshal", marshal, "-slots", slots)


class Failed(Exception):
    """A run has no result."""


class Laboratory:
    """A server of Dunlin's, the load generator beside it, and a folder for what they write."""

    def __init__(self, dunlin, folder):
        self.dunlin = dunlin
        self.bench = dunlin.with_name("dunlin-bench")
        self.folder = Path(folder)

    def run(self, scenario, *options, pages=None):
        """The report of a run, and the figures that a Go server wrote meanwhile, each a list of dictionaries. The server's pages of
        metrics while it runs are added to `pages`, if that is a list."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        report = folder / "report"
        command = [self.bench, *scenario.split(), *options, "--quiet", f"--json={report}"]
        environment = {**os.environ, "PEER_STATS": str(folder)}
        ended = threading.Event()
        if pages is not None:
            command.append(f"--port={PORT}")
            threading.Thread(target=collect, args=(PORT, pages, ended), daemon=True).start()
        try:
            done = subprocess.run(
                command, env=environment, timeout=RUN_TIMEOUT_S, capture_output=True, text=True, check=False
            )
            if done.returncode not in HAS_RESULT or not report.is_file():
                raise Failed(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr[-2_000:]}")
            return json.loads(report.read_text("utf-8")), {
                file.stem.rpartition("-")[0]: [json.loads(line) for line in file.read_text("utf-8").splitlines()]
                for file in sorted(folder.glob("*.json"))
            }
        except subprocess.TimeoutExpired as expired:
            raise Failed(f"{' '.join(map(str, command))}: did not end within {RUN_TIMEOUT_S} s") from expired
        finally:
            ended.set()
            shutil.rmtree(folder)

    def run_at_once(self, times, scenario, *options):
        """Several runs with a server each, at the same time: one process cannot have enough files open."""
        with ThreadPoolExecutor(times) as pool:
            return list(pool.map(lambda _: self.run(scenario, *options), range(times)))


def collect(port, pages, ended):
    """Reads the page of metrics twice per second."""
    while not ended.wait(0.5):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
                pages.append(response.read().decode())
        except OSError:
            # The server has not started yet, or has ended.
            continue


def figure(report, name):
    """A figure of `dunlin-bench run`; None if it was not measured."""
    found = report["figures"].get(name)
    return found["value"] if found else None


def fullest_window(stats):
    """The window of a broadcaster with the most publications: clients neither came nor went in it."""
    windows = [window for line in stats.get("feed", []) for window in line]
    return max(windows, key=lambda window: window["publications"], default=None)
