"""Correct records, and the same records with the traces of a faulty server."""

from checker import Checker
from storage_node import Failed

CHANNEL = "disk:1"
HISTORY = [(1, "a/1"), (2, "b/1"), (3, "a/2")]
GOOD = [
    ("sent", "a/1", CHANNEL),
    ("acked", "a/1", CHANNEL, 1, "e"),
    ("resumed", "reader", CHANNEL, None, "e", 1, False),
    ("sent", "b/1", CHANNEL),
    ("seen", "reader", CHANNEL, 2, "b/1"),
    ("sent", "a/2", CHANNEL),
    ("resumed", "reader", CHANNEL, ("e", 2), "e", 2, True),
    ("acked", "b/1", CHANNEL, 2, "e"),
    ("passed", "a/2", CHANNEL, 3, "e"),
    ("seen", "reader", CHANNEL, 3, "a/2"),
    ("history", CHANNEL, "e", 3, HISTORY),
    ("drained", CHANNEL),
]


def history(*publications, top=None, epoch="e"):
    return 10, ("history", CHANNEL, epoch, top or len(publications), list(publications))


#: Faults, each with the record that it changes, and the changed record.
PLANTED = {
    "an offset twice in the history": history((1, "a/1"), (2, "b/1"), (2, "a/2"), top=3),
    "an acknowledged publication lost": history((1, "a/1"), (2, "a/2"), top=2),
    "the newest lost": history((1, "a/1"), (2, "b/1")),
    "a gap": history((1, "a/1"), (2, "b/1"), (4, "a/2"), top=4),
    "a publication twice": history(*HISTORY, (4, "b/1")),
    "a publication that nobody sent": history(*HISTORY, (4, "c/1")),
    "publications of one publisher swapped": history((1, "a/2"), (2, "b/1"), (3, "a/1")),
    "another epoch": history(*HISTORY, epoch="f"),
    "an offset acknowledged for two publications": (7, ("acked", "b/1", CHANNEL, 1, "e")),
    "another offset for a key": (8, ("acked", "b/1", CHANNEL, 3, "e")),
    "an acknowledgement in another epoch": (7, ("acked", "b/1", CHANNEL, 2, "f")),
    "a version passed over that is not there": (8, ("passed", "a/3", CHANNEL, 3, "e")),
    "not recovered": (6, ("resumed", "reader", CHANNEL, ("e", 2), "e", 2, False)),
    "recovered from another offset": (6, ("resumed", "reader", CHANNEL, ("e", 1), "e", 1, True)),
    "a new epoch, not recovered": (6, ("resumed", "reader", CHANNEL, ("e", 2), "f", 2, False)),
    "a subscriber that misses one": (4, ("sent", "b/1", CHANNEL)),
    "a subscriber that sees one twice": (9, ("seen", "reader", CHANNEL, 2, "b/1")),
    "a subscriber that sees other data": (4, ("seen", "reader", CHANNEL, 2, "b/2")),
    "a subscriber that does not see the last one": (9, ("sent", "a/2", CHANNEL)),
    "a publication seen and taken back": (9, ("seen", "reader", CHANNEL, 3, "b/2")),
}


def problems_of(records):
    checker = Checker()
    for record in records:
        checker.take(record)
    return checker.problems


def see_that_tampered_records_fail():
    if problems := problems_of(GOOD):
        raise Failed(f"good records are found wrong: {problems}")
    for name, (at, record) in PLANTED.items():
        if not problems_of([*GOOD[:at], record, *GOOD[at + 1 :]]):
            raise Failed(f"not found: {name}")
    print(f"self-test: {len(PLANTED)} kinds of tampered records are found")
