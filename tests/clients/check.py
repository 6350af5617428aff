#!/usr/bin/env python3
"""Checks the Python client.

    check.py vectors            the vectors of schema/vectors/room
    check.py recording FILE     snapshots that `record_snapshots` wrote
    check.py play               on the server at DUNLIN_WS_URL, in each encoding: a treasure hunt of two players, of whom one asks for fields, the codes with which
                                joins, subscriptions and connections are refused and end, tokens that expire, recovery of events, matchmaking, a limited
                                player, kinds that are visible only near, and a slowed room
    check.py token USER SECONDS a connection token, for the clients of other languages
"""

import base64
import hashlib
import hmac
import json
import os
import struct
import sys
import time
import urllib.request
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor

from websockets.exceptions import ConnectionClosed

from room_client import GRID_NAMES, INPUT, Connection, Replica, RoomError, encode
from room_fields import Schema

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../schema/vectors/room")
ENCODINGS = ("json", "protobuf")
MAGIC = b"dunlin-snapshots-1\n"
#: Maximum number of messages that a player reads during a wait.
MESSAGES_MAX = 5_000
#: By this tick of its room, the server has sent two pings and ended connections that did not answer the first (server.json).
ANSWERED_TICK = 1750
#: The states of two players are compared in each tick that is a multiple, because a client that computes for long answers no pings; and the least number of ticks.
COMPARED_INTERVAL_TICKS = 10
COMPARED_MIN = 20


def main(arguments):
    if arguments == ["vectors"]:
        vectors()
    elif len(arguments) == 2 and arguments[0] == "recording":
        recording(arguments[1])
    elif len(arguments) == 3 and arguments[0] == "token":
        print(token(arguments[1], float(arguments[2])))
    elif arguments == ["play"]:
        plays = [(part, encoding) for encoding in ENCODINGS for part in (play, endings, expiries, recovery, matchmaking, limited, near)]
        with ThreadPoolExecutor(len(plays)) as pool:
            for done in [pool.submit(part, encoding) for part, encoding in plays]:
                done.result()
        # Alone, because it takes a processor.
        for encoding in ENCODINGS:
            slowed(encoding)
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
    """A replica in the format of the vectors."""
    objects = [
        {"id": id, "kind": seen.kind, "x": seen.x, "y": seen.y, "state": seen.state.hex(), "cell": seen.cell}
        | ({"fields": replica.fields(id)} if replica.schema.kinds else {})
        for id, seen in sorted(replica.objects.items())
    ]
    names = ("tick", "time_us", "ack", "avatar", "view")
    grid = {name: replica.grid[name] for name in GRID_NAMES}
    rate = {} if replica.rate == 1000 else {"rate": replica.rate}
    waits = [replica.waited >> 4 * zone & 15 for zone in range(4)]
    return {name: getattr(replica, name) for name in names} | {"grid": grid, "objects": objects} | rate | ({"waited": waits} if any(waits) else {})


def is_schema(text):
    try:
        return bool(Schema(text.encode()))
    except RoomError:
        return False


def vectors():
    count = 0
    for name in ("snapshots.json", "snapshots-lenient.json", "typed.json"):
        for vector in read(name)["vectors"]:
            for encoding in ENCODINGS:
                replica = Replica()
                for step in vector["steps"]:
                    if (data := data_of(step, encoding)) is not None:
                        replica.apply(data, encoding)
                        assert shown(replica) == step["replica"], f"{vector['name']}, {encoding}"
                        count += 1
    for name in ("snapshots-malformed.json", "typed-malformed.json"):
        file = read(name)
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
    for vector in read("schemas.json")["vectors"]:
        assert is_schema(json.dumps(vector["document"])) == (vector["error"] is None), vector["name"]
        count += 1
    for size in (65_536, 65_537):
        assert is_schema('{"kinds":[]}'.ljust(size)) == (size == 65_536), f"a schema of {size} bytes"
        count += 1
    for vector in read("inputs.json")["vectors"]:
        meaning = vector["meaning"]
        fields = {**meaning, "data": bytes.fromhex(meaning.get("data", ""))}
        assert encode(INPUT, fields).hex() == vector["protobuf"], vector["name"]
        count += 1
    print(f"vectors: {count} passed, 0 failed")


def picture(replica):
    """A replica in the format that `record_snapshots` uses for the checksum."""
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
    """A client in a separate room. It applies received messages, and stores its unacknowledged inputs."""

    def __init__(self, encoding, room, connect=None, position=None, **data):
        self.room, self.replica, self.events, self.number, self.end = room, Replica(), [], 0, None
        self.connection = Connection(os.environ["DUNLIN_WS_URL"], encoding, connect)
        request = {"channel": room, "data": self.connection.payload(data), **(position or {})}
        self.joined = self.connection.ask({"subscribe": request})["subscribe"]
        self.offset = self.joined.get("offset", 0)
        self.pictures = {}  # by tick: the view and the objects
        self.seat = self.connection.document(self.joined["data"]) if "data" in self.joined else None

    def read(self):
        push = self.connection.receive().get("push", {})
        if "unsubscribe" in push:
            self.end = push["unsubscribe"]
        elif "pub" in push and not push["pub"].get("offset"):
            self.replica.apply(push["pub"]["data"], self.connection.encoding)
            if self.replica.tick % COMPARED_INTERVAL_TICKS == 0:
                self.pictures[self.replica.tick] = self.replica.view, self.replica.objects
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


def compare(typed, plain):
    """Checks that both have seen the same states, in ticks of which both have a snapshot, in the cells that are near to both."""
    grid = typed.replica.grid
    columns, reach = grid["columns"], grid["near_cells"]
    is_near = lambda view, cell: abs(view % columns - cell % columns) <= reach and abs(view // columns - cell // columns) <= reach
    ticks = typed.pictures.keys() & plain.pictures.keys()
    kinds = set()
    for tick in ticks:
        views, worlds = zip(typed.pictures[tick], plain.pictures[tick])
        is_common = lambda seen: seen.cell is not None and all(is_near(view, seen.cell) for view in views)
        one, other = ({id: seen for id, seen in objects.items() if is_common(seen)} for objects in worlds)
        assert one == other, f"tick {tick}"
        kinds |= {seen.kind for seen in one.values()}
    assert len(ticks) >= COMPARED_MIN and len(kinds) >= 3, (len(ticks), kinds)


def play(encoding):
    room = f"arena:{uuid.uuid4()}"
    ada, bob = Player(encoding, room, name="Ada", snapshots="typed"), Player(encoding, room, name="Bob")
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
    # One after another, because a client answers pings only while it reads.
    while ada.replica.tick <= ANSWERED_TICK:
        ada.read()
        bob.until("the same tick", lambda: bob.replica.tick >= ada.replica.tick)
    assert ada.end is None and bob.end is None, (ada.end, bob.end)
    vx, vy = struct.unpack("bb", ada.avatar.state[1:3])
    assert ada.replica.fields(ada.replica.avatar) == {"colour": ada.avatar.state[0], "vx": vx, "vy": vy, "activity": ada.avatar.state[3]}
    assert ada.replica.schema.kinds and not bob.replica.schema.kinds and bob.replica.fields(ada.replica.avatar) is None
    refused = ada.connection.ask({"publish": {"channel": room, "data": ada.connection.input(1, b"\0\0\0", room)}})
    assert refused["error"]["code"] == 107, refused
    # Another connection takes over Bob's seat, and a third one returns to it.
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
    compare(ada, bob)
    print(f"play, {encoding}: passed at tick {ada.replica.tick}")


def token(user, seconds, **claims):
    part = lambda value: base64.urlsafe_b64encode(value).rstrip(b"=")
    document = lambda value: part(json.dumps(value).encode())
    signed = document({"alg": "HS256", "typ": "JWT"}) + b"." + document({"sub": user, "exp": time.time() + seconds, **claims})
    return (signed + b"." + part(hmac.digest(os.environ["DUNLIN_HMAC_SECRET"].encode(), signed, hashlib.sha256))).decode()


def api(method, **request):
    headers = {"Content-Type": "application/json", "X-API-Key": os.environ["DUNLIN_API_KEY"]}
    posted = urllib.request.Request(f"{os.environ['DUNLIN_API_URL']}/{method}", json.dumps(request).encode(), headers)
    with urllib.request.urlopen(posted, timeout=60) as answer:
        document = json.load(answer)
    assert "error" not in document, document
    return document["result"]


def user_of(encoding):
    return f"{encoding}-{uuid.uuid4()}"


def endings(encoding):
    """Checks how the server refuses joins and ends subscriptions."""
    room, user = f"arena:{uuid.uuid4()}", user_of(encoding)
    connect = {"token": token(user, 600)}
    ada = Player(encoding, room, connect, name="Ada")
    again = ada.connection.ask({"subscribe": {"channel": room}})
    assert again["error"]["code"] == 105, again
    api("room_lock", channel=room, locked=True)
    carl = Connection(os.environ["DUNLIN_WS_URL"], encoding)
    refused = carl.ask({"subscribe": {"channel": room}})
    assert refused["error"]["code"] == 423 and not refused["error"].get("temporary"), refused
    api("room_lock", channel=room, locked=False)
    number = carl.ask({"publish": {"channel": room, "data": carl.input(1, b"\0\0\0", room)}})
    assert number["error"]["code"] == 103, number
    spectator = Player(encoding, room, seat="spectator")
    spectator.until("a view", lambda: spectator.replica.tick)
    assert spectator.seat is None, spectator.seat
    for code, end in (
        (2000, lambda: api("unsubscribe", channel=room, user=user)),
        (2012, lambda: api("room_kick", channel=room, user=user)),
        (2010, lambda: api("room_close", channel=room)),
    ):
        end()
        ada.until(f"the end {code}", lambda: ada.end)
        assert ada.end["code"] == code, ada.end
        if code != 2010:
            # The player has left, so a join creates a new player, despite the token.
            ada = Player(encoding, room, connect, seat_token=ada.seat["seat_token"])
            assert ada.seat["seat_resumed"] is False, ada.seat
    spectator.until("the end of the room", lambda: spectator.end)
    assert spectator.end["code"] == 2010, spectator.end
    print(f"endings, {encoding}: passed")


def expiries(encoding):
    """Checks tokens that expire, with and without a replacement in time."""
    user, channel = user_of(encoding), "lobby:duel"
    connection = Connection(os.environ["DUNLIN_WS_URL"], encoding, {"token": token(user, 60)})
    # The rest of a second is rounded up, and the server's time is that of its last wakeup: at the begin of a second it may
    # lie in the one before.
    assert connection.connected["expires"] and 50 < connection.connected["ttl"] <= 61, connection.connected
    refreshed = connection.ask({"refresh": {"token": token(user, 600)}})["refresh"]
    assert refreshed["expires"] and 590 < refreshed["ttl"] <= 601, refreshed
    expired = connection.ask({"subscribe": {"channel": channel, "token": token(user, -60, channel=channel)}})
    assert expired["error"]["code"] == 109, expired
    subscribed = connection.ask({"subscribe": {"channel": channel, "token": token(user, 60, channel=channel)}})["subscribe"]
    assert subscribed["expires"] and 50 < subscribed["ttl"] <= 61, subscribed
    expired = connection.ask({"sub_refresh": {"channel": channel, "token": token(user, -60, channel=channel)}})
    assert expired["error"]["code"] == 109, expired
    kept = connection.ask({"sub_refresh": {"channel": channel, "token": token(user, 2, channel=channel)}})["sub_refresh"]
    assert kept["expires"] and kept["ttl"] <= 3, kept
    while "unsubscribe" not in (push := connection.receive().get("push", {})):
        pass
    assert (push["channel"], push["unsubscribe"]["code"]) == (channel, 2501), push
    connection.ask({"refresh": {"token": token(user, 2)}})
    assert closing(connection) == 3005
    for code, presented in ((3500, token("another", 60)), (3005, token(user, -60)), (3501, "")):
        connection = Connection(os.environ["DUNLIN_WS_URL"], encoding, {"token": token(user, 60)})
        connection.send({"id": 7, "refresh": {"token": presented}})
        assert closing(connection) == code, code
    print(f"expiries, {encoding}: passed")


def closing(connection):
    """Returns the code with which the server closes a connection."""
    try:
        while True:
            connection.receive()
    except ConnectionClosed as closed:
        return closed.rcvd.code


def recovery(encoding):
    """Checks that after a lost connection, the same player receives the events that it has missed."""
    room = f"arena:{uuid.uuid4()}"
    ada, bob = Player(encoding, room, name="Ada"), Player(encoding, room, name="Bob")
    clues = lambda player: [event["tick"] for event in player.events if "clue" in event["event"]]
    ada.until("a clue", lambda: clues(ada))
    assert ada.joined["recoverable"], ada.joined
    ada.connection.socket.close_socket()
    before = clues(ada)[-1]
    missed = bob.until("a clue that Ada misses", lambda: next((tick for tick in clues(bob) if tick > before), None))
    position = {"recover": True, "epoch": ada.joined["epoch"], "offset": ada.offset}
    back = Player(encoding, room, position=position, seat_token=ada.seat["seat_token"])
    assert back.seat["seat_resumed"] and back.joined["recovered"], back.joined
    offsets = [publication["offset"] for publication in back.joined["publications"]]
    assert back.offset == ada.offset, "the position that was asked for"
    assert offsets == sorted(offsets) and ada.offset < offsets[0], (ada.offset, offsets)
    events = [back.connection.document(publication["data"]) for publication in back.joined["publications"]]
    assert missed in [event["tick"] for event in events if "clue" in event["event"]], events
    back.until("the same player", lambda: back.avatar)
    assert back.replica.avatar == ada.replica.avatar
    print(f"recovery, {encoding}: passed")


def slowed(encoding):
    """Checks that an overloaded room runs slower, as its snapshots say, and skips no ticks."""
    room = f"crowded:{uuid.uuid4()}"
    ada = Player(encoding, room)
    ada.until("a slowed clock", lambda: ada.replica.rate < 900)
    while True:
        # In between, ticks come at the rate of one of the two snapshots, which is steady soon.
        tick, time_us, rate = ada.replica.tick, ada.replica.time_us, ada.replica.rate
        ada.until("another tick", lambda tick=tick: ada.replica.tick > tick)
        ticks = (ada.replica.time_us - time_us) * ada.replica.grid["ticks_per_second"] * rate / 1e9
        if rate == ada.replica.rate and abs(ticks - (ada.replica.tick - tick)) < 0.1:
            break
    info = api("room_info", channel=room)
    assert info["rate"] < 900 and info["skipped"] == 0, info
    api("room_close", channel=room)
    print(f"slowed, {encoding}: passed at rate {ada.replica.rate}")


def limited(encoding):
    """Checks that a limited player learns how long the zones of its view have waited: the nearest never, the others up to 12 ticks."""
    ada = Player(encoding, f"limited:{uuid.uuid4()}")
    seen = [0, 0, 0, 0]
    while not all(seen[1:]):
        waits = ada.until("a wait", lambda: ada.replica.waited)
        seen = [max(most, waits >> 4 * zone & 15) for zone, most in enumerate(seen)]
        tick = ada.replica.tick
        ada.until("another tick", lambda tick=tick: ada.replica.tick > tick)
    assert seen[0] == 0 and max(seen) <= 12, seen
    print(f"limited, {encoding}: passed, zones have waited for up to {seen} ticks")


def near(encoding):
    """Checks that a player who walks sees objects of kind 2 in the cells around its own alone, and others further away, with fields and without."""
    room = f"near:{uuid.uuid4()}"
    for data in ({}, {"snapshots": "typed"}):
        ada = Player(encoding, room, **data)
        ada.until("a snapshot", lambda: ada.replica.tick)
        columns, views, seen = ada.replica.grid["columns"], set(), {1: set(), 2: set()}
        while len(views) < 5:
            view, tick = ada.replica.view, ada.replica.tick
            views.add(view)
            for id, thing in ada.replica.objects.items():
                away = max(abs(view % columns - thing.cell % columns), abs(view // columns - thing.cell // columns))
                assert thing.kind == 1 or away <= 1, f"object {id} in tick {tick}, {away} cells away"
                seen[thing.kind].add(away)
            ada.until("another tick", lambda tick=tick: ada.replica.tick > tick)
        assert seen[1] == {0, 1, 2, 3} and seen[2] == {0, 1}, seen
    print(f"near kinds, {encoding}: passed")


def matchmaking(encoding):
    """Checks that two users get a room by an RPC, and are notified in their own channels."""
    users = [user_of(encoding) for _ in range(2)]
    criteria = {"table": str(uuid.uuid4())}
    connections = [Connection(os.environ["DUNLIN_WS_URL"], encoding, {"token": token(user, 600)}) for user in users]
    for connection, user in zip(connections, users):
        subscribed = connection.ask({"subscribe": {"channel": f"user:#{user}"}})
        assert "subscribe" in subscribed, subscribed
        asked = connection.payload({"namespace": "duel", "criteria": criteria})
        ticket = connection.document(connection.ask({"rpc": {"method": "dunlin.match", "data": asked}})["rpc"]["data"])
        assert ticket["status"] in ("waiting", "placed"), ticket
    unknown = connections[0].ask({"rpc": {"method": "dunlin.other", "data": connections[0].payload({})}})
    assert unknown["error"]["code"] == 104, unknown
    rooms = {placed(connection) for connection in connections}
    assert len(rooms) == 1, rooms
    for connection in connections:
        joined = connection.ask({"subscribe": {"channel": next(iter(rooms))}})
        assert "subscribe" in joined, joined
    print(f"matchmaking, {encoding}: passed")


def placed(connection):
    while True:
        publication = connection.receive().get("push", {}).get("pub")
        match = publication and connection.document(publication["data"])["match"]
        if match and match["status"] == "placed":
            return match["channel"]


if __name__ == "__main__":
    main(sys.argv[1:])
