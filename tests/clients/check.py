#!/usr/bin/env python3
"""Checks the Python client.

    check.py vectors            the vectors of schema/vectors/room
    check.py recording FILE     snapshots that `record_snapshots` wrote
    check.py play               a treasure hunt on the server at DUNLIN_WS_URL, with two players in each encoding
"""

import json
import os
import struct
import sys
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor

from room_client import GRID_NAMES, INPUT, Connection, Replica, RoomError, encode

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../schema/vectors/room")
ENCODINGS = ("json", "protobuf")
MAGIC = b"dunlin-snapshots-1\n"
#: Messages that a player reads while it waits for something.
MESSAGES_MAX = 5_000
#: By this tick of its room, the server has sent two pings and ended connections that did not answer the first (server.json).
ANSWERED_TICK = 750


def main(arguments):
    if arguments == ["vectors"]:
        vectors()
    elif len(arguments) == 2 and arguments[0] == "recording":
        recording(arguments[1])
    elif arguments == ["play"]:
        with ThreadPoolExecutor() as pool:
            list(pool.map(play, ENCODINGS))
    else:
        sys.exit(__doc__)


def read(name):
    with open(os.path.join(VECTORS, name), encoding="utf-8") as file:
        return json.load(file)


def data_of(vector, encoding):
    """The bytes of a vector, or None if it is not for this encoding."""
    if encoding == "protobuf":
        return None if vector.get("protobuf") is None else bytes.fromhex(vector["protobuf"])
    if "json_hex" in vector:
        return bytes.fromhex(vector["json_hex"])
    return None if vector.get("json") is None else vector["json"].encode()


def shown(replica):
    """A replica as the vectors write it."""
    objects = [
        {"id": id, "kind": seen.kind, "x": seen.x, "y": seen.y, "state": seen.state.hex(), "cell": seen.cell}
        for id, seen in sorted(replica.objects.items())
    ]
    names = ("tick", "time_us", "ack", "avatar", "view")
    grid = {name: replica.grid[name] for name in GRID_NAMES}
    return {name: getattr(replica, name) for name in names} | {"grid": grid, "objects": objects}


def vectors():
    count = 0
    for name in ("snapshots.json", "snapshots-lenient.json"):
        for vector in read(name)["vectors"]:
            for encoding in ENCODINGS:
                replica = Replica()
                for step in vector["steps"]:
                    if (data := data_of(step, encoding)) is not None:
                        replica.apply(data, encoding)
                        assert shown(replica) == step["replica"], f"{vector['name']}, {encoding}"
                        count += 1
    file = read("snapshots-malformed.json")
    for vector in file["vectors"]:
        for encoding in ENCODINGS:
            if (data := data_of(vector, encoding)) is None:
                continue
            replica = Replica()
            replica.apply(data_of(file["first"], encoding), encoding)
            try:
                replica.apply(data, encoding)
                raise AssertionError(f"{vector['name']}, {encoding}: accepted")
            except RoomError as error:
                assert error.kind == vector["error"], f"{vector['name']}, {encoding}: {error}"
            assert shown(replica) == file["replica"], f"{vector['name']}, {encoding}"
            count += 1
    for vector in read("inputs.json")["vectors"]:
        meaning = vector["meaning"]
        fields = {**meaning, "data": bytes.fromhex(meaning.get("data", ""))}
        assert encode(INPUT, fields).hex() == vector["protobuf"], vector["name"]
        count += 1
    print(f"vectors: {count} passed, 0 failed")


def picture(replica):
    """A replica as `record_snapshots` writes it for the checksum."""
    lines = [f"{replica.tick} {replica.time_us} {replica.ack} {replica.avatar} {replica.view}\n"]
    for id, (kind, x, y, cell, state) in sorted(replica.objects.items()):
        lines.append(f"{id} {kind} {x} {y} {'-' if cell is None else cell} {state.hex()}\n")
    return "".join(lines)


def recording(path):
    with open(path, "rb") as file:
        data = file.read()
    assert data.startswith(MAGIC), f"{path} is no recording of snapshots"
    at, replicas, snapshots, refused = len(MAGIC), {}, 0, 0
    while at < len(data):
        client, kind, is_applied, length = struct.unpack_from("<IBBI", data, at)
        at += 10
        snapshot = data[at : at + length]
        (checksum,) = struct.unpack_from("<I", data, at + length)
        at += length + 4
        if kind == 0:
            replicas[client] = Replica()
            continue
        replica = replicas[client]
        try:
            replica.apply(snapshot, ENCODINGS[kind - 1])
            applied = True
        except RoomError as error:
            assert error.kind == "WrongBase", error
            applied = False
            refused += 1
        snapshots += 1
        assert applied == bool(is_applied), f"snapshot {snapshots}: applied {applied}"
        text = picture(replica)
        assert zlib.crc32(text.encode()) == checksum, f"snapshot {snapshots} of client {client} shows something else:\n{text}"
    assert snapshots > 0 and refused > 0, f"{snapshots} snapshots, {refused} refused"
    print(f"recording: {snapshots} snapshots are shown as in Rust, of which {refused} were refused")


class Player:
    """A client in a room of its own: it applies what arrives, and keeps its unacknowledged inputs."""

    def __init__(self, encoding, room, **data):
        self.room, self.replica, self.events, self.number, self.end = room, Replica(), [], 0, None
        self.connection = Connection(os.environ["DUNLIN_WS_URL"], encoding)
        joined = self.connection.ask({"subscribe": {"channel": room, "data": self.connection.payload(data)}})
        self.offset = joined["subscribe"].get("offset", 0)
        self.seat = self.connection.document(joined["subscribe"]["data"])

    def read(self):
        push = self.connection.receive().get("push", {})
        if "unsubscribe" in push:
            self.end = push["unsubscribe"]
        elif "pub" in push and not push["pub"].get("offset"):
            self.replica.apply(push["pub"]["data"], self.connection.encoding)
        elif "pub" in push:
            assert push["pub"]["offset"] > self.offset, "events come in order"
            self.offset = push["pub"]["offset"]
            self.events.append(self.connection.document(push["pub"]["data"]))

    def until(self, what, condition):
        for _ in range(MESSAGES_MAX):
            if found := condition():
                return found
            self.read()
        raise AssertionError(f"not within {MESSAGES_MAX} messages: {what}")

    @property
    def avatar(self):
        return self.replica.objects.get(self.replica.avatar)

    def walk(self, dx, dy, transport):
        self.number += 1
        data = self.connection.input(self.number, bytes([0, dx & 255, dy & 255]), self.room)
        if transport == "send":
            self.connection.send({"send": {"data": data}})
            return
        reply = self.connection.ask({"publish": {"channel": self.room, "data": data}})
        assert "error" not in reply, reply


def way(velocity, tick, ticks_per_second):
    return velocity * 640 * tick // (127 * ticks_per_second)


def play(encoding):
    room = f"arena:{uuid.uuid4()}"
    ada, bob = Player(encoding, room, name="Ada"), Player(encoding, room, name="Bob")
    for player in (ada, bob):
        player.until("the own object", lambda player=player: player.avatar)
    event = ada.until("a welcome", lambda: next((event for event in ada.events if "welcome" in event["event"]), None))
    assert event["event"]["welcome"]["player"] == ada.replica.avatar and event["event"]["welcome"]["name"] == "Ada"
    bob.until("Bob sees Ada", lambda: bob.replica.objects.get(ada.replica.avatar))
    per_second = ada.replica.grid["ticks_per_second"]
    width = ada.replica.grid["columns"] * ada.replica.grid["cell_units"]
    dx = 100 if ada.avatar.x < width // 2 else -100
    for transport in ("send", "publish"):
        ada.walk(dx, 0, transport)
        ada.until("the input is applied", lambda: ada.replica.ack == ada.number)
        # The prediction of docs/rooms.md, to the unit.
        x, y, tick = ada.avatar.x, ada.avatar.y, ada.replica.tick
        ada.until("Ada has walked", lambda: abs(ada.avatar.x - x) > 200)
        assert ada.avatar.x - x == way(dx, ada.replica.tick, per_second) - way(dx, tick, per_second)
        assert ada.avatar.y == y
        ada.walk(0, 0, transport)
        ada.until("the stop is applied", lambda: ada.replica.ack == ada.number)
        bob.until("Bob sees Ada where she is", lambda: bob.replica.objects[ada.replica.avatar] == ada.avatar)
    # In turn, because each answers pings only while it reads.
    while ada.replica.tick <= ANSWERED_TICK:
        ada.read()
        bob.until("the same tick", lambda: bob.replica.tick >= ada.replica.tick)
    assert ada.end is None and bob.end is None, (ada.end, bob.end)
    refused = ada.connection.ask({"publish": {"channel": room, "data": ada.connection.input(1, b"\0\0\0", room)}})
    assert refused["error"]["code"] == 107, refused
    # Another connection takes Bob's seat over, and another one comes back to it.
    seats = [bob]
    for _ in range(2):
        seats.append(Player(encoding, room, seat_token=seats[-1].seat["seat_token"]))
        assert seats[-1].seat["seat_resumed"] and not bob.seat["seat_resumed"]
        seats[-1].until("the same player", lambda: seats[-1].avatar)
        assert seats[-1].replica.avatar == bob.replica.avatar
        if seats[-2] is bob:
            bob.until("the end of the first connection", lambda: bob.end)
            assert bob.end["code"] == 2011, bob.end
            seats[-1].connection.socket.close_socket()
    seats[-1].connection.ask({"unsubscribe": {"channel": room}})
    ada.until("Bob is gone", lambda: bob.replica.avatar not in ada.replica.objects)
    # A join that the game refuses.
    carl = Connection(os.environ["DUNLIN_WS_URL"], encoding)
    reply = carl.ask({"subscribe": {"channel": room, "data": carl.payload({"name": 7})}})
    assert reply["error"]["code"] == 400, reply
    print(f"play, {encoding}: passed at tick {ada.replica.tick}")


if __name__ == "__main__":
    main(sys.argv[1:])
