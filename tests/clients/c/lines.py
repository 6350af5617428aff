#!/usr/bin/env python3
"""Writes the vectors of schema/vectors/room that have a Protobuf form as lines for vectors.c: lines.py FOLDER > FILE.

    new NAME                 a new replica, or interpolation or clock; NAME is that of the vector
    apply HEX STATUS         apply a snapshot; STATUS is ok, or the error
    is LINE                  a line of the replica afterwards; `end` follows the last
    input NUMBER DATA ROOM HEX       an input, byte for byte; `-` is nothing, and ROOM is in hexadecimal
    observe TIME_US NOW_MS LATE_MS OFFSET_MS        a clock
    arrive HEX ARRIVED_MS DELAY_MS COUNT            an interpolation
    advance SERVER_MS SHOWN_MS
    place ID AT_MS X Y       without X and Y, it is not followed
    tick_at SERVER_MS TICK
"""

import json
import os
import sys

GRID = ("columns", "rows", "cell_units", "near_cells", "far_cells", "far_interval_ticks", "ticks_per_second")


def main(folder):
    read = lambda name: json.load(open(os.path.join(folder, name), encoding="utf-8"))
    for name in ("snapshots.json", "snapshots-lenient.json", "typed.json"):
        for vector in read(name)["vectors"]:
            steps = [step for step in vector["steps"] if step.get("protobuf") is not None]
            if steps:
                print("new", vector["name"])
            for step in steps:
                print("apply", step["protobuf"] or "-", "ok")
                show(step["replica"])
    for name in ("snapshots-malformed.json", "typed-malformed.json"):
        file = read(name)
        for vector in file["vectors"]:
            if vector.get("protobuf") is not None:
                print("new", vector["name"])
                print("apply", file["first"]["protobuf"], "ok")
                print("apply", vector["protobuf"] or "-", vector["error"])
                show(file["replica"])
    for vector in read("schemas.json")["vectors"]:
        schema(vector)
    for vector in read("inputs.json")["vectors"]:
        meaning = vector["meaning"]
        print("new", vector["name"])
        print("input", meaning.get("number", 0), meaning.get("data") or "-", meaning.get("room", "").encode().hex() or "-", vector["protobuf"] or "-")
    for vector in read("movement.json")["vectors"]:
        movement(vector)


def show(replica):
    waits = ",".join(map(str, replica.get("waited", [0, 0, 0, 0])))
    print("is", *(replica[name] for name in ("tick", "time_us", "ack", "avatar", "view")), replica.get("rate", 1000), waits)
    print("is", *(replica["grid"][name] for name in GRID))
    for one in replica["objects"]:
        values = [one[name] for name in ("id", "kind", "x", "y")] + [one["state"] or "-", "-" if one["cell"] is None else one["cell"]]
        print("is", *values, *(fields(one["fields"]) if "fields" in one else []))
    print("end")


def fields(values):
    """Each value as text; a list has commas."""
    if values is None:
        return ["none"]
    text = lambda value: ",".join(map(str, value)) if isinstance(value, list) else str(int(value)) if isinstance(value, bool) else str(value)
    return [f"{name}={text(values[name])}" for name in sorted(values)]


def varint(value):
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def message(number, inner):
    return varint(number << 3 | 2) + varint(len(inner)) + inner


def numbers(values):
    return b"".join(varint(number << 3) + varint(value) for number, value in values)


def protobuf(snapshot):
    """A snapshot of movement.json, which is JSON. It has no states and no departures."""
    out = numbers([(4, snapshot["tick"]), (5, snapshot.get("base", 0)), (8, snapshot.get("view", 0))])
    out += varint(6 << 3 | 1) + snapshot["time_us"].to_bytes(8, "little")
    out += numbers((number, snapshot[name]) for number, name in ((11, "rate"), (12, "waited")) if name in snapshot)
    if "grid" in snapshot:
        out += message(7, numbers(enumerate((snapshot["grid"][name] for name in GRID), 1)))
    for cell in snapshot["cells"]:
        assert not cell.keys() - {"cell", "full", "upserts"}, cell
        inner = numbers([(1, cell["cell"]), (2, int(cell.get("full", False)))])
        for one in cell.get("upserts", []):
            inner += message(4, numbers((number, one[name]) for number, name in enumerate(("id", "kind", "x", "y"), 1)))
        out += message(9, inner)
    return out


def schema(vector):
    """A first snapshot with the schema. Before one that is refused, there is one without."""
    grid = dict.fromkeys(GRID, 1) | {"far_cells": 0}
    first = numbers([(4, 1)]) + message(7, numbers(enumerate(grid.values(), 1)))
    data = first + message(10, json.dumps(vector["document"]).encode())
    print("new schema:", vector["name"])
    if vector["error"] is not None:
        print("apply", first.hex(), "ok")
        show({"tick": 1, "time_us": 0, "ack": 0, "avatar": 0, "view": 0, "grid": grid, "objects": []})
    print("apply", data.hex(), "ok" if vector["error"] is None else "Malformed")
    show({"tick": 1, "time_us": 0, "ack": 0, "avatar": 0, "view": 0, "grid": grid, "objects": []})


def movement(vector):
    if vector["kind"] not in ("clock", "interpolation"):
        return
    print("new", vector["name"])
    for step, gives in zip(vector["steps"], vector["gives"]):
        if "observe" in step:
            print("observe", *step["observe"], *gives)
        elif "snapshot" in step:
            print("arrive", protobuf(step["snapshot"]).hex(), step["arrived_ms"], *gives)
        elif "advance" in step:
            print("advance", step["advance"], *gives)
        elif "tick_at" in step:
            print("tick_at", step["tick_at"], *gives)
        else:
            print("place", *step["place"], *gives)


if __name__ == "__main__":
    main(sys.argv[1])
