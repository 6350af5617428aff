"""The command roost of each architecture: static programs, which Go compiles on any machine, with their licences, completions and bills of materials."""

import platform
import re
from pathlib import Path

from archives import File, tar_gz
from programs import completion_places, top_of, write_bill
from release import Release, ReleaseError, run

# The names of Go, and those that `uname -m` prints and the other archives have.
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}

# Files with the terms of a module, in its folder or in that of a package that came from elsewhere.
LICENCE = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|PATENTS)([.-].*)?$", re.IGNORECASE)


def archives(release: Release) -> None:
    programs = {machine: compiled(release, architecture) for architecture, machine in ARCHITECTURES.items() if is_wanted(release, machine)}
    if platform.machine() not in programs:
        raise ReleaseError(f"roost is not released for {platform.machine()}, so it cannot print its completions here: run this on another machine")
    scripts = {place: File(run(programs[platform.machine()], "completion", shell).encode()) for shell, place in completion_places("roost").items()}
    for architecture, machine in ARCHITECTURES.items():
        if machine not in programs:
            continue
        top = top_of(release, "roost", machine)
        files = {f"{top}/bin/roost": File(programs[machine], 0o755), f"{top}/LICENSE": File(release.root / "LICENSE")}
        files[f"{top}/THIRD_PARTY_NOTICES.txt"] = File(notices(release, architecture))
        files |= {f"{top}/{place}": script for place, script in scripts.items()}
        tar_gz(release.output / f"{top}.tar.gz", files, release.seconds, release.level)
        write_bill(release, "roost", machine, programs[machine])


def is_wanted(release: Release, machine: str) -> bool:
    """Each architecture takes three minutes of a core to compile where Go has not compiled it before."""
    return not release.is_fast or machine == platform.machine()


def variables_of(architecture: str) -> dict[str, str]:
    return {"CGO_ENABLED": "0", "GOOS": "linux", "GOARCH": architecture}


def compiled(release: Release, architecture: str) -> Path:
    folder = release.work / f"roost-{architecture}"
    folder.mkdir()
    run("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", folder / "roost", "./cmd/roost",
        folder=release.root / "platform", variables=variables_of(architecture))
    return folder / "roost"


def notices(release: Release, architecture: str) -> bytes:
    """The terms of all modules that the program contains, and of Go itself."""
    layout = "{{if .Module}}{{if .Module.Version}}{{.Module.Path}}\t{{.Module.Version}}\t{{.Module.Dir}}\t{{.Dir}}{{end}}{{end}}"
    lines = run("go", "list", "-deps", "-f", layout, "./cmd/roost", folder=release.root / "platform", variables=variables_of(architecture))
    terms: dict[str, dict[str, str]] = {}
    for line in filter(None, lines.splitlines()):
        path, version, module, package = line.split("\t")
        found = terms.setdefault(f"{path} {version}", {})
        for folder in [Path(package), *Path(package).parents]:
            if not folder.is_relative_to(module):
                break
            found |= texts(folder, Path(module))
    root = Path(run("go", "env", "GOROOT").strip())
    terms[f"Go {run('go', 'env', 'GOVERSION').strip()}"] = texts(root, root)
    if without := sorted(name for name, found in terms.items() if not found):
        raise ReleaseError(f"these modules have no licence that was found: {', '.join(without)}; extend LICENCE in {__file__}")
    parts = ["roost contains these modules of others, under the terms below each name.\n"]
    for name, found in sorted(terms.items()):
        for file, text in sorted(found.items()):
            parts.append(f"{'=' * 80}\n{name}: {file}\n{'=' * 80}\n\n{text.strip()}\n")
    return "\n".join(parts).encode()


def texts(folder: Path, module: Path) -> dict[str, str]:
    return {
        str(file.relative_to(module)): file.read_text("utf-8", errors="replace")
        for file in folder.iterdir() if file.is_file() and LICENCE.match(file.name)
    }
