"""Compares the records of a cluster's publishers and subscribers with the histories.

Each acknowledged publication is in the history at its offset, once. Each subscriber has received the history from its first
position on: completely, once, in the order of the offsets, on any nodes. Offsets rise, but need not be consecutive.
"""

SHOWN_MAX = 5


def problems_of(acknowledged, seen, history):
    """The problems of one channel.

    acknowledged    (offset, id) in the order of one publisher's acknowledgements, by publisher
    seen            (begin, [(offset, id), …]) by subscriber: the publications received after the offset at which it began
    history         (offset, id) in order
    """
    problems = []
    offsets = [offset for offset, _ in history]
    if any(first >= second for first, second in zip(offsets, offsets[1:])):
        problems.append("the history is out of order")
    ids = [identity for _, identity in history]
    if twice := sorted({identity for identity in ids if ids.count(identity) > 1} if len(set(ids)) < len(ids) else []):
        problems.append(f"twice in the history: {twice[:SHOWN_MAX]}")
    stored = set(history)
    for publisher, acks in acknowledged.items():
        if lost := [ack for ack in acks if ack not in stored]:
            problems.append(f"{publisher}: {len(lost)} acknowledged and not in the history: {lost[:SHOWN_MAX]}")
        if any(first[0] >= second[0] for first, second in zip(acks, acks[1:])):
            problems.append(f"{publisher}: one publication after the other has a lower offset")
    for subscriber, (begin, publications) in seen.items():
        expected = [each for each in history if each[0] > begin]
        if publications != expected:
            missed = [each for each in expected if each not in set(publications)]
            surplus = [each for each in publications if each not in set(expected)]
            problems.append(
                f"{subscriber}: {len(publications)} of {len(expected)} seen; missed {missed[:SHOWN_MAX]}, "
                f"surplus {surplus[:SHOWN_MAX]}, twice or out of order: {not missed and not surplus}"
            )
    return problems


def problems_of_step(acknowledged, seen):
    """The problems of one channel in the publications since the last comparison.

    acknowledged    (offset, number), in any order
    seen            [(offset, number), …] up to the highest acknowledged offset, by subscriber
    """
    problems = []
    expected = next(iter(seen.values()), [])
    for subscriber, publications in seen.items():
        if publications != expected:
            odd = set(publications) ^ set(expected)
            problems.append(f"{subscriber} has seen something else than the first one: {sorted(odd)[:SHOWN_MAX]}")
        if any(first[0] >= second[0] for first, second in zip(publications, publications[1:])):
            problems.append(f"{subscriber} has seen them out of order")
        numbers = [number for _, number in publications]
        if len(set(numbers)) < len(numbers):
            problems.append(f"{subscriber} has seen one twice")
        if missed := sorted(set(acknowledged) - set(publications)):
            problems.append(f"{subscriber}: {len(missed)} acknowledged and not seen: {missed[:SHOWN_MAX]}")
    return problems


def holes_of(stretches, known):
    """What clients were told over a hole.

    stretches       (client, channel, epoch, begin, end, {offset: id}): what a client knows without a break, and what it heard
    known           {(channel, epoch): {offset: {id, …}}}: everything that was acknowledged to a publisher, or delivered to anybody
    """
    holes = []
    for client, channel, epoch, begin, end, heard in stretches:
        there = known.get((channel, epoch), {})
        missed = [(offset, identity) for offset, ids in there.items() if begin < offset <= end
                  for identity in ids if heard.get(offset) != identity]
        if missed:
            holes.append(f"{client}: {channel} from {begin} to {end} in {epoch} without {len(missed)}: {sorted(missed)[:SHOWN_MAX]}")
    return holes


GOOD = {"p": [(3, "p/1"), (9, "p/2")]}, {"s": (3, [(7, "q/1"), (9, "p/2")])}, [(3, "p/1"), (7, "q/1"), (9, "p/2")]

#: Problems, each with acknowledgements, received publications and a history that contain it.
PLANTED = {
    "an acknowledged publication lost": ({"p": [(3, "p/1"), (5, "p/2")]}, *GOOD[1:]),
    "two in the wrong order": ({"p": [(9, "p/2"), (3, "p/1")]}, *GOOD[1:]),
    "a publication stored twice": (GOOD[0], {"s": (9, [(11, "p/2")])}, [*GOOD[2], (11, "p/2")]),
    "one missed": (GOOD[0], {"s": (3, [(9, "p/2")])}, GOOD[2]),
    "the last one missed": (GOOD[0], {"s": (3, [(7, "q/1")])}, GOOD[2]),
    "one seen twice": (GOOD[0], {"s": (3, [(7, "q/1"), (7, "q/1"), (9, "p/2")])}, GOOD[2]),
    "seen in the wrong order": (GOOD[0], {"s": (3, [(9, "p/2"), (7, "q/1")])}, GOOD[2]),
    "seen and taken back": (GOOD[0], {"s": (3, [(7, "q/1"), (8, "q/2"), (9, "p/2")])}, GOOD[2]),
    "a history out of order": ({}, {}, [(7, "q/1"), (3, "p/1")]),
}

GOOD_STEP = [(3, 1), (9, 3)], {"s": [(3, 1), (7, 2), (9, 3)], "t": [(3, 1), (7, 2), (9, 3)]}

#: The same for steps.
PLANTED_STEPS = {
    "one missed by both": ([(3, 1), (8, 4), (9, 3)], GOOD_STEP[1]),
    "one missed by one": (GOOD_STEP[0], {**GOOD_STEP[1], "t": [(3, 1), (9, 3)]}),
    "one at another offset": ([(3, 1), (8, 3)], GOOD_STEP[1]),
    "one seen twice": (GOOD_STEP[0], {name: [*each, (11, 3)] for name, each in GOOD_STEP[1].items()}),
    "seen in the wrong order": (GOOD_STEP[0], {name: each[::-1] for name, each in GOOD_STEP[1].items()}),
}

GOOD_STRETCHES = (
    [("c", "a", "e", 3, 9, {5: "p/1", 9: "p/2"}), ("d", "a", "e", 5, 8, {}), ("d", "a", "f", 9, 12, {12: "p/3"})],
    {("a", "e"): {3: {"p/0"}, 5: {"p/1"}, 9: {"p/2"}, 11: {"lost, and told by a new epoch"}}, ("a", "f"): {12: {"p/3"}}},
)

#: The same for what a client knows without a break.
PLANTED_HOLES = {
    "one in the middle": ([("c", "a", "e", 3, 9, {9: "p/2"})], GOOD_STRETCHES[1]),
    "the last one": ([("c", "a", "e", 3, 9, {5: "p/1"})], GOOD_STRETCHES[1]),
    "another one at its offset": ([("c", "a", "e", 3, 9, {5: "q/1", 9: "p/2"})], GOOD_STRETCHES[1]),
    "one that another client has heard": ([("c", "a", "e", 3, 11, {5: "p/1", 9: "p/2"})], GOOD_STRETCHES[1]),
}
