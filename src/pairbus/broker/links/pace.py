"""How much one connection may do before it is the others' turn.

1. In one turn of the event loop a connection does limited work: effort (`CodecLimits`), time, and bytes of
   answers. What is left is done in the next turn, behind everybody else's, and until then
   nothing more is read from it.
2. All connections of a namespace together get a share of a turn: it is no matter of its other namespaces how
   many there are.
3. All strangers together get a share of the time, however many connections they come with.
"""

# Seconds a turn. A read that is full of messages takes a member as long as that.
MEMBER_SLICE = 0.005
STRANGER_SLICE = 0.001
# All connections of a namespace together: twenty messages of a hundred of them. It is looked at after each
# share, so that a turn has one share more at most.
ARRIVALS_SLICE = 0.03
# All receivers of a namespace together; who had to wait is served in the next turn.
SERVING_SLICE = 0.005

# Bytes a turn. What is rendered and not yet written is held twice, and everybody waits while it is rendered.
MOST_OUTPUT = 1024 * 1024

# A message that has come in many frames and has more bytes is not copied any more: a copy of a hundred
# megabytes takes a tenth of a second. Batches, which are taken apart, have fewer.
LARGEST_COPIED = MOST_OUTPUT + 128 * 1024

# What the event loop itself would read at once. A sender that pipelines fills it, and a turn with it.
MEMBER_READ = 256 * 1024
STRANGER_READ = 16 * 1024
# Bytes that may wait for their share, and one more read is taken. Of a hundred connections nearly all come
# while their namespace decides at length: to stop each and let it go on costs as much as the reads do.
LITTLE = 64 * 1024

# Effort that is spent on one read: so many messages or settlements of the usual form, or fewer other frames.
MOST_EFFORT = 1024

# Messages that are done in one go, before one looks at the time: each just joins a line, or leaves one.
MOST_IN_RUN = 64
# Bytes of such messages, or of a batch, that are read in one go: properties take a millisecond for 10 KB.
MOST_BYTES_IN_RUN = 64 * 1024

_STRANGERS_SHARE = 0.5
_STRANGERS_BURST = 0.005


class Allowance:
    """The time that strangers share: it grows as time passes, up to a few milliseconds."""

    __slots__ = ("_at", "_left")

    def __init__(self) -> None:
        self._at = 0.0
        self._left = _STRANGERS_BURST

    def wait(self, now: float) -> float:
        """Seconds until there is some again; zero if there is."""
        self._left = min(_STRANGERS_BURST, self._left + max(0.0, now - self._at) * _STRANGERS_SHARE)
        self._at = now
        return 0.0 if self._left > 0 else -self._left / _STRANGERS_SHARE

    def spend(self, seconds: float) -> None:
        """So much was used."""
        self._left -= seconds
