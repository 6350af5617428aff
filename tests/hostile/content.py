"""Builds bytes from the description in a row.

A text is its UTF-8, a list is its parts one after the other, and an object is one of

    {"hex": "81 85"}                        these bytes
    {"repeat": CONTENT, "times": N}         CONTENT, N times
    {"frame": KIND, "payload": CONTENT}     a client's WebSocket frame; KIND is a name or the number of an opcode.
        "fin": false, "rsv": 0-7            the bits with these names
        "mask": false                       without one
        "form": 7, 16 or 64                 number of bits of the encoded length
        "length": N                         the announced length, regardless of the payload
        "cut": N                            only the first N bytes of the whole
    {"u16": N}                              two bytes
    {"json": VALUE}                         VALUE as JSON
    {"pb": FIELDS}                          a Protobuf message without its length; {"pb1": FIELDS} with it.
                                            FIELDS are [NUMBER, VALUE]: a number is a varint, everything else bytes
    {"varint": N}
    {"token": {...}}                        a JSON Web Token, see tokens.py

"$name" anywhere stands for the value that the row's "each" gives it.
"""

import json
import struct

import tokens

KINDS = {"continuation": 0, "text": 1, "binary": 2, "close": 8, "ping": 9, "pong": 10}


def content(expression) -> bytes:
    if isinstance(expression, str):
        return expression.encode("utf-8")
    if isinstance(expression, list):
        return b"".join(map(content, expression))
    if not isinstance(expression, dict):
        raise ValueError(f"no content: {expression!r}")
    if "hex" in expression:
        return bytes.fromhex(expression["hex"])
    if "repeat" in expression:
        return content(expression["repeat"]) * expression["times"]
    if "frame" in expression:
        return frame(expression)
    if "u16" in expression:
        return struct.pack(">H", expression["u16"])
    if "json" in expression:
        return json.dumps(filled_tokens(expression["json"]), separators=(",", ":")).encode()
    if "pb" in expression:
        return message(expression["pb"])
    if "pb1" in expression:
        body = message(expression["pb1"])
        return varint(len(body)) + body
    if "varint" in expression:
        return varint(expression["varint"])
    if "token" in expression:
        return tokens.token(expression["token"]).encode()
    raise ValueError(f"no content: {expression!r}")


def frame(parts) -> bytes:
    payload = content(parts.get("payload", ""))
    opcode = KINDS.get(parts["frame"], parts["frame"])
    length = parts.get("length", len(payload))
    form = parts.get("form") or (7 if length < 126 else 16 if length < 65_536 else 64)
    masked = parts.get("mask", True)
    first = (0x80 if parts.get("fin", True) else 0) | parts.get("rsv", 0) << 4 | opcode
    second = 0x80 if masked else 0
    if form == 7:
        head = bytes([first, second | length])
    elif form == 16:
        head = bytes([first, second | 126]) + struct.pack(">H", length)
    else:
        head = bytes([first, second | 127]) + struct.pack(">Q", length)
    # A zero mask is valid.
    whole = head + (bytes(4) if masked else b"") + payload
    return whole[: parts["cut"]] if "cut" in parts else whole


def message(fields) -> bytes:
    out = b""
    for number, value in fields:
        if isinstance(value, bool) or isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            # A list of fields is a message; any other list is bytes.
            nested = isinstance(value, list) and all(isinstance(v, list) and len(v) == 2 for v in value)
            body = message(value) if nested else content(value)
            out += varint(number << 3 | 2) + varint(len(body)) + body
    return out


def varint(number) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def filled_tokens(value):
    if isinstance(value, dict):
        if set(value) == {"$token"}:
            return tokens.token(value["$token"])
        if set(value) == {"$text"}:
            return content(value["$text"]).decode("utf-8")
        return {key: filled_tokens(item) for key, item in value.items()}
    return [filled_tokens(item) for item in value] if isinstance(value, list) else value


def fill(value, names):
    """`value` with every "$name" replaced."""
    if isinstance(value, str) and value.startswith("$"):
        return names.get(value[1:], value)
    if isinstance(value, list):
        return [fill(item, names) for item in value]
    if isinstance(value, dict):
        return {fill(key, names): fill(item, names) for key, item in value.items()}
    return value
