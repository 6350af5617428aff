"""The page of the types of `dunlin-game`, written from the comments in the sources of the crates that it exports.

`cargo doc` would compile the server first, which takes minutes; the site is built in seconds.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

BEGIN = """# Types of a game

To look up a type, a method or a macro of the crate `dunlin-game`, which [a game of your own](own-game.md) uses. This page
is written from the sources. In the folder of your game, `cargo doc --package dunlin-game --open` shows the same with all
implementations of traits.
"""
#: Where the exported items are declared.
SOURCES = ("rooms/src/**/*.rs", "games/src/**/*.rs", "profiles/src/heap.rs", "server/src/lib.rs")
#: What a game begins with. The others follow by name.
FIRST = ("run", "Simulation", "World", "Registry")
ITEM = re.compile(r"(?:pub (?:const )?(?:unsafe )?(struct|enum|trait|type|fn|const) |macro_rules! )(\w+)")
IMPLEMENTED = re.compile(r"impl(?:<[^>]*>)? (\w+)(?:<[^>]*>)? \{$")
METHOD = re.compile(r"    (?:pub )?(?:const )?fn (\w+)")


@dataclass
class Item:
    """An exported item: what kind it is, its declaration, its comment, and its methods."""

    kind: str = ""
    declaration: str = ""
    comment: list[str] = field(default_factory=list)
    #: The declaration of each method with its comment.
    methods: list[tuple[str, list[str]]] = field(default_factory=list)


def page(root: Path) -> str:
    exported = exports((root / "crates/game/src/lib.rs").read_text())
    items: dict[str, Item] = {}
    for sources in SOURCES:
        for file in sorted((root / "crates").glob(sources)):
            if file.stem != "tests":
                read_items(file.read_text().split("\n#[cfg(test)]\nmod tests {")[0].split("\n"), items)
    parts = [BEGIN]
    for title, names in exported.items():
        parts.append(f"## {title}\n")
        for name in sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name.lower())):
            if not items.get(name, Item()).kind:
                sys.exit(f"crates/game/src/lib.rs exports {name}, which is in none of {', '.join(SOURCES)}: add its file in site/rust_types.py")
            parts.append(section(name, items[name]))
    return "\n".join(parts)


def exports(text: str) -> dict[str, list[str]]:
    """What the crate exports, by the part of the page."""
    found: dict[str, list[str]] = {"For games": [], "For tests": []}
    game, rest = text.split("pub mod testing {")
    for title, part in (("For games", game), ("For tests", rest.split("\n}")[0])):
        for names in re.findall(r"pub use [\w:]+::\{([^}]*)\};", part):
            found[title] += re.findall(r"\w+", names)
    return found


def read_items(lines: list[str], items: dict[str, Item]) -> None:
    comment: list[str] = []
    of: Item | None = None
    for at, line in enumerate(lines):
        if line.startswith("}"):
            of = None
        if told := re.match(r"\s*/// ?(.*)$", line):
            comment.append(told[1])
            continue
        if line.strip().startswith("#["):
            continue
        if item := ITEM.match(line):
            found = items.setdefault(item[2], Item())
            # A macro may have a helper of the same name, and a private type of another module the name of an exported one.
            if not found.kind or (comment and not found.comment):
                found.kind, found.comment, found.declaration = item[1] or "macro", comment, declaration(lines, at, item[1] or "macro")
            of = found if item[1] == "trait" else None
        elif implemented := IMPLEMENTED.match(line):
            of = items.setdefault(implemented[1], Item())
        elif of is not None and METHOD.match(line) and (of.kind == "trait" or line.startswith("    pub ")) and "pub(" not in line:
            of.methods.append((declaration(lines, at, "fn"), comment))
        comment = []


def declaration(lines: list[str], at: int, kind: str) -> str:
    """The declaration without a body; of a struct or an enum with its public parts."""
    if kind == "macro":
        return ""
    taken = [lines[at]]
    if kind in ("struct", "enum"):
        if lines[at].rstrip().endswith("{"):
            end = next(end for end in range(at, len(lines)) if lines[end].startswith("}"))
            shown = [line for line in lines[at + 1 : end] if not line.strip().startswith("#[")]
            if kind == "enum" or any(line.strip().startswith("pub ") for line in shown):
                return "\n".join([lines[at], *public(shown, kind), "}"])
            return lines[at].rstrip(" {") + ";"
        return lines[at]
    while not re.search(r"[{;]\s*$", taken[-1]):
        at += 1
        taken.append(lines[at])
    text = "\n".join(line[4:] if line.startswith("    ") else line for line in taken)
    return re.sub(r"\s*\{\s*$", ";" if kind == "fn" else "", text).removeprefix("pub ")


def public(lines: list[str], kind: str) -> list[str]:
    """The parts with their comments; those that are not public are left out."""
    if kind == "enum":
        return lines
    shown, comment = [], []
    for line in lines:
        if line.strip().startswith("///"):
            comment.append(line)
        elif line.strip().startswith("pub ") and "pub(" not in line:
            shown += [*comment, line]
            comment = []
        else:
            comment = []
    return shown


def section(name: str, item: Item) -> str:
    parts = [f"### {name}\n"]
    if item.declaration:
        parts.append(f"```rust\n{item.declaration}\n```\n")
    parts.append(prose(item.comment))
    for declared, comment in item.methods:
        parts += [f"#### {name}::{METHOD.match('    ' + declared)[1]}\n", f"```rust\n{declared}\n```\n", prose(comment)]
    return "\n".join(parts)


def prose(comment: list[str]) -> str:
    """A comment as Markdown: examples without their hidden lines, links to other items as their names."""
    is_code, lines = False, []
    for line in comment:
        if line.startswith("```"):
            is_code = not is_code
            line = "```rust" if is_code else line
        elif is_code and (line == "#" or line.startswith("# ")):
            continue
        elif not is_code:
            line = re.sub(r"\[(`[^`]*`)\](?:\([^)]*\))?", r"\1", line)
            line = re.sub(r"^#+ (.*)$", r"**\1.** ", line)
        # A game has all of them from one crate.
        lines.append(re.sub(r"\bdunlin_(rooms|games)::|\bcrate::(?=[A-Z])", lambda path: "dunlin_game::" if path[1] else "", line))
    return "\n".join(lines) + "\n"
