"""The server and its load generator: symbols, pages, completions, the archive, the Debian package, the bill of materials."""

import gzip
import os
import platform
import re
from pathlib import Path

from archives import File, published_page, tar_gz
from release import Release, ReleaseError, run

PROGRAMS = ("dunlin", "dunlin-bench")

# The file of each shell's script beside the programs, which the Debian package names as well.
COMPLETIONS = {"bash": "dunlin.bash", "zsh": "_dunlin", "fish": "dunlin.fish"}


def completion_places(program: str) -> dict[str, str]:
    """The place of each shell's script in the archive of a program."""
    return {
        "bash": f"share/bash-completion/completions/{program}",
        "zsh": f"share/zsh/site-functions/_{program}",
        "fish": f"share/fish/vendor_completions.d/{program}.fish",
    }


def top_of(release: Release, program: str, machine: str) -> str:
    """The folder in the archive of a program, and the beginning of the names of its files."""
    return f"{program}-{release.version}-linux-{machine}"


def write_bill(release: Release, program: str, machine: str, *arguments: object) -> None:
    """The bill of materials of a program, by a tool that is compiled once."""
    tool = release.work / "roost-image"
    if not tool.exists():
        run("go", "build", "-o", tool, "./cmd/roost-image", folder=release.root / "platform")
    output = release.output / f"{top_of(release, program, machine)}.cdx.json"
    run(tool, "program-sbom", "--name", program, "--version", release.version, "--output", output, *arguments)


def build(release: Release) -> Path:
    """Compiles the programs as `make build` does, but without paths of this machine in them."""
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")).resolve()
    target = Path(os.environ.get("CARGO_TARGET_DIR", release.root / "target")).resolve() / "released"
    paths = {release.root: "/dunlin", cargo: "/cargo", target: "/target"}
    in_rust = "\x1f".join(f"--remap-path-prefix={path}={name}" for path, name in paths.items())
    in_c = " ".join(f"-ffile-prefix-map={path}={name}" for path, name in paths.items())
    flags = {"CARGO_ENCODED_RUSTFLAGS": in_rust, "CFLAGS": in_c, "CXXFLAGS": in_c}
    # A folder of its own: with other flags, cargo compiles everything anew.
    run("cargo", "build", "--release", "--locked", "--package", "dunlin", "--package", "dunlin-bench", "--target-dir", target,
        folder=release.root, variables=flags)
    for program in PROGRAMS:
        content = (target / "release" / program).read_bytes()
        for path in paths:
            if str(path).encode() in content:
                raise ReleaseError(f"{program} contains {path}, so its bytes depend on this machine: map it in {__file__}")
    return target / "release"


def prepare(release: Release, binaries: Path) -> None:
    """Writes what archives and packages have in common, where cargo-deb expects it."""
    stage = release.stage
    stage.mkdir(parents=True)
    for program in PROGRAMS:
        split_symbols(binaries / program, stage)
    dunlin = stage / "dunlin"
    version = run(dunlin, "version").split()[-1]
    if version != release.version:
        raise ReleaseError(f"{binaries}/dunlin has version {version}, this checkout {release.version}: compile it again")
    run(dunlin, "man-pages", stage / "man")
    for page in list((stage / "man").iterdir()):
        # As Debian's policy wants them. cargo-deb compresses only pages that lie outside of its target folder.
        (stage / "man" / f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
    (stage / "completions").mkdir()
    for shell, name in COMPLETIONS.items():
        (stage / "completions" / name).write_text(run(dunlin, "completion", shell))


def split_symbols(binary: Path, stage: Path) -> None:
    """The program without symbols, and beside it the symbols, which debuggers find by the name and checksum in the program."""
    if not binary.is_file():
        raise ReleaseError(f"{binary} is missing: build it with `make build`, or name the folder with --binaries")
    symbols = f"{binary.name}.debug"
    run("objcopy", "--only-keep-debug", binary, stage / symbols)
    run("objcopy", "--strip-all", f"--add-gnu-debuglink={symbols}", binary, stage / binary.name, folder=stage)


def archives(release: Release) -> None:
    stage = release.stage
    top = top_of(release, "dunlin", platform.machine())
    files = {f"{top}/bin/{program}": File(stage / program, 0o755) for program in PROGRAMS}
    files[f"{top}/LICENSE"] = File(release.root / "LICENSE")
    files[f"{top}/README.md"] = published_page(release.root / "README.md", release.root, release.version)
    files[f"{top}/config.json"] = File(release.root / "packaging/config.json")
    for page in (stage / "man").glob("*.1"):
        files[f"{top}/share/man/man1/{page.name}"] = File(page)
    for shell, place in completion_places("dunlin").items():
        files[f"{top}/{place}"] = File(stage / "completions" / COMPLETIONS[shell])
    tar_gz(release.output / f"{top}.tar.gz", files, release.seconds, release.level)
    symbols = {f"{top}-symbols/{program}.debug": File(stage / f"{program}.debug") for program in PROGRAMS}
    tar_gz(release.output / f"{top}-symbols.tar.gz", symbols, release.seconds, release.level)


def debian_package(release: Release) -> None:
    fast = ["--fast", "--compress-type=gz", "--compress-system"] if release.is_fast else []
    variables = {"CARGO_TARGET_DIR": str(release.work / "target"), "SOURCE_DATE_EPOCH": str(release.seconds)}
    run("cargo", "deb", "--quiet", "--no-build", "--no-strip", "--no-dbgsym", *fast, "--package", "dunlin",
        "--output", f"{release.output}/", folder=release.root, variables=variables)


def bill_of_materials(release: Release) -> None:
    write_bill(release, "dunlin", platform.machine(), "--workspace", release.root, *(release.stage / program for program in PROGRAMS))


def needed_libraries(release: Release) -> str:
    """The newest version of each library that the programs ask for: machines with older ones cannot run them."""
    newest: dict[str, tuple[int, ...]] = {}
    for program in PROGRAMS:
        imported = run("objdump", "-T", release.stage / program)
        for library, version in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)", imported):
            numbers = tuple(int(number) for number in version.split("."))
            newest[library] = max(newest.get(library, ()), numbers)
    return ", ".join(f"{library} {'.'.join(map(str, numbers))}" for library, numbers in sorted(newest.items()))
