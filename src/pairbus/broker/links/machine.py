"""The protocol machine of a client's connection, as a namespace sets it up."""

from pairbus.amqp.connection import Connection
from pairbus.amqp.limits import CodecLimits
from pairbus.amqp.link import Link
from pairbus.amqp.performatives import Target
from pairbus.amqp.types import Symbol, UInt
from pairbus.words import CREDITS

# Azure closes a connection on which nothing was heard for four minutes.
_IDLE_TIMEOUT = 240.0
_MAX_FRAME_SIZE = 65536


def make_machine(namespace: str, limits: CodecLimits, *, credits: int | None, now: float) -> Connection:
    """A new one, for a peer that nobody knows yet; `now` is monotonic."""
    return Connection(
        server=True,
        container_id=namespace,
        # The npm client of a connection string with a signature instead of a key does without SASL. Such a
        # peer may do no more than one that came as ANONYMOUS: nothing before it has put a token.
        sasl_optional=True,
        max_frame_size=_MAX_FRAME_SIZE,
        idle_timeout=_IDLE_TIMEOUT,
        limits=limits,
        properties=None if credits is None else {Symbol(CREDITS): UInt(credits)},
        trusted=False,
        now=now,
    )


def target_of(link: Link) -> str | None:
    """Where the client's end of a link is."""
    target = link.remote_attach.target if link.remote_attach else None
    return target.address if isinstance(target, Target) else None
