"""Faults in which NATS may lose messages that it acknowledged, as in Jepsen's report on NATS 2.12.1.

Each fault of `FAULTS` acts on a world under load: it brings servers down, damages what they have stored, and has all of them run
again. A world has a `cluster`, a generator `random`, a `folder`, and `make_progress(what)`, which waits for acknowledged
publications. It returns the server that has to become the leader for the damage to show, or None.
"""

import shutil

from damage import blocks_of, copy_of, cut, flip_bit, flip_header_length, index_of, logs_of, restore, snapshots_of
from jetstream_api import ask

STREAM = "centrifugo_chat_0"
API_TIMEOUT_S = 60
#: Flipped bits of a block.
BITS = 20
#: A server that is partitioned does not answer.
ASK_TIMEOUT_S = 3


def api(world, subject, body=None):
    """The answer of JetStream from any server, asked again while the servers elect a leader."""
    answers = []

    def is_answered():
        for server in world.cluster.servers:
            try:
                answers[:] = [ask(server.place.host, server.place.port, subject, body, ASK_TIMEOUT_S)]
            except OSError:
                continue  # it is starting, or parted
            if answers[0] is not None and answers[0].get("error", {}).get("code") not in (408, 500, 503):
                return True
        return False

    world.cluster.wait_until(f"{subject} is answered", is_answered, API_TIMEOUT_S)
    return answers[0]


def lead(world, server):
    """Makes a server the leader of the stream, as a rolling update may. NATS may decline."""
    api(world, f"STREAM.LEADER.STEPDOWN.{STREAM}", {"placement": {"preferred": server.name}})


def bring_down(servers):
    for server in servers:
        server.kill()


def bring_up(servers):
    for server in servers:
        server.start()


def bring_up_or_replace(world, server):
    """Starts a damaged server. If it refuses to start, it gets an empty disk."""
    server.start()

    def has_begun():
        return server.process.poll() is not None or server.is_listening()

    world.cluster.wait_until(f"{server.name} starts or ends", has_begun)
    if server.process.poll() is not None:
        print(f"  {server.name} does not start, and gets an empty disk", flush=True)
        shutil.rmtree(server.store)
        server.start()


def roll(world):
    """Restarts all servers in turn, which compacts their logs: what they have lost since cannot be replayed from these."""
    for server in world.cluster.servers:
        world.leader()
        server.stop()
        server.start()
        server.wait_until_current()
    world.make_progress("after restarts in turn")


def flip_in_blocks(world, servers, is_clean, flip=flip_bit):
    """Flips bits in each block of the stream but the newest. After a clean shutdown, a server does not read its blocks when it starts:
    it finds out when it reads the message, and leaves it out. After a crash it reads the blocks, and cuts off their rest."""
    places = [world.random.uniform(0.2, 1) for _ in range(BITS)]
    for server in servers:
        (server.stop if is_clean else server.kill)()
    for server in servers:
        blocks = blocks_of(server, STREAM)
        for block in blocks[:-1] or blocks:
            for place in places:
                flip(block, place)
    bring_up(servers)


def bit_on_one(world):
    server = world.leader()
    flip_in_blocks(world, [server], True)
    return server


def lengths_on_one(world):
    server = world.leader()
    flip_in_blocks(world, [server], True, flip_header_length)
    return server


def bit_and_crash_on_one(world):
    roll(world)
    server = world.leader()
    flip_in_blocks(world, [server], False)
    return server


def bit_on_majority(world):
    servers = world.random.sample(world.cluster.servers, 2)
    flip_in_blocks(world, servers, True)
    return servers[0]


def bit_and_crash_on_all(world):
    roll(world)
    flip_in_blocks(world, world.cluster.servers, False)


def snapshot_on_one(world):
    """Damages the snapshots and the Raft logs of the leader."""
    server = world.leader()
    server.kill()
    for path in snapshots_of(server) + [index_of(server, STREAM)]:
        if path and path.exists():
            (flip_bit if world.random.random() < 0.5 else cut)(path, world.random.uniform(0.1, 0.9))
    bring_up_or_replace(world, server)
    return server


def logs_on_one(world):
    """Flips a bit in each block of the Raft logs of the leader."""
    server = world.leader()
    server.kill()
    for path in logs_of(server):
        flip_bit(path, world.random.uniform(0.2, 0.8))
    bring_up_or_replace(world, server)
    return server


def lose_power(world, servers):
    """What the servers have written since a moment is lost, as without a sync."""
    for server in servers:
        server.pause()
        copy_of(server, world.folder / f"{server.name}-copy")
        server.go_on()
        world.make_progress("after a copy")
    bring_down(world.cluster.servers)
    for server in servers:
        restore(server, world.folder / f"{server.name}-copy")
    bring_up(world.cluster.servers)


def power_on_one(world):
    server = world.leader()
    lose_power(world, [server])
    return server


def power_on_majority(world):
    servers = world.random.sample(world.cluster.servers, 2)
    lose_power(world, servers)
    return servers[0]


def power_on_all(world):
    lose_power(world, world.cluster.servers)


def move_members(world):
    """Scales the stream to one replica and back to three, while first the leader is partitioned, and then another server."""
    cluster = world.cluster
    for is_leader in (True, False):
        leader = world.leader()
        parted = leader if is_leader else next(server for server in cluster.servers if server is not leader)
        cluster.network.part(parted.name, [each.name for each in cluster.servers + cluster.nodes if each is not parted])
        # NATS may have no quorum among replicas that it has just created, until the network is whole again.
        world.may_progress()
        config = api(world, f"STREAM.INFO.{STREAM}")["config"]
        api(world, f"STREAM.UPDATE.{STREAM}", config | {"num_replicas": 1})
        world.may_progress()
        cluster.network.join()
        api(world, f"STREAM.UPDATE.{STREAM}", config | {"num_replicas": 3})
        world.make_progress("with three replicas again")


def split(world):
    """Two servers continue from an old copy while the third, which has all, is away. Then it comes back with another history."""
    cluster = world.cluster
    newer = world.leader()
    older = [server for server in cluster.servers if server is not newer]
    for server in older:
        server.pause()
        copy_of(server, world.folder / f"{server.name}-copy")
        server.go_on()
    world.make_progress("after the copies")
    bring_down(cluster.servers)
    for server in older:
        restore(server, world.folder / f"{server.name}-copy")
    bring_up(older)
    world.make_progress("on the older history")
    newer.start()
    return newer


FAULTS = {
    "bit-one": bit_on_one,
    "lengths-one": lengths_on_one,
    "bit-crash-one": bit_and_crash_on_one,
    "bit-crash-all": bit_and_crash_on_all,
    "bit-majority": bit_on_majority,
    "snapshot": snapshot_on_one,
    "logs": logs_on_one,
    "power-one": power_on_one,
    "power-majority": power_on_majority,
    "power-all": power_on_all,
    "members": move_members,
    "split": split,
}
