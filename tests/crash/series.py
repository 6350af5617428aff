"""A series of runs on one directory. Each run consists of load, a crash or stop, a restart, recovery, and checks."""

import json
import math
import random
import time

from checker import Checker, shorten
from load import Publisher, Subscriber, Threads, World
from storage_node import Api, Failed, StorageNode

from process import within

LOAD_TIMEOUT_S = 120
THREADS_TIMEOUT_S = 120
#: Maximum number of publications per run, by series.
ACKNOWLEDGEMENTS_MAX = [600, 600, 600, 3_000]
STOP_PART, KILLED_IN_START_PART = 0.15, 0.15
#: Maximum time after which a starting server is killed.
KILLED_IN_START_S = 0.2
#: Errors of the protocol that are temporary, and HTTP's 503.
TEMPORARY_CODES = {100, 111, 503}
#: Kinds of publishers by channel. Publications with versions need a separate channel.
CHANNELS = {
    "disk:crowd": ["plain", "keyed", "batch", "twins"],
    "disk:versions": ["versioned"],
    "synced:crowd": ["plain", "keyed", "twins"],
    "synced:batches": ["batch", "keyed"],
}
#: The channels of the publisher that publishes into many channels: some stay empty, and some keep only KEPT["short"]
#: publications.
WIDE = [f"disk:wide-{number}" for number in range(40)] + ["short:1", "short:2"]
KEPT = {"short": 20}


class Series:
    def __init__(self, binary, folder, seed, channels=None):
        self.random = random.Random(seed)
        self.node = StorageNode(binary, folder)
        self.load_max = self.random.choice(ACKNOWLEDGEMENTS_MAX)
        kinds_of = channels or CHANNELS
        self.world, self.checker, self.threads = World(), Checker(KEPT), Threads()
        names, wide = list(kinds_of), [] if channels else WIDE
        self.channels = names + wide
        self.publishers = [
            Publisher(f"{kind}-{number}@{channel}", kind, [channel], self.world, random.Random(self.random.random()))
            for channel, kinds in kinds_of.items()
            for number, kind in enumerate(kinds)
        ]
        if wide:
            self.publishers.append(Publisher("wide", "keyed", wide, self.world, random.Random(self.random.random())))
        self.subscribers = [
            Subscriber("all", self.channels, self.world),
            Subscriber("restless", names, self.world, is_restless=True),
            *(Subscriber(f"only {name}", [name], self.world) for name in names),
        ]
        self.runs, self.taken = 0, 0
        self.figures = {"stops": 0, "killed in start": 0, "left open": 0, "stored of these": 0, "start s": 0.0, "refused while stopping": 0}

    def vary_settings(self):
        """Changes settings that may change between two starts on the same directory."""
        self.node.settings = {
            "shards": self.random.choice([1, 2, 3]),
            "reactor": self.random.choice(["auto", "epoll"]),
            "storage": {"memtable_size": self.random.choice([65_536, 262_144, 67_108_864])},
        }

    def begin(self):
        self.vary_settings()
        self.node.start()
        self.connect_all()
        api = Api(self.node.port)
        for publisher in self.publishers:
            publisher.publish_some(api)
        api.close()
        self.see_all()

    def run(self):
        """One crash, or one clean stop."""
        self.runs += 1
        world = self.world
        wanted = round(math.exp(self.random.uniform(0, math.log(self.load_max))))
        is_stop = self.random.random() < STOP_PART
        publishing = Threads()
        for publisher in self.publishers:
            publishing.start(publisher.publish_until_broken, self.node.port)
        for publisher in self.more_publishers():
            publishing.start(publisher.publish_until_broken, self.node.port)
        world.wait_for_acknowledgements(world.acknowledged + wanted, LOAD_TIMEOUT_S)
        self.see_no_errors()
        self.before_end()
        if is_stop:
            self.node.stop()
        else:
            self.node.kill()
        world.is_over = True
        publishing.join("publishers", THREADS_TIMEOUT_S)
        self.threads.join("subscribers", THREADS_TIMEOUT_S)
        world.is_over = False
        self.figures["stops"] += is_stop
        self.figures["left open"] += sum(len(publisher.unanswered) for publisher in self.publishers)
        if is_stop:
            self.figures["refused while stopping"] += len(world.errors)
            self.see_only_temporary_errors()
        self.see_no_errors()
        self.after_end()
        self.restart()

    def restart(self):
        """Subscribers reconnect while the server starts. All publications must be there before anything is resent."""
        if self.random.random() < KILLED_IN_START_PART:
            self.figures["killed in start"] += 1
            self.node.spawn()
            self.node.kill_after(self.random.uniform(0, KILLED_IN_START_S))
            self.after_end()
        begun = time.monotonic()
        self.vary_settings()
        self.node.spawn()
        self.connect_all()
        self.node.wait_until_healthy()
        self.figures["start s"] = max(self.figures["start s"], time.monotonic() - begun)
        self.after_start()
        self.note_histories()
        self.count_stored_without_answer()
        sending = Threads()
        for publisher in self.publishers:
            sending.start(publisher.send_again, self.node.port)
        sending.join("publications that are sent again", THREADS_TIMEOUT_S)
        self.see_all()

    def more_publishers(self):
        """Publishers whose publications have separate checks."""
        return []

    def before_end(self):
        """Hook before the end of the process, under load."""

    def after_end(self):
        """Hook between the end of one process and the start of the next."""

    def after_start(self):
        """Hook for a healthy server before anything is resent."""

    def count_stored_without_answer(self):
        """Counts the unacknowledged publications from before the crash that are stored."""
        self.take_records()
        there = {identity for channel in self.checker.channels.values() for identity in channel.ids.values()}
        left_open = [identity for publisher in self.publishers for identity, _ in publisher.unanswered]
        self.figures["stored of these"] += sum(identity in there for identity in left_open)

    def connect_all(self):
        for subscriber in self.subscribers:
            self.threads.start(subscriber.run, self.node.port)

    def note_histories(self):
        """Records the histories. Returns the top offsets by channel."""
        api, tops = Api(self.node.port), {}
        for channel in self.channels:
            epoch, tops[channel], publications = api.history(channel)
            found = [(offset, data["id"]) for offset, data in publications]
            self.world.record("history", channel, epoch, tops[channel], found)
        api.close()
        return tops

    def see_all(self):
        """Checks, without publications in flight, that every subscriber receives the whole histories, including one that connects late."""
        tops = self.note_histories()
        self.take_records()
        epochs = {name: known.epoch for name, known in self.checker.channels.items()}
        begin = {name: (epochs[name], 0) for name in self.channels if tops[name]}
        late = Subscriber(f"late {self.runs}", list(begin), self.world, begin)
        self.threads.start(late.run, self.node.port)
        everybody = [*self.subscribers, late]
        if not within(LOAD_TIMEOUT_S, lambda: self.world.errors or all(each.has_seen(tops) for each in everybody)):
            behind = [f"{each.name} {each.positions}" for each in everybody if not each.has_seen(tops)]
            self.check()
            raise Failed(f"they have not seen {tops} in {LOAD_TIMEOUT_S} s: {behind}")
        for channel in self.channels:
            self.world.record("drained", channel)
        self.world.record("left", late.name)
        late.leave()
        self.check()

    def see_no_errors(self):
        if self.world.errors:
            raise Failed(f"{len(self.world.errors)} refused, the first: {self.world.errors[0]}")

    def see_only_temporary_errors(self):
        """Checks that a stopping server refused publications only with temporary errors."""
        others = [each for each in self.world.errors if each[1].get("code") not in TEMPORARY_CODES]
        self.world.errors.clear()
        if others:
            raise Failed(f"refused while the server stopped, not for a time: {others[0]}")

    def take_records(self):
        records = self.world.records[self.taken :]
        self.taken += len(records)
        for record in records:
            self.checker.take(record)

    def check(self):
        self.take_records()
        if self.checker.problems:
            raise Failed("; ".join(shorten(self.checker.problems)))
        self.see_no_errors()

    def end(self):
        self.world.is_over = True
        self.node.end()

    def keep_records(self):
        """Writes the records into a file beside the storage."""
        with open(self.node.folder / "records", "w", encoding="utf-8") as file:
            for record in self.world.records:
                file.write(json.dumps(record) + "\n")

    def add_figures(self, totals):
        kinds = [record[0] for record in self.world.records]
        recovered = sum(record[0] == "resumed" and record[-1] for record in self.world.records)
        figures = {"acknowledged": kinds.count("acked"), "seen": kinds.count("seen"), "recovered": recovered}
        for name, value in (self.figures | figures).items():
            totals[name] = max(totals.get(name, 0), value) if name == "start s" else totals.get(name, 0) + value

    @staticmethod
    def figures_text(totals):
        return ", ".join(f"{round(value, 2)} {name}" for name, value in totals.items())
