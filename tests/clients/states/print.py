"""Prints what is read from each line of the standard input, as write_sources.rs does."""

import sys

import states


def numbers(items):
    return ",".join(map(str, items))


def walker(one):
    return (
        f"heading={one.heading:.1f} score={one.score:.1f} is_on={int(one.is_on)} light={one.light} "
        f"target={one.target} wide={one.wide} deep={one.deep} name={one.name.encode().hex()}"
    )


def bag(one):
    return f"label={one.label.encode().hex()} pair={numbers(one.pair)} amount={one.amount} items={numbers(one.items)}"


def log(one):
    return f"numbers={numbers(one.numbers)} long={numbers(one.long)} class={one.class_}"


SHOWN = {"1": (states.read_walker, walker), "2": (states.read_bag, bag), "300": (states.read_log, log)}


def bytes_of(word):
    return bytes.fromhex("" if word == "empty" else word)


for line in sys.stdin.read().splitlines():
    kind, word, *rest = line.split(" ")
    if kind == "between":
        both = states.read_walker(bytes_of(word)), states.read_walker(bytes_of(rest[0]))
        one = states.walker_between(*both, float(rest[1]))
        print(f"{line} heading={one.heading:.2f} score={one.score:.2f} light={one.light}")
        continue
    read, show = SHOWN[kind]
    one = read(bytes_of(word))
    print(line, "-" if one is None else show(one))
