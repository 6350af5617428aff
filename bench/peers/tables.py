"""What is measured: one class for each table, with the servers in it, one round of their runs, and the columns."""

import statistics

from measuring import BUILT, HERE, feed, figure, fullest_window, in_node, started

DUNLIN = "Dunlin"


def per(count, of):
    return None if count is None or not of else count / of


class Table:
    """A load, and the servers that it is measured with."""

    name = ""
    title = ""
    #: The columns: a title, and the key of a figure.
    columns: dict = {}
    #: Figures whose ratio to Dunlin's in the same round is printed.
    ratios: dict = {}

    def contenders(self, dunlin):
        """The servers by name, with their options."""
        raise NotImplementedError

    def measure(self, laboratory, options):
        """The figures of one server."""
        raise NotImplementedError

    def round(self, laboratory, names, number, note):
        """The figures of all servers. The order alternates, so that a drift of the machine affects all equally."""
        found = {}
        for name in names if number % 2 else reversed(names):
            note(name)
            found[name] = self.measure(laboratory, self.contenders(laboratory.dunlin)[name])
        return found


class Rooms(Table):
    name = "rooms"
    title = "A. A room with 500 players, 60 ticks per second"
    columns = {
        "snapshots built a tick": "builds",
        "marshals a tick": "marshals",
        "allocations a tick": "allocations",
        "bytes allocated a tick": "allocated_bytes",
        "tick p50, ms": "tick_p50_ms",
        "tick p99, ms": "tick_p99_ms",
        "tick begun late, p99, ms": "late_p99_ms",
        "age of a snapshot, p99, ms": "age_p99_ms",
        "CPU time of a snapshot, µs": "cpu_us",
        "ticks without a snapshot, %": "skipped_percent",
    }
    ratios = {"tick p99": "tick_p99_ms", "CPU time of a snapshot": "cpu_us"}
    sides = {DUNLIN: None, "Go after": "room-shared", "Go before": "room-naive"}
    titles = {"Dunlin": DUNLIN, "Go, shared": "Go after", "Go, naive": "Go before"}

    def contenders(self, dunlin):
        return dict.fromkeys(self.sides)

    def round(self, laboratory, names, number, note):
        note("Dunlin and the Go server in both modes")
        report, stats = laboratory.run(
            "room everyone", "--turns=1", "--seconds=4", "--warm-up-seconds=1", "--verify-seconds=0",
            f"--spawn={laboratory.dunlin}", "--spawn-args=serve -c {config}", f"--peer={BUILT / 'room-go'}",
        )  # fmt: skip
        sides = {self.titles[side["name"]]: side for side in report["sides"]}
        return {name: self.figures(sides[name], stats.get(self.sides[name])) for name in names}

    def figures(self, side, lines):
        server, ms = side["server"], lambda us: None if us is None else us / 1000
        # The last line is the measured phase.
        own = lines[-1] if lines else {}
        return {
            "builds": per(own.get("builds"), server["ticks"]),
            "marshals": server["encodes_per_tick"],
            "allocations": per(own.get("allocations"), server["ticks"]),
            "allocated_bytes": per(own.get("allocated_bytes"), server["ticks"]),
            "tick_p50_ms": ms(server["tick_p50_us"]),
            "tick_p99_ms": ms(server["tick_p99_us"]),
            "late_p99_ms": ms(server["late_p99_us"]),
            "age_p99_ms": ms(side["age"]["p99_us"]),
            "cpu_us": side["server_cpu_us_per_snapshot"],
            "skipped_percent": 100 * side["ticks_skipped_share"],
            "snapshots": side["snapshots"],
            "client_cores": side["client_cores_busy"],
        }


def protocol_servers(dunlin):
    """The servers that speak the client protocol, which profiles need."""
    return {
        DUNLIN: started(dunlin, "serve", "-c", "{config}"),
        "Centrifugo's library": started(BUILT / "centrifuge", "-c", "{config}"),
        "Go after": feed("index", "once", 512),
        "Go before": feed("map", "each", 2048),
    }


#: What must not happen in a profile.
WRONG = ("lost", "duplicated", "reordered", "stray", "closed", "connect_failed")


def profile_figures(report, stats):
    """What the profiles' tables share."""
    counts, delivered = report["counts"], figure(report, "delivered")
    publications = figure(report, "published")
    window = fullest_window(stats) or {}
    own = window.get("publications")
    is_own = "dunlin_encodes_total" in counts
    return {
        "marshals": per(counts.get("dunlin_encodes_total"), publications) if is_own else per(window.get("marshals"), own),
        "visited": per(counts.get("dunlin_deliveries_total"), publications) if is_own else per(window.get("visited"), own),
        "allocations": per(window.get("allocations"), window.get("queued")),
        "live_bytes": per(window.get("live_bytes"), window.get("connections")),
        "writes": per(counts.get("dunlin_reactor_calls_total"), delivered) if is_own else per(window.get("written"), window.get("queued")),
        "cpu_us": per(1e6, figure(report, "deliveries_per_cpu_second")),
        "cores": figure(report, "cpu_cores"),
        "p99_ms": per(figure(report, "p99"), 1e3),
        "p999_ms": per(figure(report, "p999"), 1e3),
        "memory_mib": per(figure(report, "memory"), 1 << 20),
        "bytes_per_connection": figure(report, "bytes_per_connection"),
        "wrong": sum(figure(report, name) for name in WRONG),
        "client_cost": figure(report, "client_cost"),
        "delivered": delivered,
        "connections": figure(report, "connections"),
        "lag_p99_ms": per(figure(report, "lag_p99"), 1e3),
        "service_p99_ms": per(figure(report, "service_p99"), 1e3),
    }  # fmt: skip


class Hunt(Table):
    title = "B. Ten times the rate within 500 ms"
    columns = {
        "calm: p99, ms": "calm_p99_ms",
        "calm: p99.9, ms": "calm_p999_ms",
        "spike: p99, ms": "spike_p99_ms",
        "spike: p99.9, ms": "spike_p999_ms",
        "load generator late, p99, ms": "lag_p99_ms",
        "CPU time of a delivery, µs": "cpu_us",
        "client's CPU time / server's": "client_cost",
        "lost, repeated, out of order or closed": "wrong",
    }
    ratios = {"CPU time of a delivery": "cpu_us", "p99 of the spike": "spike_p99_ms"}

    def __init__(self, players, rate):
        self.name = f"hunt-{players}"
        self.title = f"{Hunt.title}, {players:,} players, {rate:g} publications a second before"
        self.options = [f"--set=crew.players.connections={players}", f"--set=crew.publisher.publish={rate}"]
        # All connect at once otherwise, and so do those of the peers, which accept them more slowly.
        self.options.append("--set=crew.players.connect_rate=2000")

    def contenders(self, dunlin):
        return protocol_servers(dunlin)

    def measure(self, laboratory, options):
        report, stats = laboratory.run("run spike --short", *self.options, *options)
        phases = {phase["name"]: phase["figures"] for phase in report["phases"]}
        latencies = {
            f"{phase}_{name}_ms": per(phases[phase].get(name), 1e3)
            for phase in ("calm", "spike")
            for name in ("p99", "p999")
        }
        return {**profile_figures(report, stats), **latencies}


class Market(Table):
    columns = {
        "clients looked at, a publication": "visited",
        "marshals a publication": "marshals",
        "allocations a delivery": "allocations",
        "writes or io_uring calls a delivery": "writes",
        "CPU time of a delivery, µs": "cpu_us",
        "cores": "cores",
        "p99, ms": "p99_ms",
        "load generator late, p99, ms": "lag_p99_ms",
        "private memory, MiB": "memory_mib",
        "bytes a connection": "bytes_per_connection",
        "of these, live in the Go heap": "live_bytes",
        "lost, repeated, out of order or closed": "wrong",
        "client's CPU time / server's": "client_cost",
    }
    ratios = {"CPU time of a delivery": "cpu_us", "private memory": "memory_mib"}

    def __init__(self, connections, each, processes=1):
        self.name = f"market-{connections}"
        self.processes = processes
        self.title = f"C. {connections:,} connections, {each:g} messages a second each, ten channels with 10 % of them"
        if processes > 1:
            self.title += f", {processes} processes"
        own = -(-connections // processes)
        self.options = [
            f"--set=phase.warm-up.connections.clients={own}",
            f"--set=crew.publisher.publish={10 * each}",
        ]

    def contenders(self, dunlin):
        # A sequence number for each client around a payload that is marshalled once, as the write-up has it, in both.
        before, after = feed("map", "once", 2048), feed("index", "once", 512)
        return {**protocol_servers(dunlin), "Go after": after, "Go before": before}

    def measure(self, laboratory, options):
        command = (f"run {HERE / 'loads/market.toml'}", *self.options, *options)
        if self.processes == 1:
            return profile_figures(*laboratory.run(*command))
        all_of = [profile_figures(*found) for found in laboratory.run_at_once(self.processes, *command)]
        return together(all_of)


#: How the figures of servers that ran at the same time become one. All others are means.
SUMS = ("cores", "memory_mib", "wrong", "delivered", "connections")
LARGEST = ("p99_ms", "p999_ms", "lag_p99_ms", "service_p99_ms")


def together(figures):
    result = {}
    for key in figures[0]:
        values = [one[key] for one in figures if one[key] is not None]
        how = sum if key in SUMS else max if key in LARGEST else statistics.mean
        result[key] = how(values) if values else None
    return result


class Broadcast(Table):
    """The table of peers in README and docs/benchmarks.md, which is source D's as well."""

    name = "broadcast"
    title = "D. 1,000 clients, 30 publications a second"
    load = ["--subscribers=1000", "--rate=30", "--payload-bytes=128", "--publish-via=api", "--turns=1"]
    idle = ["--sessions=1000,4000,8000"]
    columns = {
        "deliveries per CPU-second of the server": "deliveries_per_cpu_second",
        "CPU time of a publication, ms": "cpu_ms",
        "walk of the clients, p50, ms": "walk_ms",
        "allocations a publication": "allocations",
        "bytes allocated a publication": "allocated_bytes",
        "p99, ms": "p99_ms",
        "p50, ms": "p50_ms",
        "bytes per idle subscriber": "idle_bytes",
        "bytes per delivery": "bytes",
        "client's CPU time per delivery / server's": "client_cost",
        "lost or repeated": "wrong",
    }
    ratios = {"CPU time of a publication": "cpu_ms"}

    def __init__(self, seconds=5):
        self.seconds = seconds

    def contenders(self, dunlin):
        return {
            DUNLIN: started(dunlin, "serve", "-c", "{config}"),
            "Centrifugo's library": started(BUILT / "centrifuge", "-c", "{config}"),
            "Socket.IO": in_node("socketio", "socketio"),
            "Colyseus": in_node("colyseus", "colyseus"),
            "uWebSockets.js": in_node("uwebsockets", "plain"),
            "Go before (map)": feed("map", "each", 512),
            "Go after (copied list)": feed("list", "each", 512),
            "Go that marshals once (copied list)": feed("list", "once", 512),
        }

    def measure(self, laboratory, options):
        fanout, stats = laboratory.run("fanout", *self.load, f"--duration={self.seconds}s", *options)
        idle, _ = laboratory.run("idle", *self.idle, *options)
        window = fullest_window(stats) or {}
        own = window.get("publications")
        return {
            "deliveries_per_cpu_second": fanout["deliveries_per_server_cpu_second"],
            "cpu_ms": fanout["server_cpu_ns"] / 1e6 / fanout["publications"],
            "walk_ms": per(window.get("took_p50_us"), 1e3),
            "allocations": per(window.get("allocations"), own),
            "allocated_bytes": per(window.get("allocated_bytes"), own),
            "p99_ms": fanout["latency"]["p99_us"] / 1e3,
            "p50_ms": fanout["latency"]["p50_us"] / 1e3,
            "idle_bytes": idle["rss_bytes_per_session"],
            "bytes": fanout["bytes_per_delivery"],
            "client_cost": fanout["client_cost_ratio"],
            "wrong": fanout["lost"] + fanout["duplicated"],
        }


class States(Table):
    """What one tick of the same room costs, if it is sent as the fields that have changed."""

    name = "states"
    title = "Typed state: 100 objects that all move and turn, 500 players, 60 ticks per second"
    columns = {
        "bytes of a tick per player": "bytes",
        "CPU time per player and tick, µs": "cpu_us",
        "client's CPU time / server's": "client_cost",
        "lost or repeated": "wrong",
    }
    ratios = {"bytes": "bytes", "CPU time": "cpu_us"}
    players = 500
    #: Of a stamp, a sequence number and their frame, which each delivery has in `fanout`.
    payload_bytes = 42
    whole = "Dunlin with whole states"
    titles = {"Dunlin": whole, "Dunlin, fields": DUNLIN}

    def contenders(self, dunlin):
        options = [f"--spawn={dunlin}", "--spawn-args=serve -c {config}"]
        return {DUNLIN: options, self.whole: options, "Colyseus": in_node("colyseus", "colyseus", "-objects", 100)}

    def round(self, laboratory, names, number, note):
        servers = self.contenders(laboratory.dunlin)
        parts = [lambda: self.dunlin(laboratory, servers[DUNLIN], note), lambda: self.colyseus(laboratory, servers["Colyseus"], note)]
        found = {}
        for part in parts if number % 2 else reversed(parts):
            found |= part()
        return {name: found[name] for name in names}

    def dunlin(self, laboratory, options, note):
        note("Dunlin, with fields and without")
        report, _ = laboratory.run(
            "room everyone", "--typed", "--no-peer", "--inputs-per-second=0", "--turns=2", "--seconds=4", "--warm-up-seconds=1",
            "--verify-seconds=0", f"--players={self.players}", *options,
        )  # fmt: skip
        return {
            self.titles[side["name"]]: {
                "bytes": side["bytes_per_snapshot"],
                "cpu_us": side["server_cpu_us_per_snapshot"],
                "skipped_percent": 100 * side["ticks_skipped_share"],
            }
            for side in report["sides"]
        }

    def colyseus(self, laboratory, options, note):
        note("Colyseus")
        report, _ = laboratory.run(
            "fanout", f"--subscribers={self.players}", "--rate=60", f"--payload-bytes={self.payload_bytes}", "--publish-via=api",
            "--turns=1", "--duration=8s", *options,
        )  # fmt: skip
        return {
            "Colyseus": {
                "bytes": report["bytes_per_delivery"] - self.payload_bytes,
                "cpu_us": 1e6 / report["deliveries_per_server_cpu_second"],
                "client_cost": report["client_cost_ratio"],
                "wrong": report["lost"] + report["duplicated"],
            }
        }


class Encodings(Broadcast):
    """The same load in both encodings of the client protocol."""

    name = "encodings"
    title = "C. JSON and Protobuf, 1,000 clients, 30 publications a second"
    ratios = {"bytes per delivery": "bytes", "CPU time of a publication": "cpu_ms"}

    def contenders(self, dunlin):
        options = started(dunlin, "serve", "-c", "{config}")
        return {DUNLIN: options, "Dunlin in Protobuf": [*options, "--encoding=protobuf"]}


class Restart(Table):
    name = "restart"
    title = "B. A rolling restart of three nodes, 600 sessions"
    columns = {
        "publications": "publications",
        "lost or repeated": "wrong",
        "sessions that moved and recovered": "reconnects",
        "that did not recover": "unrecovered",
        "away, p50, s": "back_p50_s",
        "away, longest, s": "back_max_s",
    }

    def contenders(self, dunlin):
        return {DUNLIN: started(dunlin, "serve", "-c", "{config}")}

    def measure(self, laboratory, options):
        report, _ = laboratory.run("cluster drain", "--sessions=600", *options)
        drains = report["drains"]
        return {
            "publications": report["publications"],
            "wrong": report["missed"],
            "reconnects": sum(drain["back"] for drain in drains),
            "unrecovered": sum(drain["unrecovered"] for drain in drains),
            "back_p50_s": statistics.median(drain["absence"]["p50_us"] for drain in drains) / 1e6,
            "back_max_s": max(drain["absence"]["max_us"] for drain in drains) / 1e6,
        }


class Balance(Table):
    name = "balance"
    title = "B. 2,500 players on two shards, 10 publications a second"
    columns = {
        "players of the fuller shard, of the mean": "sessions",
        "CPU time of the busier shard, of the mean": "busy",
        "lost, repeated, out of order or closed": "wrong",
    }

    def contenders(self, dunlin):
        return {DUNLIN: started(dunlin, "serve", "-c", "{config}")}

    def measure(self, laboratory, options):
        pages = []
        report, _ = laboratory.run(
            "run fanout", "--no-pin", "--set=server.shards=2", "--set=crew.subscribers.connections=2500",
            "--set=crew.publisher.publish=10", "--set=phase.hold.repeat=1", "--set=phase.hold.duration=6s", *options, pages=pages,
        )  # fmt: skip
        full = [page for page in pages if sum(by_shard(page, "dunlin_sessions")) > 2_500]
        before, after = (by_shard(page, "dunlin_shard_busy_seconds_total") for page in (full[0], full[-1]))
        busy = [late - early for early, late in zip(before, after, strict=True)]
        return {
            "sessions": most(by_shard(full[-1], "dunlin_sessions")),
            "busy": most(busy),
            "wrong": profile_figures(report, {})["wrong"],
        }


def by_shard(page, metric):
    """The values of a metric on a page of metrics, by shard."""
    return [float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(metric + "{shard=")]


def most(values):
    return max(values) / statistics.mean(values)


TABLES = [
    Rooms(),
    Hunt(2500, 3),
    Hunt(10_000, 0.75),
    Balance(),
    Restart(),
    Market(7000, 4.74),
    Market(15_000, 1),
    Market(40_000, 0.5, processes=3),
    Encodings(),
    Broadcast(),
    States(),
]
