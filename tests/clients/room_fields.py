"""The fields of states, written from docs/rooms-protocol.md alone: the schema, values in states and in JSON, and changes in bits."""

import json

COUNT_BITS = (0, 4, 8, 16, 32)
STEP_BITS = (3, 5, 7)
UINT32_MAX = 2**32 - 1
SCHEMA_BYTES_MAX = 65_536


class RoomError(Exception):
    def __init__(self, kind, message=""):
        super().__init__(f"{kind}: {message}")
        self.kind = kind  # the name of the reason in the vectors


def malformed(message):
    return RoomError("Malformed", message)


def once(pairs):
    if len(fields := dict(pairs)) < len(pairs):
        raise malformed("a name occurs twice")
    return fields


def parse_json(text):
    try:
        return json.loads(text, object_pairs_hook=once)
    except ValueError as error:
        raise malformed(error) from None


def whole(value, least, most):
    if type(value) is not int or not least <= value <= most:
        raise malformed(f"{value!r} is not from {least} to {most}")
    return value


def require(condition, message):
    if not condition:
        raise malformed(message)


class Field:
    """A field. Its value is a number (the index of a choice), or a list of numbers (the bytes of a text)."""

    def __init__(self, form, is_last):
        self.name, self.type, self.names = form["name"], form["type"], form.get("names", [])
        self.motion, self.is_optional = form.get("motion", "step"), form.get("optional", False)
        require(self.motion in ("step", "linear", "angle") and type(self.name) is str and type(self.is_optional) is bool, "a field")
        ranges = {"flag": (1, 0, 1), "choice": (1, 0, len(self.names) - 1), "object": (4, 0, UINT32_MAX), "text": (1, 0, 255)}
        self.bytes, self.min, self.max = ranges.get(self.type) or (form["bytes"], form["min"], form["max"])
        bits, self.is_signed = 8 * self.bytes, self.min < 0
        require(self.type in (*ranges, "integer", "list") and self.bytes in (1, 2, 4) and self.min <= self.max, "a type")
        whole(self.min, -(1 << bits - 1), UINT32_MAX)
        whole(self.max, -(1 << bits - 1), (1 << bits - self.is_signed) - 1)
        self.delta_bits = whole(form.get("delta_bits", 0), 0, max((self.max - self.min).bit_length() if self.type == "integer" else 1, 1) - 1)
        whole(form.get("per_unit", 1), 1, UINT32_MAX)
        self.is_list = self.type in ("text", "list")
        self.count_max = whole(form["count_max"], 1, 1024) if self.is_list else 0
        self.count_min = whole(form["count_min"], 0, self.count_max) if self.type == "list" else 0
        self.length_bytes = 0 if is_last or self.count_min == self.count_max else 1 if self.count_max <= 255 else 2
        require(self.type != "choice" or len(self.names) <= 256 and all(type(name) is str for name in self.names), "the names of a choice")

    def split(self, state, at):
        """The value in a state, and where the next field begins. Raises an error if it is not there."""
        length = self.count_min if self.is_list else 1
        if self.is_list and self.count_min < self.count_max:
            length = int.from_bytes(state[at : at + self.length_bytes], "little") if self.length_bytes else (len(state) - at) // self.bytes
            length = whole(length, self.count_min, self.count_max)
        start, end = at + self.length_bytes, at + self.length_bytes + length * self.bytes
        require(end <= len(state), "a state ends early")
        starts = range(start, end, self.bytes)
        numbers = [self.inside(int.from_bytes(state[one : one + self.bytes], "little", signed=self.is_signed)) for one in starts]
        return (self.in_utf8(numbers) if self.is_list else numbers[0]), end

    def in_utf8(self, numbers):
        try:
            self.type == "text" and bytes(numbers).decode()
        except UnicodeDecodeError as error:
            raise malformed(error) from None
        return numbers

    def inside(self, number):
        return whole(number, self.min, self.max)

    def join(self, value):
        numbers = value if self.is_list else [value]
        length = len(numbers).to_bytes(self.length_bytes, "little") if self.length_bytes else b""
        return length + b"".join(number.to_bytes(self.bytes, "little", signed=self.is_signed) for number in numbers)

    def from_json(self, value):
        if self.type == "choice":
            require(value in self.names, f"{value!r} is no choice")
            return self.names.index(value)
        if self.type in ("flag", "text"):
            require(type(value) is (bool if self.type == "flag" else str), f"{self.name} is {value!r}")
        if self.type == "flag":
            return int(value)
        try:
            value = list(value.encode()) if self.type == "text" else value
        except UnicodeEncodeError as error:
            raise malformed(error) from None
        if not self.is_list:
            return self.inside(value)
        require(type(value) is list and self.count_min <= len(value) <= self.count_max, f"{self.name} has a wrong length")
        return [self.inside(one) for one in value]

    def to_json(self, value):
        shown = {"flag": bool, "choice": lambda index: self.names[index], "text": lambda text: bytes(text).decode()}
        return shown.get(self.type, lambda number: number)(value)

    def read(self, bits, was):
        if self.type == "object":
            return bits.count()
        width = (self.max - self.min).bit_length()
        if self.is_list:
            count = whole(self.count_min + bits.take((self.count_max - self.count_min).bit_length()), self.count_min, self.count_max)
            return self.in_utf8([self.inside(self.min + bits.take(width)) for _ in range(count)])
        if not self.delta_bits or not bits.take(1):
            return self.inside(self.min + bits.take(width))
        number = was + bits.signed(self.delta_bits)
        turn = self.max - self.min + 1
        return self.min + (number - self.min) % turn if self.motion == "angle" else self.inside(number)


class Schema:
    def __init__(self, document):
        self.kinds = {}
        as_bytes = document if isinstance(document, bytes) else json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        require(len(as_bytes) <= SCHEMA_BYTES_MAX, "the schema is longer than 64 KiB")
        document = parse_json(document) if isinstance(document, bytes) else document
        try:
            for kind in document["kinds"]:
                forms = kind["fields"]
                fields = [Field(form, form is forms[-1]) for form in forms]
                require(0 < len(fields) <= 62 and len({field.name for field in fields}) == len(fields), "the fields of a kind")
                require(type(kind["name"]) is str and kind["kind"] not in self.kinds, "a kind occurs twice")
                optional = next((at for at, field in enumerate(fields) if field.is_optional), len(fields))
                require(all(field.count_min == 0 if field.is_list else field.min <= 0 <= field.max for field in fields[optional:]), "an optional field")
                self.kinds[whole(kind["kind"], 0, 0xFFFF)] = fields
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise malformed(f"the schema: {error!r}") from None
        require(len(self.kinds) <= 256, "too many kinds")

    def split(self, kind, state):
        """The values of a state, or None if it does not have the form of its kind."""
        fields, values, at, optional = self.kinds.get(kind, []), [], 0, None
        try:
            for place, field in enumerate(fields):
                if field.is_optional and optional is None:
                    optional = place
                    if at == len(state):
                        return values + [[] if field.is_list else 0 for field in fields[place:]]
                value, at = field.split(state, at)
                values.append(value)
        except RoomError:
            return None
        has_form = fields and at == len(state) and (optional is None or any(values[optional:]))
        return values if has_form else None

    def join(self, kind, values):
        fields = self.kinds[kind]
        optional = next((at for at, field in enumerate(fields) if field.is_optional), len(fields))
        count = len(fields) if any(values[optional:]) else optional
        return b"".join(field.join(value) for field, value in zip(fields[:count], values))

    def state(self, one):
        """The state of an object of a snapshot, which may have fields instead."""
        if (named := one.get("fields")) is None:
            return one.get("state", b"")
        require("state" not in one and type(named) is dict and (kind := one.get("kind", 0)) in self.kinds, "fields")
        return self.join(kind, [field.from_json(named.get(field.name)) for field in self.kinds[kind]])

    def fields(self, kind, state):
        """The values of an object by name, or None."""
        if (values := self.split(kind, state)) is None:
            return None
        return {field.name: field.to_json(value) for field, value in zip(self.kinds[kind], values)}

    def changes(self, data, cell_units, known):
        """Reads the changes of a cell. `known` gives the kind, the place in the cell, and the state of an object in it."""
        bits, id, last = Bits(data), 0, (None, 0)
        for _ in range(bits.count()):
            id += bits.count() + 1
            kind, x, y, state = known(id)
            values = self.split(kind, state)
            require(values is not None, f"object {id} has no fields")
            if not bits.take(1):
                last = kind, bits.take(len(values) + 1)
            changed = last[1]
            require(last[0] == kind and changed, f"object {id} has no changes, or those of another kind")
            if changed & 1:
                place = bits.take(2)
                width = STEP_BITS[place] if place < len(STEP_BITS) else (cell_units - 1).bit_length()
                x, y = (bits.take(width), bits.take(width)) if place == len(STEP_BITS) else (x + bits.signed(width), y + bits.signed(width))
            for at, field in enumerate(self.kinds[kind]):
                if changed >> at + 1 & 1:
                    values[at] = field.read(bits, values[at])
            whole(x, 0, cell_units - 1), whole(y, 0, cell_units - 1)
            yield {"id": id, "kind": kind, "x": x, "y": y, "state": self.join(kind, values)}
        require(bits.left < 8 and bits.number == 0, "something follows the changes")


class Bits:
    """Numbers of some bits each; the lowest bit comes first."""

    def __init__(self, data):
        self.number, self.left = int.from_bytes(data, "little"), 8 * len(data)

    def take(self, count):
        require(count <= self.left, "the changes end early")
        value = self.number & (1 << count) - 1
        self.number >>= count
        self.left -= count
        return value

    def signed(self, count):
        half = 1 << count - 1
        return (self.take(count) ^ half) - half

    def count(self):
        place = first = 0
        while place < len(COUNT_BITS) - 1 and self.take(1):
            first += 1 << COUNT_BITS[place]
            place += 1
        return whole(first + self.take(COUNT_BITS[place]), 0, UINT32_MAX)
