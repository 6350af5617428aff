"""Faults of a cluster under load: of processes, of the network between them, and of a disk.

A world has a `cluster`, a generator `random`, the nodes that are `down`, and `make_progress(what)`, which waits for `step` more
acknowledged publications and returns how long that took.
"""

#: Faults of processes, and faults of the network and of disks.
OF_PROCESSES = ["node", "server", "pause"]
OF_NETWORK = ["part server", "part servers", "part node", "part link", "disk", "rolling"]


def part(world, kind):
    """Partitions the network under load, and heals the partition."""
    cluster, network = world.cluster, world.cluster.network
    server, node = world.random.choice(cluster.servers).name, world.random.choice(cluster.nodes)
    other_servers = [each.name for each in cluster.servers if each.name != server]
    if kind == "part server":
        network.part(server, other_servers + [each.name for each in cluster.nodes])
    elif kind == "part servers":
        # The nodes can reach all servers.
        network.part(server, other_servers)
    elif kind == "part link":
        network.part(node.name, [server])
    else:
        world.down.add(node)
        network.part(node.name, [each.name for each in cluster.servers])
        cluster.wait_until(f"{node.name} is not ready", lambda: node.is_ready() is False)
    took_s = world.make_progress(f"with a partition: {kind}")
    network.join()
    world.down.discard(node)
    cluster.wait_for_readiness(True)
    return took_s


def fill_disk(world):
    """Fills the disk of a server under load, empties it, and restarts the server."""
    cluster = world.cluster
    server = cluster.servers[0]
    server.fill_disk()
    took_s = world.make_progress("with a full disk")
    server.kill()
    server.empty_disk()
    server.start()
    cluster.wait_for_readiness(True)
    return took_s


def roll(world):
    """Stops all servers in turn, as for an update."""
    took_s = 0
    for server in world.cluster.servers:
        server.stop()
        took_s = max(took_s, world.make_progress("with a server that was stopped"))
        server.start()
        server.wait_until_current()
        world.cluster.wait_until_in_step()
        world.cluster.wait_for_readiness(True)
    return took_s


def strike(world, kind):
    """Causes a fault under load, and repairs it. Returns the time until the next publications were acknowledged."""
    cluster = world.cluster
    if len(cluster.servers) > 1:
        # Three replicas tolerate one failure, and a replica that is behind counts as one.
        cluster.wait_until_in_step()
    if kind.startswith("part"):
        took_s = part(world, kind)
    elif kind == "disk":
        took_s = fill_disk(world)
    elif kind == "rolling":
        took_s = roll(world)
    elif kind == "node":
        node = world.random.choice(cluster.nodes)
        world.down.add(node)
        node.kill()
        took_s = world.make_progress("without a node")
        node.start()
        world.down.discard(node)
    else:
        server = world.random.choice(cluster.servers)
        (server.kill if kind == "server" else server.pause)()
        if len(cluster.servers) > 1:
            took_s = world.make_progress(f"with a {kind} that is down")
        else:
            cluster.wait_for_readiness(False)
        (server.start if kind == "server" else server.go_on)()
        if len(cluster.servers) == 1:
            took_s = world.make_progress("after the server's return")
        cluster.wait_for_readiness(True)
    print(f"  {kind}: {world.step} publications acknowledged {took_s:.1f} s after it", flush=True)
    return took_s
