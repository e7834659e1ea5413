"""Lock tokens: random uuids, made for every delivery.

`uuid.uuid4` takes longer than all the rest of a delivery in the engine, most of it in a system call and
in the checks of the constructor's arguments. So the bits come from a generator of our own, seeded by the
system, and the constructor is passed by. A token names a lock; it is no secret that protects one: who may
settle is decided by claims.
"""

from __future__ import annotations

import random
import uuid
from typing import Final

# The bits that make a random number a uuid of version 4 (RFC 9562, section 5.4).
KEPT: Final = ~((0xF << 76) | (0x3 << 62)) & ((1 << 128) - 1)
FIXED: Final = (0x4 << 76) | (0x2 << 62)

_bits = random.Random().getrandbits
_new = uuid.UUID.__new__
_set = object.__setattr__
_SAFETY = uuid.SafeUUID.unknown


def new_token() -> uuid.UUID:
    """A uuid that nobody has had before."""
    token = _new(uuid.UUID)
    _set(token, "int", _bits(128) & KEPT | FIXED)
    _set(token, "is_safe", _SAFETY)
    return token
