"""A room client in Python, written from docs/rooms-protocol.md alone: the world that a player sees, and a connection in JSON or Protobuf."""

import base64
import itertools
import json
from collections import namedtuple

from websockets.sync.client import connect

from room_fields import UINT32_MAX, RoomError, Schema, malformed, parse_json

Seen = namedtuple("Seen", "kind x y cell state")  # cell: None for what only this player receives

# Messages: for each field its name, its type, and whether it is repeated. The types: u32, f32, f64, u64, bool, bytes, text, or a message. `bits` are bytes
# that are not in JSON. A `payload` is bytes in Protobuf and any value in JSON; a field without a number is only in JSON.
OBJECT = {1: ("id", "u32", 0), 2: ("kind", "u32", 0), 3: ("x", "u32", 0), 4: ("y", "u32", 0), 5: ("state", "bytes", 0), None: ("fields", "payload", 0)}
CELL = {1: ("cell", "u32", 0), 2: ("full", "bool", 0), 3: ("departed", "u32", 1), 4: ("upserts", OBJECT, 1), 5: ("changes", "bits", 0)}
GRID_NAMES = ["columns", "rows", "cell_units", "near_cells", "far_cells", "far_interval_ticks", "ticks_per_second"]
GRID = {number: (name, "u32", 0) for number, name in enumerate(GRID_NAMES, 1)}
SNAPSHOT = {
    1: ("ack", "f32", 0), 2: ("avatar", "f32", 0), 3: ("own", {1: ("objects", OBJECT, 1)}, 0), 4: ("tick", "u32", 0), 5: ("base", "u32", 0),
    6: ("time_us", "f64", 0), 7: ("grid", GRID, 0), 8: ("view", "u32", 0), 9: ("cells", CELL, 1), 10: ("schema", "payload", 0),
    11: ("rate", "u32", 0), 12: ("waited", "u32", 0), 13: ("moved", "bool", 0),
}
HEAD = ("time_us", 0), ("ack", 0), ("avatar", 0), ("rate", 1000), ("waited", 0), ("moved", False)
INPUT = {1: ("number", "u32", 0), 2: ("data", "bytes", 0), 3: ("room", "text", 0)}
PUBLICATION = {4: ("data", "payload", 0), 6: ("offset", "u64", 0)}
PUSH = {2: ("channel", "text", 0), 4: ("pub", PUBLICATION, 0), 7: ("unsubscribe", {2: ("code", "u32", 0), 3: ("reason", "text", 0)}, 0)}
EXPIRY = {1: ("expires", "bool", 0), 2: ("ttl", "u32", 0)}
SUBSCRIBED = {
    **EXPIRY, 3: ("recoverable", "bool", 0), 6: ("epoch", "text", 0), 7: ("publications", PUBLICATION, 1), 8: ("recovered", "bool", 0),
    9: ("offset", "u64", 0), 11: ("data", "payload", 0),
}
REFRESHED = {3: ("expires", "bool", 0), 4: ("ttl", "u32", 0)}
REPLY = {
    1: ("id", "u32", 0), 2: ("error", {1: ("code", "u32", 0), 2: ("message", "text", 0), 3: ("temporary", "bool", 0)}, 0), 4: ("push", PUSH, 0),
    5: ("connect", {1: ("client", "text", 0), **REFRESHED, 7: ("ping", "u32", 0)}, 0), 6: ("subscribe", SUBSCRIBED, 0), 7: ("unsubscribe", {}, 0), 8: ("publish", {}, 0),
    13: ("rpc", {1: ("data", "payload", 0)}, 0), 14: ("refresh", REFRESHED, 0), 15: ("sub_refresh", EXPIRY, 0),
}
COMMAND = {
    1: ("id", "u32", 0), 4: ("connect", {1: ("token", "text", 0), 2: ("data", "payload", 0)}, 0),
    5: ("subscribe", {1: ("channel", "text", 0), 2: ("token", "text", 0), 3: ("recover", "bool", 0), 6: ("epoch", "text", 0), 7: ("offset", "u64", 0), 8: ("data", "payload", 0)}, 0),
    6: ("unsubscribe", {1: ("channel", "text", 0)}, 0), 7: ("publish", {1: ("channel", "text", 0), 2: ("data", "payload", 0)}, 0),
    12: ("send", {1: ("data", "payload", 0)}, 0), 13: ("rpc", {1: ("data", "payload", 0), 2: ("method", "text", 0)}, 0),
    14: ("refresh", {1: ("token", "text", 0)}, 0), 15: ("sub_refresh", {1: ("channel", "text", 0), 2: ("token", "text", 0)}, 0),
}


def read_varint(data, at):
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise malformed("it ends within a varint")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise malformed("a varint does not end")


def cut(data, at, length):
    if length > len(data) - at:
        raise malformed("it ends within a field")
    return data[at : at + length], at + length


def read_value(wire, value, kind):
    """The value of a known field."""
    if wire != (2 if isinstance(kind, dict) else {"f32": 5, "f64": 1, "bytes": 2, "bits": 2, "payload": 2, "text": 2}.get(kind, 0)):
        raise malformed("a field has another type")
    if kind in ("f32", "f64"):
        return int.from_bytes(value, "little")
    if wire == 2:
        return decode(value, kind) if isinstance(kind, dict) else value.decode() if kind == "text" else value
    if kind != "bool" and value > (2**64 - 1 if kind == "u64" else UINT32_MAX):
        raise malformed("a number is too large")
    return value != 0 if kind == "bool" else value


def decode(data, message):
    """Reads a Protobuf message; unknown fields are skipped."""
    fields, at = {name: [] for name, _, repeated in message.values() if repeated}, 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire in (0, 2):
            value, at = read_varint(data, at)
        if wire in (1, 2, 5):
            value, at = cut(data, at, {1: 8, 2: value if wire == 2 else 0, 5: 4}[wire])
        if number == 0 or tag > UINT32_MAX or wire not in (0, 1, 2, 5):
            raise malformed("a field has no valid number and type")
        if number not in message:
            continue
        name, kind, repeated = message[number]
        if repeated and kind == "u32" and wire == 2:  # packed
            inner = 0
            while inner < len(value):
                one, inner = read_varint(value, inner)
                fields[name].append(read_value(0, one, kind))
        elif repeated:
            fields[name].append(read_value(wire, value, kind))
        else:
            fields[name] = read_value(wire, value, kind)
    return fields


def varint(value):
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def encode(message, fields):
    """Writes a Protobuf message; fields with their default value are left out, messages are not."""
    out = b""
    for number, (name, kind, _) in message.items():
        value = fields.get(name)
        if isinstance(kind, dict) and value is not None:
            value = encode(kind, value)
        elif not value:
            continue
        if kind in ("u32", "u64", "bool"):
            out += varint(number << 3) + varint(int(value))
        else:
            value = value.encode() if kind == "text" else value
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def from_json(value, message):
    """Checks a JSON object, and gives it the form that `decode` gives."""
    if type(value) is not dict:
        raise malformed("it is no object")
    fields = {}
    for name, kind, repeated in message.values():
        found = value.get(name)
        if repeated:
            if not isinstance(found, list | None):
                raise malformed(f"{name} is no array")
            fields[name] = [scalar(one, kind, name) for one in found or []]
        elif found is not None and kind != "bits":
            fields[name] = scalar(found, kind, name)
    return fields


def scalar(value, kind, name):
    if isinstance(kind, dict):
        return from_json(value, kind)
    if kind == "bytes":
        try:
            data = base64.b64decode(value, validate=True)
        except (TypeError, ValueError):
            raise malformed(f"{name} is no base64") from None
        if base64.b64encode(data).decode() != value:
            raise malformed(f"{name} is no base64")
        return data
    bound = {"u32": UINT32_MAX, "f32": UINT32_MAX, "f64": 2**53 - 1}.get(kind)
    if bound is not None and (type(value) is not int or not 0 <= value <= bound) or kind == "bool" and type(value) is not bool:
        raise malformed(f"{name} is {value!r}")
    return value


class Replica:
    """What the player sees. A snapshot is applied completely, or refused without any change."""

    def __init__(self):
        self.tick = self.time_us = self.ack = self.avatar = self.view = self.waited = self.moved = 0  # waited: zones' waits, 4 bits each
        self.grid, self.schema, self.objects, self.rate = None, Schema({"kinds": []}), {}, 1000  # thousandths of real time

    def apply(self, data, encoding):
        snapshot = decode(data, SNAPSHOT) if encoding == "protobuf" else from_json(parse_json(data) if isinstance(data, (str, bytes)) else data, SNAPSHOT)
        tick, base, view = (snapshot.get(name, 0) for name in ("tick", "base", "view"))
        if tick == 0 or tick < base or not 1 <= snapshot.get("rate", 1000) <= 1000:
            raise malformed("the tick is 0, or below its base, or the rate is none")
        if base not in (0, self.tick):
            raise RoomError("WrongBase", f"{base}, not {self.tick}")
        grid = self.checked_grid(snapshot) if base == 0 else self.grid
        if view >= grid["columns"] * grid["rows"]:
            raise RoomError("WrongCell", "the view is not on the map")
        own = snapshot["own"]["objects"] if "own" in snapshot else None
        schema = Schema(snapshot["schema"]) if "schema" in snapshot else self.schema
        self.check(snapshot["cells"], own or [], view, grid)
        objects = {} if base == 0 else self.objects
        if own is not None:
            objects = {id: seen for id, seen in objects.items() if seen.cell is not None} | {one["id"]: seen_of(one, 0, 0, None, schema) for one in own}
        emptied = {cell.get("cell", 0) for cell in snapshot["cells"] if cell.get("full")}
        is_kept = lambda cell: cell is None or cell not in emptied and is_visible(grid, view, cell)
        objects = {id: seen for id, seen in objects.items() if is_kept(seen.cell)}
        for cell, id in ((cell.get("cell", 0), id) for cell in snapshot["cells"] for id in cell["departed"]):
            if id in objects and objects[id].cell == cell:
                del objects[id]
        for cell in snapshot["cells"]:
            index = cell.get("cell", 0)
            left, top = (place * grid["cell_units"] for place in (index % grid["columns"], index // grid["columns"]))
            changed = self.changed(cell, index, left, top, base == 0) if cell.get("changes") else []
            for one in cell["upserts"] + changed:
                objects[one["id"]] = seen_of(one, left, top, index, schema)
        self.objects, self.grid, self.schema, self.tick, self.view = objects, grid, schema, tick, view
        self.time_us, self.ack, self.avatar, self.rate, self.waited, self.moved = (snapshot.get(name, default) for name, default in HEAD)

    def changed(self, cell, index, left, top, is_full):
        """The changed objects of a cell, which build on those before the snapshot."""
        if is_full or cell.get("full"):
            raise malformed("changes without a base")

        def known(id):
            if id not in self.objects or self.objects[id].cell != index:
                raise malformed(f"object {id} is not in the cell")
            kind, x, y, _, state = self.objects[id]
            return kind, x - left, y - top, state

        return list(self.schema.changes(cell["changes"], self.grid["cell_units"], known))

    def fields(self, id):
        """The values of an object by name, or None."""
        return self.schema.fields(self.objects[id].kind, self.objects[id].state)

    def checked_grid(self, snapshot):
        if "grid" not in snapshot:
            raise malformed("no map")
        grid = {name: snapshot["grid"].get(name, 0) for name in GRID_NAMES}
        bounds = [1, 1, 1, 0, 0, 1, 1], [1024, 1024, 65536, 65535, 65535, 15, UINT32_MAX]
        if not all(least <= size <= most for size, least, most in zip(grid.values(), *bounds)):
            raise malformed(f"the map {grid}")
        return grid

    def check(self, cells, own, view, grid):
        width, height = grid["columns"] * grid["cell_units"], grid["rows"] * grid["cell_units"]
        for cell in cells:
            index = cell.get("cell", 0)
            if index >= grid["columns"] * grid["rows"] or not is_visible(grid, view, index):
                raise RoomError("WrongCell", index)
        for one, after in itertools.pairwise(cells):
            is_second = one.get("full", False) and not after.get("full", False)
            if one.get("cell", 0) >= after.get("cell", 0) + is_second:
                raise malformed("cells do not ascend")
        if any(0 in cell["departed"] for cell in cells):
            raise malformed("no id departed")
        side = grid["cell_units"]
        for one, right, bottom in [(one, width, height) for one in own] + [(one, side, side) for cell in cells for one in cell["upserts"]]:
            if one.get("id", 0) == 0 or one.get("kind", 0) > 0xFFFF or one.get("x", 0) >= right or one.get("y", 0) >= bottom:
                raise malformed(f"the object {one}")


def is_visible(grid, view, cell):
    reach, columns = grid["near_cells"] + grid["far_cells"], grid["columns"]
    return abs(view % columns - cell % columns) <= reach and abs(view // columns - cell // columns) <= reach


def seen_of(one, left, top, cell, schema):
    return Seen(one.get("kind", 0), left + one.get("x", 0), top + one.get("y", 0), cell, schema.state(one))


class Connection:
    """One WebSocket. `receive` answers pings and returns all other messages of the server, one at a time."""

    def __init__(self, url, encoding, connect_request=None):
        self.encoding, self.ids, self.waiting, self.ping_s = encoding, itertools.count(1), [], 25
        self.socket = connect(url, subprotocols=[f"centrifuge-{encoding}"], max_size=None, ping_interval=None)  # the server pings
        self.connected = self.ask({"connect": connect_request or {}})["connect"]
        self.ping_s = self.connected.get("ping", 25)

    def send(self, command):
        is_json = self.encoding == "json"
        self.socket.send(json.dumps(command) if is_json else varint(len(message := encode(COMMAND, command))) + message)

    def ask(self, command):
        """Sends a command and returns its reply; pushes that arrive before it are kept for `receive`."""
        id, kept = next(self.ids), []
        self.send({"id": id, **command})
        while (message := self.receive()).get("id") != id:
            kept.append(message)
        self.waiting = kept + self.waiting
        return message

    def receive(self):
        while not self.waiting:
            frame = self.socket.recv(timeout=self.ping_s + 10)
            for message in self.messages(frame):
                self.waiting.append(message) if message else self.send({})
        return self.waiting.pop(0)

    def messages(self, frame):
        if self.encoding == "json":
            return [parse_json(line) for line in frame.split("\n") if line]
        found, at = [], 0
        while at < len(frame):
            length, at = read_varint(frame, at)
            message, at = cut(frame, at, length)
            found.append(decode(message, REPLY))
        return found

    def input(self, number, data, room):
        if self.encoding == "json":
            return {"number": number, "data": base64.b64encode(data).decode(), "room": room}
        return encode(INPUT, {"number": number, "data": data, "room": room})

    def payload(self, value):  # a JSON document as the `data` of this encoding; `document` is the way back
        return value if self.encoding == "json" else json.dumps(value).encode()

    def document(self, payload):
        return payload if self.encoding == "json" else json.loads(payload)
