"""The command roost of each architecture: static programs, which Go compiles on any machine."""

import platform

from archives import File, tar_gz
from release import Release, run

# The names of Go, and those that `uname -m` prints and the other archives have.
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}


def archives(release: Release) -> None:
    for architecture, machine in ARCHITECTURES.items():
        # Each architecture takes three minutes of a core to compile where Go has not compiled it before.
        if release.is_fast and machine != platform.machine():
            continue
        program = release.work / f"roost-{architecture}"
        variables = {"CGO_ENABLED": "0", "GOOS": "linux", "GOARCH": architecture}
        run("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", program, "./cmd/roost",
            folder=release.root / "platform", variables=variables)
        top = f"roost-{release.version}-linux-{machine}"
        files = {f"{top}/bin/roost": File(program, 0o755), f"{top}/LICENSE": File(release.root / "LICENSE")}
        tar_gz(release.output / f"{top}.tar.gz", files, release.seconds, release.level)
