"""The clients: for npm, NuGet, Unity's package manager and Godot, and the header for C."""

import hashlib
import json
import re
import tarfile
import uuid
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from archives import PROJECT, File, published_page, tar_gz, zip_file
from release import Release, run

AUTHORS = "The Dunlin contributors"
LICENSE = "Apache-2.0"


def npm(release: Release) -> None:
    folder = release.root / "web/room-client"
    run(folder / "build")
    # npm decides about the files. It keeps their modes, which depend on the machine, so the archive is written anew.
    packed = release.work / "npm"
    packed.mkdir()
    run("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", packed, folder=folder)
    [archive] = packed.iterdir()
    with tarfile.open(archive) as content:
        files = {entry.name: File(content.extractfile(entry).read()) for entry in content if entry.isfile()}
    files["package/README.md"] = published_page(folder / "README.md", release.root, release.version)
    files["package/LICENSE"] = File(release.root / "LICENSE")
    output = release.output / archive.name
    tar_gz(output, files, release.seconds, 9)
    bill = npm_bill(release, folder, sha256_of(output))
    (release.output / f"{archive.name.removesuffix('.tgz')}.cdx.json").write_bytes(as_json(bill))


def sha256_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def npm_bill(release: Release, folder: Path, sha256: str) -> dict:
    """The bill of materials, as CycloneDX: what is in the bundle, by esbuild's own list of its inputs. What the SDK depends on for
    Protobuf is not in it. `npm sbom` writes a time and a random number, and lists all dependencies."""
    locked = json.loads((folder / "package-lock.json").read_text())["packages"]
    bundled = json.loads((folder / "dist/.bundled.json").read_text())["inputs"]
    folders = {match[0] for match in (re.match(r"node_modules/(@[^/]+/)?[^/]+", file) for file in bundled) if match}
    components = {}
    for path in folders:
        name, entry = path.removeprefix("node_modules/"), locked[path]
        components[name] = component("npm", name, entry["version"], entry["license"])
    subject = component("npm", "@dunlin/room-client", release.version, LICENSE)
    return bill_of_materials(subject, sha256, [components[name] for name in sorted(components)])


def bill_of_materials(subject: dict, sha256: str, components: list[dict]) -> dict:
    """CycloneDX. Its number depends on the file alone, so the same file has the same bill."""
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, f"{subject['purl']} {sha256}").urn,
        "metadata": {"component": {**subject, "hashes": [{"alg": "SHA-256", "content": sha256}]}}, "components": components,
    }


def component(registry: str, name: str, version: str, license: str) -> dict:
    url = f"pkg:{registry}/{name.replace('@', '%40')}@{version}"
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "licenses": [{"expression": license}], "purl": url}


NUSPEC = """<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd">
  <metadata>
    <id>{id}</id>
    <version>{version}</version>
    <authors>{authors}</authors>
    <license type="expression">{license}</license>
    <licenseUrl>https://licenses.nuget.org/{license}</licenseUrl>
    <readme>README.md</readme>
    <projectUrl>{project}</projectUrl>
    <description>{description}</description>
    <repository type="git" url="{project}" />
    <dependencies>
      <group targetFramework=".NETStandard2.1" />
    </dependencies>
  </metadata>
</package>
"""

# What a package is in the Open Packaging Conventions, which NuGet packages follow.
CONTENT_TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
  <Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml" />
  <Default Extension="nuspec" ContentType="application/octet" />
  <Default Extension="dll" ContentType="application/octet" />
  <Default Extension="xml" ContentType="application/octet" />
  <Default Extension="md" ContentType="application/octet" />
  <Override PartName="/LICENSE" ContentType="application/octet" />
</Types>
"""
RELATIONSHIPS = """<?xml version="1.0" encoding="utf-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
  <Relationship Type="http://schemas.microsoft.com/packaging/2010/07/manifest" Target="/{id}.nuspec" Id="manifest" />
</Relationships>
"""


def csharp_project(release: Release) -> dict[str, str]:
    [properties] = ElementTree.parse(release.root / "clients/csharp/Dunlin.Rooms.csproj").findall("PropertyGroup")
    return {entry.tag: entry.text or "" for entry in properties}


def nuget(release: Release) -> None:
    project = csharp_project(release)
    folder, name = release.root / "clients/csharp", project["PackageId"]
    built = release.work / "nuget"
    built.mkdir()
    attributes = built / "AssemblyInfo.cs"
    attributes.write_text(f'[assembly: System.Reflection.AssemblyVersion("{release.version}")]\n')
    # 1591: public members whose names say it all.
    run("mcs", f"-langversion:{project['LangVersion']}", "-warnaserror", "-nowarn:1591", "-target:library", f"-doc:{name}.xml",
        f"-out:{name}.dll", attributes, *sorted((folder / "src").glob("*.cs")), folder=built)
    nuspec = NUSPEC.format(id=name, version=release.version, authors=AUTHORS, license=project["PackageLicenseExpression"],
                           project=PROJECT, description=project["Description"])
    library = f"lib/{project['TargetFramework']}/{name}"
    zip_file(release.output / f"{name}.{release.version}.nupkg", {
        "[Content_Types].xml": File(CONTENT_TYPES.encode()),
        "_rels/.rels": File(RELATIONSHIPS.format(id=name).encode()),
        f"{name}.nuspec": File(nuspec.encode()),
        f"{library}.dll": File(built / f"{name}.dll"),
        f"{library}.xml": File(built / f"{name}.xml"),
        "LICENSE": File(release.root / "LICENSE"),
        "README.md": published_page(folder / "README.md", release.root, release.version),
    }, release.seconds)


UNITY_NAME = "io.github.dunlin-project.rooms"


def unity(release: Release) -> None:
    project = csharp_project(release)
    folder = release.root / "clients/csharp"
    manifest = {
        "name": UNITY_NAME, "version": release.version, "displayName": "Dunlin Rooms", "description": project["Description"],
        # The first one with .NET Standard 2.1.
        "unity": "2021.2", "license": project["PackageLicenseExpression"],
        "documentationUrl": f"{PROJECT}/tree/v{release.version}/clients/csharp", "author": {"name": AUTHORS, "url": PROJECT},
        "repository": {"type": "git", "url": f"{PROJECT}.git", "directory": "clients/csharp"},
    }
    space = project["PackageId"]
    assembly = {"name": space, "rootNamespace": space, "autoReferenced": True, "noEngineReferences": True}
    files = {
        "package.json": File(as_json(manifest)),
        "LICENSE.md": File(release.root / "LICENSE"),
        "README.md": published_page(folder / "README.md", release.root, release.version),
        f"Runtime/{space}.asmdef": File(as_json(assembly)),
    }
    files |= {f"Runtime/{source.name}": File(source) for source in (folder / "src").glob("*.cs")}
    files["Runtime/WebGL/DunlinSocket.jslib"] = File(folder / "unity/DunlinSocket.jslib")
    # Unity ignores files of a package that have no meta file. Scenes name files by their identifiers, so these never change.
    metas = {f"{name}.meta": File(meta(name, is_folder=False)) for name in files}
    metas |= {f"{name}.meta": File(meta(name, is_folder=True)) for name in ("Runtime", "Runtime/WebGL")}
    files = {f"package/{name}": file for name, file in (files | metas).items()}
    tar_gz(release.output / f"{UNITY_NAME}-{release.version}.tgz", files, release.seconds, 9)


def as_json(document: dict) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def meta(name: str, is_folder: bool) -> bytes:
    identifier = hashlib.sha256(f"{UNITY_NAME}/{name}".encode()).hexdigest()[:32]
    folder = "folderAsset: yes\n" if is_folder else ""
    return f"fileFormatVersion: 2\nguid: {identifier}\n{folder}".encode()


def c_header(release: Release) -> None:
    folder, name = release.root / "clients/c", f"dunlin-room-c-{release.version}"
    files = {
        "dunlin_room.h": File(folder / "dunlin_room.h"),
        "LICENSE": File(release.root / "LICENSE"),
        "README.md": published_page(folder / "README.md", release.root, release.version),
    }
    output = release.output / f"{name}.tar.gz"
    tar_gz(output, {f"{name}/{file}": content for file, content in files.items()}, release.seconds, 9)
    # It needs only the C library, so there are no parts.
    bill = bill_of_materials(component("generic", "dunlin-room-c", release.version, LICENSE), sha256_of(output), [])
    (release.output / f"{name}.cdx.json").write_bytes(as_json(bill))


def godot(release: Release) -> None:
    """What a project takes as it is: its addons folder."""
    folder = release.root / "clients/godot/addons/dunlin_room"
    files = {source.name: File(source) for source in folder.iterdir() if source.suffix in (".gd", ".cfg")}
    files |= {
        "LICENSE": File(release.root / "LICENSE"),
        "README.md": published_page(release.root / "clients/godot/README.md", release.root, release.version),
    }
    output = release.output / f"dunlin-room-godot-{release.version}.zip"
    zip_file(output, {f"addons/dunlin_room/{name}": files[name] for name in sorted(files)}, release.seconds)
