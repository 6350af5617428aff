"""Archives whose bytes depend only on names, contents and modes: sorted names, one time for all, owner 0."""

import gzip
import io
import re
import tarfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PROJECT = "https://github.com/dunlin-project/dunlin"


@dataclass(frozen=True)
class File:
    """A file of an archive: its bytes, or where they are."""

    content: bytes | Path
    mode: int = 0o644

    def bytes(self) -> bytes:
        return self.content.read_bytes() if isinstance(self.content, Path) else self.content


def tar_gz(path: Path, files: dict[str, File], seconds: int, level: int) -> None:
    with path.open("wb") as raw, gzip.GzipFile("", "wb", level, raw, mtime=seconds) as packed, \
            tarfile.open(mode="w", fileobj=packed, format=tarfile.USTAR_FORMAT) as archive:
        for name, file in sorted(files.items()):
            content = file.bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), file.mode, seconds
            archive.addfile(entry, io.BytesIO(content))


def zip_file(path: Path, files: dict[str, File], seconds: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(files.items()):
            entry = zipfile.ZipInfo(name, time.gmtime(seconds)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            # Whoever unpacks it on Unix gets this mode.
            entry.create_system, entry.external_attr = 3, (0o100000 | file.mode) << 16
            archive.writestr(entry, file.bytes())


def published_page(page: Path, root: Path, version: str) -> File:
    """A page of the repository, with its links to other pages as addresses: those pages are not in the archive."""
    folder = PurePosixPath(page.relative_to(root).parent)

    def absolute(link: re.Match[str]) -> str:
        image, text, target = link[1], link[2], link[3]
        kind = "raw" if image else "blob"
        return f"{image}[{text}]({PROJECT}/{kind}/v{version}/{normal(folder / target)})"

    text = page.read_text()
    return File(re.sub(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)", absolute, text).encode())


def normal(path: PurePosixPath) -> str:
    """Without `..`; the target of a link may have an anchor."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
