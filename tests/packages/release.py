#!/usr/bin/env python3
"""Checks the files of a release: packaging/release/run writes them twice, from binaries that are built already.

    release.py BINARIES FOLDER

FOLDER then has the files, and another run with another time zone, umask and folder has given the same bytes. Archives are
unpacked and used: manual pages, completions, symbols, the npm package in a project, the C# packages by Mono's compiler,
the header by a C and a C++ compiler.
"""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
import zipfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = "1700000000"
MACHINE = platform.machine()
PROGRAMS = ("dunlin", "dunlin-bench")


class Failed(Exception):
    pass


def run(*command: object, folder: Path | None = None, variables: dict[str, str] | None = None) -> str:
    words = [str(word) for word in command]
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}: exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def expect(what: str, got: object, expected: object) -> None:
    if got != expected:
        raise Failed(f"{what}: {got!r}, expected {expected!r}")


def without_lines(binaries: Path, work: Path) -> Path:
    """The programs with their symbols, and without what says in which line an address is: packing that twice takes seconds."""
    folder = work / "binaries"
    folder.mkdir()
    for program in PROGRAMS:
        run("objcopy", "--strip-debug", binaries / program, folder / program)
    return folder


def reproducible(binaries: Path, output: Path, work: Path) -> None:
    release = ROOT / "packaging/release/run"
    print(run(release, "--fast", "--binaries", binaries, output, variables={"SOURCE_DATE_EPOCH": SECONDS}), end="")
    # The work folder's name is in paths, and mode and time zone in archives, if anything lets them in.
    elsewhere = {"SOURCE_DATE_EPOCH": SECONDS, "TZ": "Asia/Tokyo", "TMPDIR": str(work)}
    run("sh", "-c", 'umask 077; exec "$0" "$@"', release, "--fast", "--binaries", binaries, work / "again", variables=elsewhere)
    for file in sorted(output.iterdir()):
        if file.read_bytes() != (work / "again" / file.name).read_bytes():
            raise Failed(f"two runs write different bytes into {file.name}")


def listed(output: Path, version: str) -> None:
    debian = run("dpkg", "--print-architecture").strip()
    expected = [
        f"Dunlin.Rooms.{version}.nupkg",
        "SHA256SUMS",
        f"dunlin-{version}-linux-{MACHINE}-symbols.tar.gz",
        f"dunlin-{version}-linux-{MACHINE}.cdx.json",
        f"dunlin-{version}-linux-{MACHINE}.tar.gz",
        f"dunlin-room-c-{version}.cdx.json",
        f"dunlin-room-c-{version}.tar.gz",
        f"dunlin-room-client-{version}.cdx.json",
        f"dunlin-room-client-{version}.tgz",
        f"dunlin-room-godot-{version}.zip",
        f"dunlin_{version}-1_{debian}.deb",
        f"io.github.dunlin-project.rooms-{version}.tgz",
        f"roost-{version}-linux-{MACHINE}.cdx.json",
        f"roost-{version}-linux-{MACHINE}.tar.gz",
        f"roost-{version}.tgz",
    ]
    expect("the files", sorted(file.name for file in output.iterdir()), sorted(expected))
    run("sha256sum", "--check", "--strict", "SHA256SUMS", folder=output)
    expect("lines of SHA256SUMS", len((output / "SHA256SUMS").read_text().splitlines()), len(expected) - 1)


def unpacked(archive: Path, work: Path) -> Path:
    """The only folder of an archive, in which all files belong to root and have the same time."""
    target = work / archive.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    with tarfile.open(archive) as content:
        for entry in content:
            found = (entry.uid, entry.gid, entry.mtime, entry.mode | 0o111)
            expect(f"{entry.name} in {archive.name}", found, (0, 0, int(SECONDS), 0o755))
        content.extractall(target, filter="data")
    [folder] = target.iterdir()
    return folder


def programs(output: Path, version: str, work: Path) -> None:
    top = unpacked(output / f"dunlin-{version}-linux-{MACHINE}.tar.gz", work)
    symbols = unpacked(output / f"dunlin-{version}-linux-{MACHINE}-symbols.tar.gz", work)
    dunlin = top / "bin/dunlin"
    expect("version", run(dunlin, "version").strip(), f"dunlin {version}")
    run(dunlin, "check-config", "-c", top / "config.json")
    # `dunlin bench` starts the program beside it.
    run(dunlin, "bench", "--help")
    # As docs/deploying.md says it.
    (work / "local").mkdir()
    run("tar", "-xzf", output / f"dunlin-{version}-linux-{MACHINE}.tar.gz", "-C", work / "local", "--strip-components=1",
        "--wildcards", "*/bin", "*/share")
    expect("what is installed by hand", sorted(path.name for path in (work / "local").iterdir()), ["bin", "share"])
    as_readme_says(output, work, version)
    for name in ("LICENSE", "README.md"):
        expect(f"{name} is there", (top / name).is_file(), True)
    if re.search(r"\]\(docs/", (top / "README.md").read_text()):
        raise Failed("README.md has a link to a page that is not in the archive")
    commands = set(re.findall(r"^  ([a-z-]+) ", run(dunlin, "--help"), re.MULTILINE)) - {"help"}
    if not {"serve", "completion", "storage"} <= commands or "man-pages" in commands:
        raise Failed(f"dunlin --help lists {commands}")
    pages = {page.name for page in (top / "share/man/man1").iterdir()}
    without = {f"dunlin-{command}.1" for command in commands} - pages
    expect("commands without a manual page", without, set())
    expect("the page of a command below another one", "dunlin-storage-check.1" in pages, True)
    expect("the version on dunlin.1", version in (top / "share/man/man1/dunlin.1").read_text(), True)
    completions(top, commands)
    for program in PROGRAMS:
        has_symbols(top / "bin" / program, symbols / f"{program}.debug")
    sbom(output / f"dunlin-{version}-linux-{MACHINE}.cdx.json", top, version)


def as_readme_says(output: Path, work: Path, version: str) -> None:
    """The commands with which README has a reader unpack the archive, in a home with nothing."""
    [commands] = set(re.findall(r"^```sh\n(mkdir -p ~/\.local && tar .*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL))
    home = work / "home"
    home.mkdir()
    printed = run("bash", "-euc", f"{commands}command -v dunlin && dunlin version", folder=output, variables={"HOME": str(home)})
    expect("dunlin as README unpacks it", printed.split(), [str(home / ".local/bin/dunlin"), "dunlin", version])


def roost(output: Path, version: str, work: Path) -> None:
    top = unpacked(output / f"roost-{version}-linux-{MACHINE}.tar.gz", work)
    program = top / "bin/roost"
    expect("roost helps", "  deploy " in run(program, "help"), True)
    expect("libraries that roost loads", "NEEDED" in run("readelf", "--dynamic", program), False)
    expect("roost has a path of this machine", str(ROOT).encode() in program.read_bytes(), False)
    # What bash has when TAB is pressed behind `roost `.
    script = top / "share/bash-completion/completions/roost"
    expect("bash completes roost", "__start_roost" in run("bash", "-c", 'source "$1"; complete -p roost', "bash", script), True)
    zsh, fish = top / "share/zsh/site-functions/_roost", top / "share/fish/vendor_completions.d/roost.fish"
    expect("the scripts of zsh and fish", (zsh.read_text().startswith("#compdef roost\n"), "complete -c roost " in fish.read_text()), (True, True))
    document = json.loads((output / f"roost-{version}-linux-{MACHINE}.cdx.json").read_text())
    expect("the version of its bill of materials", document["metadata"]["component"]["version"], version)
    components = {component["bom-ref"]: component for component in document["components"]}
    expect("the checksum of roost", components["file:roost"]["hashes"][0]["content"], hashlib.sha256(program.read_bytes()).hexdigest())
    # Each module of others is in the bill, and its terms are in the archive.
    modules = re.findall(r"^\tdep\t(\S+)\t(\S+)", run("go", "version", "-m", program), re.MULTILINE)
    terms = (top / "THIRD_PARTY_NOTICES.txt").read_text()
    without = [path for path, named in modules if f"\n{path} {named}: " not in terms]
    expect("modules without terms", without, [])
    names = {component["name"] for component in document["components"]}
    expect("modules that the bill lacks", {path for path, _ in modules} - names, set())
    expect("roost has modules", len(modules) > 30, True)


def completions(top: Path, commands: set[str]) -> None:
    script = top / "share/bash-completion/completions/dunlin"
    # What bash does when TAB is pressed behind `dunlin `.
    press = 'COMP_WORDS=(dunlin ""); COMP_CWORD=1; _dunlin dunlin "" dunlin; echo "${COMPREPLY[*]}"'
    offered = run("bash", "-c", f'source "$1"; complete -p dunlin; {press}', "bash", script)
    without = commands - set(offered.split())
    expect("commands that bash does not complete", without, set())
    expect("hidden commands that bash completes", {"man-pages", "config-reference"} & set(offered.split()), set())
    zsh = (top / "share/zsh/site-functions/_dunlin").read_text()
    fish = (top / "share/fish/vendor_completions.d/dunlin.fish").read_text()
    expect("the scripts of zsh and fish", (zsh.startswith("#compdef dunlin\n"), "complete -c dunlin " in fish), (True, True))


def has_symbols(program: Path, symbols: Path) -> None:
    """A debugger takes the file that the program names, if its checksum is the one that the program has."""
    if ".symtab" in run("readelf", "--wide", "--section-headers", program):
        raise Failed(f"{program.name} is not stripped")
    link = symbols.parent / f"{program.name}.link"
    run("objcopy", "--dump-section", f".gnu_debuglink={link}", program, "/dev/null")
    name, checksum = link.read_bytes().split(b"\0")[0].decode(), link.read_bytes()[-4:]
    expected = (symbols.name, zlib.crc32(symbols.read_bytes()))
    expect(f"the symbols of {program.name}", (name, int.from_bytes(checksum, sys.byteorder)), expected)
    if not re.search(r"^[0-9a-f]+ [tT] main$", run("nm", symbols), re.MULTILINE):
        raise Failed(f"{symbols.name} does not name the function main")


def sbom(bill: Path, top: Path, version: str) -> None:
    document = json.loads(bill.read_text())
    expect("the bill of materials", (document["bomFormat"], document["metadata"]["component"]["version"]), ("CycloneDX", version))
    components = {component["bom-ref"]: component for component in document["components"]}
    for program in PROGRAMS:
        sum_of_file = hashlib.sha256((top / "bin" / program).read_bytes()).hexdigest()
        expect(f"the checksum of {program}", components[f"file:{program}"]["hashes"][0]["content"], sum_of_file)
        expect(f"the crate {program}", f"pkg:cargo/{program}@{version}" in components, True)
    others = [component for component in document["components"] if component["bom-ref"].startswith("pkg:cargo/")]
    others = [component for component in others if not component["name"].startswith("dunlin")]
    incomplete = [component["name"] for component in others if not {"licenses", "hashes"} <= component.keys()]
    expect("crates without a licence or a checksum", incomplete, [])
    expect("more than 100 crates", len(others) > 100, True)


def debian(output: Path, version: str) -> None:
    [package] = output.glob("*.deb")
    paths = {line.split()[5].removeprefix(".") for line in run("dpkg-deb", "--contents", package).splitlines()}
    expected = {
        "/usr/bin/dunlin", "/usr/bin/dunlin-bench", "/usr/share/man/man1/dunlin.1.gz", "/usr/share/man/man1/dunlin-serve.1.gz",
        "/usr/share/bash-completion/completions/dunlin", "/usr/share/zsh/vendor-completions/_dunlin",
        "/usr/share/fish/vendor_completions.d/dunlin.fish", "/usr/share/doc/dunlin/watching/board.json",
        "/usr/share/doc/dunlin/watching/runbook.md",
        "/usr/share/doc/dunlin/watching/rules/dunlin.yaml", "/etc/dunlin/config.json", "/usr/lib/systemd/system/dunlin.service",
    }
    expect("files that the Debian package lacks", expected - paths, set())
    depends = run("dpkg-deb", "--field", package, "Depends")
    expect("libraries that it depends on", [name for name in ("libc6", "libstdc++6") if name not in depends], [])
    expect("its version", run("dpkg-deb", "--field", package, "Version").strip(), f"{version}-1")


def npm(output: Path, version: str, work: Path) -> None:
    archive = output / f"dunlin-room-client-{version}.tgz"
    folder = unpacked(archive, work)
    expect("licence and build stamp", ((folder / "LICENSE").is_file(), (folder / "dist/.built-from").exists()), (True, False))
    project = work / "project"
    project.mkdir()
    (project / "package.json").write_text('{ "type": "module" }')
    sdk = ROOT / "web/room-client/node_modules/centrifuge"
    run("npm", "install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", archive, sdk, folder=project,
        variables={"npm_config_cache": str(work / "npm-cache")})
    (project / "index.js").write_text("""
        import * as rooms from "@dunlin/room-client";
        import { ProtobufCentrifuge } from "@dunlin/room-client/protobuf";
        import * as bundle from "@dunlin/room-client/bundle";
        console.log(typeof rooms.Room, typeof ProtobufCentrifuge, typeof bundle.Room, typeof bundle.Centrifuge);
    """)
    expect("what the npm package exports", run("node", "index.js", folder=project).strip(), "function function function function")
    document = json.loads((output / f"dunlin-room-client-{version}.cdx.json").read_text())
    subject = document["metadata"]["component"]
    expect("the checksum of the npm package", subject["hashes"][0]["content"], hashlib.sha256(archive.read_bytes()).hexdigest())
    names = {component["name"] for component in document["components"]}
    expect("parts of the bundle", names, {"centrifuge"})


def nuget(output: Path, version: str, work: Path) -> None:
    with zipfile.ZipFile(output / f"Dunlin.Rooms.{version}.nupkg") as archive:
        archive.extractall(work / "nuget")
    space = "{http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd}"
    metadata = ElementTree.parse(work / "nuget/Dunlin.Rooms.nuspec").getroot().find(f"{space}metadata")
    expect("the package's id and version", [metadata.findtext(f"{space}{key}") for key in ("id", "version")], ["Dunlin.Rooms", version])
    for part in ("[Content_Types].xml", "_rels/.rels", "README.md", "LICENSE", "lib/netstandard2.1/Dunlin.Rooms.xml"):
        expect(f"{part} is there", (work / "nuget" / part).is_file(), True)
    library = work / "nuget/lib/netstandard2.1/Dunlin.Rooms.dll"
    program = work / "nuget/Uses.cs"
    program.write_text("""
        class Uses { static void Main() {
            var client = new Dunlin.Rooms.RoomClient(new System.Uri("ws://localhost:1"), new Dunlin.Rooms.RoomClientOptions());
            System.Console.WriteLine(client.State + " " + typeof(Dunlin.Rooms.Room).Assembly.GetName().Version);
        } }
    """)
    run("mcs", f"-r:{library}", "-out:Uses.exe", program, folder=work / "nuget")
    said = run("mono", "Uses.exe", folder=work / "nuget", variables={"MONO_PATH": str(library.parent)})
    expect("a program with the NuGet package", said.strip(), f"Disconnected {version}.0")


def unity(output: Path, version: str, work: Path) -> None:
    folder = unpacked(output / f"io.github.dunlin-project.rooms-{version}.tgz", work)
    manifest = json.loads((folder / "package.json").read_text())
    expect("the manifest", (manifest["name"], manifest["version"]), ("io.github.dunlin-project.rooms", version))
    paths = [path for path in folder.rglob("*") if path.suffix != ".meta"]
    expect("paths without a meta file", [path.name for path in paths if not Path(f"{path}.meta").is_file()], [])
    identifiers = {re.search(r"^guid: ([0-9a-f]{32})$", Path(f"{path}.meta").read_text(), re.MULTILINE)[1] for path in paths}
    expect("different identifiers", len(identifiers), len(paths))
    sources = sorted((folder / "Runtime").glob("*.cs"))
    run("mcs", "-langversion:7.2", "-target:library", f"-out:{work}/Unity.dll", *sources)
    # The player in a browser has a socket of its own, whose functions are in a file for Emscripten.
    run("mcs", "-langversion:7.2", "-target:library", "-define:UNITY_WEBGL", f"-out:{work}/WebGL.dll", *sources)
    called = re.findall(r"static extern \w+ (\w+)\(", (folder / "Runtime/WebGLRoomSocket.cs").read_text())
    given = re.findall(r"^  (DunlinSocket\w+): function", (folder / "Runtime/WebGL/DunlinSocket.jslib").read_text(), re.MULTILINE)
    expect("the functions of the browser's socket", sorted(given), sorted(called))


def c_header(output: Path, version: str, work: Path) -> None:
    archive = output / f"dunlin-room-c-{version}.tar.gz"
    folder = unpacked(archive, work)
    expect("its files", sorted(path.name for path in folder.iterdir()), ["LICENSE", "README.md", "dunlin_room.h"])
    if "](../" in (folder / "README.md").read_text():
        raise Failed("README.md of the C client has a link to a page that is not in the archive")
    program = work / "uses.c"
    program.write_text("""
        #define DUNLIN_ROOM_IMPLEMENTATION
        #include "dunlin_room.h"
        #include <stdio.h>
        int main(void) {
            dunlin_options options = {0};
            dunlin_client *client = dunlin_client_new(&options);
            printf("%s %d\\n", DUNLIN_ROOM_VERSION, dunlin_is_connected(client));
            dunlin_client_free(client);
            return 0;
        }
    """)
    for compiler in ("cc -x c -std=c99", "c++ -x c++ -std=c++11"):
        run(*compiler.split(), "-I", folder, program, "-o", work / "uses")
        expect(f"a program with the header, by {compiler}", run(work / "uses").strip(), f"{version} 0")
    subject = json.loads((output / f"dunlin-room-c-{version}.cdx.json").read_text())["metadata"]["component"]
    found = (subject["version"], subject["licenses"], subject["hashes"][0]["content"])
    expect("its bill of materials", found, (version, [{"expression": "Apache-2.0"}], hashlib.sha256(archive.read_bytes()).hexdigest()))


def godot(output: Path, version: str) -> None:
    """`make clients` runs the addon. Here are the files that a project gets, all in one folder."""
    with zipfile.ZipFile(output / f"dunlin-room-godot-{version}.zip") as archive:
        names = archive.namelist()
        folder = ROOT / "clients/godot/addons/dunlin_room"
        own = [f"addons/dunlin_room/{file}" for file in ("LICENSE", "README.md", *(path.name for path in folder.iterdir()))]
        expect("the files of the addon", sorted(names), sorted(own))
        preloaded = [name for file in names if file.endswith(".gd") for name in re.findall(r'(?:preload\(|^extends )"([^"]*)"', archive.read(file).decode(), re.MULTILINE)]
        expect("files that are missing", [name for name in preloaded if f"addons/dunlin_room/{name}" not in names], [])
        expect("the version", f'version="{version}"' in archive.read("addons/dunlin_room/plugin.cfg").decode(), True)
        if "](../" in archive.read("addons/dunlin_room/README.md").decode():
            raise Failed("README.md of the addon has a link to a page that is not in the archive")


def versions() -> None:
    """A client with another version than the workspace stops the release."""
    sys.path.insert(0, str(ROOT / "packaging/release"))
    import release
    expect("the version of all", release.version_of_all(), tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"])
    with tempfile.TemporaryDirectory() as folder:
        release.ROOT = copied = Path(folder)
        files = ("Cargo.toml", "web/room-client/package.json", "clients/csharp/Dunlin.Rooms.csproj", "clients/c/dunlin_room.h",
                 "platform/charts/roost/Chart.yaml", "clients/godot/addons/dunlin_room/plugin.cfg")
        for file in files:
            (copied / file).parent.mkdir(parents=True, exist_ok=True)
            (copied / file).write_text((ROOT / file).read_text())
        version = release.version_of_all()
        for file in files[1:]:
            content = (copied / file).read_text()
            for other in ("9.9.9", ""):
                (copied / file).write_text(content.replace(version, other))
                try:
                    release.version_of_all()
                except release.ReleaseError as error:
                    expect("the file that is named", str(error).split()[0], file)
                else:
                    raise Failed(f"{file} may have the version {other!r}")
            (copied / file).write_text(content)


def chart(output: Path, version: str, work: Path) -> None:
    """platform/proof renders and installs the folder that is packed."""
    folder, source = unpacked(output / f"roost-{version}.tgz", work), ROOT / "platform/charts/roost"
    expect("the folder of the chart", folder.name, "roost")
    found = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    expected = {path.relative_to(source): path.read_bytes() for path in source.rglob("*") if path.is_file()}
    expect("files of the chart", found, {**expected, Path("LICENSE"): (ROOT / "LICENSE").read_bytes()})


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    binaries, output = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    version = json.loads((ROOT / "web/room-client/package.json").read_text())["version"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            versions()
            reproducible(without_lines(binaries, work), output, work)
            listed(output, version)
            programs(output, version, work)
            debian(output, version)
            npm(output, version, work)
            nuget(output, version, work)
            unity(output, version, work)
            godot(output, version)
            c_header(output, version, work)
            chart(output, version, work)
            roost(output, version, work)
    except Failed as error:
        print(f"packages: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
