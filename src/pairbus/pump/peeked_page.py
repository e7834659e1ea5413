"""The answer to a peek, taken apart without a codec: up to 250 messages, each a binary in a map of one entry.

Whatever has another form than the one that is usual goes through the codec and means the same.
"""

import struct

from pairbus.amqp.message import MessageSections

_u32 = struct.Struct(">I").unpack_from
# A map with a message above 255 bytes, behind its first byte: size, count, key, and a binary with its size.
_long_entry = struct.Struct(">II9sBI").unpack_from
_BODY = b"\x00\x53\x77\xd1"
_LIST_KEY = b"\xa1\x08messages\xd0"
_KEY = b"\xa1\x07message"


def read_page(answer: MessageSections) -> list[bytes]:
    """The messages of an answer as they stand on the wire."""
    if answer.body_kind != "value":
        return []
    try:
        found = _read_usual(answer.body_bytes)
    except (IndexError, struct.error):
        found = None
    if found is not None:
        return found
    body = answer.value()
    return [one["message"] for one in body.get("messages", ())] if isinstance(body, dict) else []


def _read_usual(body: bytes) -> list[bytes] | None:
    """None for another form: each key, size and count has to be where it usually is."""
    if body[:4] != _BODY or body[12:23] != _LIST_KEY or _u32(body, 8)[0] != 2:
        return None
    found: list[bytes] = []
    count, at = _u32(body, 27)[0], 31
    for _ in range(count):
        if body[at] == 0xD1:
            _, entries, key, kind, size = _long_entry(body, at + 1)
            if entries == 2 and key == _KEY and kind == 0xB0:
                at += 23 + size
                found.append(body[at - size : at])
                continue
        if body[at] == 0xD1 and _u32(body, at + 5)[0] == 2:
            at += 9
        elif body[at] == 0xC1 and body[at + 2] == 2:
            at += 3
        else:
            return None
        if body[at : at + 9] != _KEY:
            return None
        if body[at + 9] == 0xB0:
            begin = at + 14
            at = begin + _u32(body, at + 10)[0]
        elif body[at + 9] == 0xA0:
            begin = at + 11
            at = begin + body[at + 10]
        else:
            return None
        found.append(body[begin:at])
    return found if at == len(body) else None
