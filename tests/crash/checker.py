"""Compares the records of publishers and subscribers with the histories of the server, and lists contradictions.

Records are tuples in the order in which they were made:

("sent", id, channel)                       a publication is sent, for the first time or again
("acked", id, channel, offset, epoch)       its acknowledgement
("passed", id, channel, offset, epoch)      the acknowledgement of one that was sent again with its version: the position
                                            of the channel, which is at or behind the publication
("resumed", reader, channel, asked, epoch, offset, has_recovered)   a subscription begins behind this offset; `asked` is
                                            the position that it recovers from, or None
("seen", reader, channel, offset, id)       a publication reaches a subscriber
("history", channel, epoch, top, [(offset, id), …])          the whole history, with no publication on its way
("left", reader)                            a subscriber has left
("drained", channel)                        all resends are done: every subscriber has seen the history

An id is PUBLISHER/NUMBER, with numbers that rise in the order of publishing.
"""

#: Maximum number of listed problems of one kind.
SHOWN_MAX = 5


class Channel:
    """The known offsets of a channel, from all sources. Its history has `kept` publications; None means all."""

    def __init__(self, name, kept):
        self.name, self.kept = name, kept
        self.epoch = None
        self.ids, self.sources, self.sent = {}, {}, set()
        self.acked, self.passed = {}, {}
        self.top = 0
        #: By reader: the offset up to which it has seen all publications.
        self.positions = {}
        #: Positions whose recovery failed; the next history must explain why.
        self.not_recovered = []


class Checker:
    """Processes records one by one. `problems` contains the problems so far."""

    def __init__(self, kept=None):
        """`kept`: size of the history by namespace, for namespaces that do not keep everything."""
        self.channels, self.problems, self.kept = {}, [], kept or {}

    def take(self, record):
        kind, *fields = record
        getattr(self, kind)(*fields)

    def problem(self, channel, text):
        self.problems.append(f"{channel.name}: {text}")

    def channel(self, name):
        return self.channels.setdefault(name, Channel(name, self.kept.get(name.split(":")[0])))

    def same_epoch(self, channel, epoch, source):
        if not channel.ids:
            # A channel without publications is not stored, so it has a new epoch after a restart.
            channel.epoch = epoch
        if epoch != channel.epoch:
            self.problem(channel, f"{source}: the epoch is {epoch}, and was {channel.epoch}")

    def is_at(self, channel, offset, identity, source):
        """Checks that no offset has two publications."""
        known = channel.ids.setdefault(offset, identity)
        first = channel.sources.setdefault(offset, source)
        if known != identity:
            self.problem(channel, f"offset {offset} is {identity} for {source}, and was {known} for {first}")

    def sent(self, identity, name):
        self.channel(name).sent.add(identity)

    def acked(self, identity, name, offset, epoch):
        channel = self.channel(name)
        self.same_epoch(channel, epoch, f"acknowledgement of {identity}")
        self.is_at(channel, offset, identity, "an acknowledgement")
        first = channel.acked.setdefault(identity, offset)
        if first != offset:
            self.problem(channel, f"{identity} was acknowledged with offset {first}, then with {offset}")

    def passed(self, identity, name, offset, epoch):
        channel = self.channel(name)
        self.same_epoch(channel, epoch, f"acknowledgement of {identity}")
        channel.passed[identity] = offset

    def resumed(self, reader, name, asked, epoch, offset, has_recovered):
        channel = self.channel(name)
        self.same_epoch(channel, epoch, reader)
        if asked and not has_recovered:
            was_empty = asked[1] == 0 and asked[0] != epoch
            if channel.kept:
                channel.not_recovered.append((reader, asked[1]))
            elif not was_empty:
                self.problem(channel, f"{reader} has not recovered from {asked}")
        elif asked and channel.positions.setdefault(reader, offset) != offset:
            self.problem(channel, f"{reader} resumes at {offset}, and has seen {channel.positions[reader]}")
        channel.positions[reader] = offset

    def seen(self, reader, name, offset, identity):
        channel = self.channel(name)
        expected = channel.positions.get(reader, 0) + 1
        if offset != expected:
            self.problem(channel, f"{reader} sees offset {offset} where {expected} comes next")
        channel.positions[reader] = offset
        self.is_at(channel, offset, identity, reader)

    def history(self, name, epoch, top, publications):
        channel = self.channel(name)
        self.same_epoch(channel, epoch, "the history")
        first = max(1, top + 1 - channel.kept) if channel.kept else 1
        offsets = [offset for offset, _ in publications]
        if offsets != list(range(first, top + 1)):
            gap = next((at for at, offset in enumerate(offsets, first) if at != offset), first + len(offsets))
            self.problem(channel, f"the history is not {first} to {top}: {len(offsets)}, wrong from {gap} on")
        for reader, offset in channel.not_recovered:
            if offset + 1 >= first:
                self.problem(channel, f"{reader} has not recovered from {offset}, and the history begins at {first}")
        channel.not_recovered = []
        there, last = {}, {}
        for offset, identity in publications:
            self.is_at(channel, offset, identity, "the history")
            if identity in there:
                self.problem(channel, f"{identity} is there twice: at {there[identity]} and {offset}")
            there[identity] = offset
            if identity not in channel.sent:
                self.problem(channel, f"{identity} at {offset} was never sent")
            publisher, number = identity.rsplit("/", 1)
            if int(number) <= last.get(publisher, -1):
                self.problem(channel, f"{identity} at {offset} is behind {publisher}/{last[publisher]}")
            last[publisher] = int(number)
        for identity, offset in channel.acked.items():
            if offset >= first and there.get(identity) != offset:
                self.problem(channel, f"{identity} was acknowledged at {offset}, and is at {there.get(identity)}")
        for identity, offset in channel.passed.items():
            if offset >= first and not 0 < there.get(identity, 0) <= offset:
                self.problem(channel, f"{identity} was passed over at {offset}, and is at {there.get(identity)}")
        for offset, identity in channel.ids.items():
            if offset >= first and there.get(identity) != offset:
                source = channel.sources[offset]
                self.problem(channel, f"{identity} was at {offset} for {source}, and is at {there.get(identity)}")
        channel.top = top

    def left(self, reader):
        for channel in self.channels.values():
            channel.positions.pop(reader, None)

    def drained(self, name):
        channel = self.channel(name)
        for reader, offset in channel.positions.items():
            if offset != channel.top:
                self.problem(channel, f"{reader} has seen up to {offset} of {channel.top}")


def shorten(problems):
    """The first problems, and the number of all."""
    more = [f"… and {len(problems) - SHOWN_MAX} more"] if len(problems) > SHOWN_MAX else []
    return problems[:SHOWN_MAX] + more
