"""What all parts of a release share: where things are, the version, the time in archives, and how programs are run."""

import json
import os
import re
import subprocess
import tomllib
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class ReleaseError(Exception):
    """Why no files were written, and what to do about it."""


@dataclass(frozen=True)
class Release:
    root: Path
    output: Path
    work: Path
    version: str
    # The time of each file in the archives.
    seconds: int
    is_fast: bool

    @property
    def stage(self) -> Path:
        """Where the programs, pages and completions are. cargo-deb looks for them in the folder of this name in its target folder."""
        return self.work / "target" / "release"

    @property
    def level(self) -> int:
        return 1 if self.is_fast else 9


def run(*command: object, folder: Path | None = None, variables: dict[str, str] | None = None) -> str:
    """Runs a program and returns what it prints. What it says on stderr is shown, as progress of long ones is there."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env={**os.environ, **(variables or {})}, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(words)}: exit code {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def version_of_all() -> str:
    """The version of the workspace. A client with another one was forgotten."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    project = ElementTree.parse(ROOT / "clients/csharp/Dunlin.Rooms.csproj")
    header = (ROOT / "clients/c/dunlin_room.h").read_text()
    plugin = re.search(r'^version="([^"]*)"$', (ROOT / "clients/godot/addons/dunlin_room/plugin.cfg").read_text(), re.MULTILINE)
    defined = re.search(r'^#define DUNLIN_ROOM_VERSION "([^"]*)"$', header, re.MULTILINE)
    chart = re.search(r"^version: (.*)$", (ROOT / "platform/charts/roost/Chart.yaml").read_text(), re.MULTILINE)
    others = {
        "platform/charts/roost/Chart.yaml": chart[1] if chart else None,
        "web/room-client/package.json": json.loads((ROOT / "web/room-client/package.json").read_text())["version"],
        "clients/csharp/Dunlin.Rooms.csproj": project.findtext(".//Version"),
        "clients/c/dunlin_room.h": defined[1] if defined else None,
        "clients/godot/addons/dunlin_room/plugin.cfg": plugin[1] if plugin else None,
    }
    for file, other in others.items():
        if other != version:
            raise ReleaseError(f"{file} has version {other}, Cargo.toml {version}: set the same version in both")
    return version


def commit_seconds() -> int:
    """The time of the commit, so that the same commit gives the same bytes at any time."""
    named = os.environ.get("SOURCE_DATE_EPOCH")
    if named is None:
        named = run("git", "log", "-1", "--format=%ct", folder=ROOT).strip()
    if not re.fullmatch(r"[0-9]{1,11}", named) or int(named) < 315532800:
        raise ReleaseError(f"SOURCE_DATE_EPOCH is {named!r}: set it to the commit's time in seconds, `git log -1 --format=%ct`")
    return int(named)
