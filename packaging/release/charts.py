"""The Helm chart of Roost."""

from archives import File, tar_gz
from release import Release


def helm(release: Release) -> None:
    folder = release.root / "platform/charts/roost"
    files = {f"roost/{path.relative_to(folder)}": File(path) for path in folder.rglob("*") if path.is_file()}
    files["roost/LICENSE"] = File(release.root / "LICENSE")
    tar_gz(release.output / f"roost-{release.version}.tgz", files, release.seconds, release.level)
