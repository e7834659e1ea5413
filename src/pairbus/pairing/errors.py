"""What the rules of a pair raise. Each text says what happened and how to mend it.

    PairbusError
     ├── BacklogUnavailableError       no backlog queue takes messages just now
     ├── PrimaryEntityFault            the entity is faulted: pings meet the same permanent error
     ├── PairFaultedError              a side of the pair was faulted or closed under us
     ├── ScheduledInBacklogError       a number that stands for a message scheduled while failed over
     ├── MessageTooLargeForBacklog     fits the primary, but wrapped not a backlog queue
     ├── ReservedPropertyError         an application property has a name that the envelope needs
     ├── MalformedEnvelope             a message of a backlog queue that cannot be unwrapped
     ├── SamePairError                 the same endpoint, or the same client object, paired with itself
     └── ForkedClientError             a client used in a child process

The first three tell of something remote; the others of the caller's input or environment. Fields are plain
values, never exceptions or messages, so that each error survives pickle and shows no secret.
"""

from collections.abc import Sequence

from pairbus.errors import ConfigurationError, PairbusError


def tell_taken(error: Exception, taken: int, total: int) -> None:
    """Have what a call raises say which part of it was taken before: its text, and its `taken`."""
    told = (
        f"{error} The first {taken} of the {total} messages of this call are in the backlog: send the others."
    )
    error.taken = taken  # type: ignore[attr-defined]
    error.args = (told,)


# Short, so that what a log or a status keeps of an error has all of it.
_NEVER_REACHED = (
    " This primary was never reached from here: is its address right? If so, send again when a side is up; "
    "nothing is spooled before."
)


def tell_never_reached(error: Exception) -> None:
    """Have the error of a primary that nobody has ever reached say why it is raised, and what to do."""
    if _NEVER_REACHED not in str(error):  # several calls may have met the same error
        error.args = (f"{error}{_NEVER_REACHED}",)


class BacklogUnavailableError(PairbusError):
    """No backlog queue of the pair is left in the rotation. `taken`: how many messages of the call, counted
    from the first, are in the backlog all the same.
    """

    taken = 0

    def __init__(
        self, queues: int, *, retry_after: float | None = None, last_failure: str | None = None
    ) -> None:
        self.queues = queues
        self.retry_after = retry_after
        self.last_failure = last_failure
        failure = f" The last failure: {last_failure.rstrip('.')}." if last_failure else ""
        again = f" One is tried again within {retry_after:.1f} s." if retry_after is not None else ""
        super().__init__(
            f"None of the {queues} backlog queues takes messages.{failure}{again} Check that the secondary "
            "namespace is up, that `pairbus provision` has been run for it and that the credential has the "
            "Send claim; or set enable_spool=True to keep messages on this machine while both sides are down."
            " An attempt that was not answered may have been taken: send again with the same message_id."
        )


class PrimaryEntityFault(PairbusError):
    """An entity of the primary met the same permanent error three times in a row."""

    def __init__(self, path: str, cause: str) -> None:
        self.path = path
        self.cause = cause
        super().__init__(
            f"The entity {path!r} of the primary is faulted: {cause}. Mend the cause; sends resume with the "
            f"next good ping, or at once after mark_path_healthy({path!r}). With on_permanent='backlog' they "
            "would go to the backlog meanwhile."
        )


class PairFaultedError(PairbusError):
    """A side of the pair has faulted, so the pair does not send."""

    def __init__(self, side: str, cause: str) -> None:
        self.side = side
        self.cause = cause
        super().__init__(
            f"The {side} side of the pair is faulted: {cause}. Close this client and make a new one after "
            "the cause is mended."
        )


class ScheduledInBacklogError(PairbusError):
    """Numbers of messages that were scheduled while failed over cannot be cancelled at the primary."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = tuple(numbers)
        shown = ", ".join(str(number) for number in self.numbers[:5]) + (
            ", …" if len(self.numbers) > 5 else ""
        )
        super().__init__(
            f"Messages scheduled while the entity had failed over cannot be cancelled by number ({shown}): "
            "they have no sequence number at the primary before the syphon has moved them. Cancel the others "
            "in a call of their own; once these have arrived, peek the entity for their sequence numbers by "
            "message id."
        )


class MessageTooLargeForBacklog(PairbusError):
    """A message fits the primary, but with its envelope not a backlog queue, compressed or not."""

    def __init__(
        self, path: str, *, message_id: str | None, size: int, limit: int, is_header: bool = False
    ) -> None:
        """`is_header`: the sizes are of all that comes before the body."""
        self.path = path
        self.message_id = message_id
        self.size = size
        self.limit = limit
        what, remedy = "needs", "give the secondary the tier and the message size of the primary"
        if is_header:
            what, remedy = "needs, for its properties,", "put what is long into its body"
        super().__init__(
            f"The message {message_id!r} for {path!r} {what} {size} bytes with its envelope, and a backlog "
            f"queue takes {limit}. Send at least {size - limit} bytes less, or {remedy}."
        )


class ReservedPropertyError(ConfigurationError):
    """An application property has a name that the envelope needs for itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"The application property {name!r} has a name that is reserved for the stay in the backlog. "
            "Rename it; it is refused always, so that an outage cannot be the first to find it."
        )


class MalformedEnvelope(PairbusError):
    """A message of a backlog queue that cannot be unwrapped; its place is the dead letters."""

    #: What stands in `DeadLetterReason`; the description has the particulars.
    dead_letter_reason = "MalformedEnvelope"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"This message cannot be unwrapped: {reason}. Only paired clients should send to backlog queues; "
            "mend the property and re-drive it, or discard it."
        )


class SamePairError(ConfigurationError):
    """Both sides of a pair are one and the same, or a client is paired already."""


class ForkedClientError(PairbusError):
    """A client was used in another process than the one that made it."""

    def __init__(self, made_in: int, used_in: int) -> None:
        self.made_in = made_in
        self.used_in = used_in
        super().__init__(
            f"This client was made in process {made_in} and is used in process {used_in}. Connections do not "
            "survive a fork: make the client after the fork, for instance in the worker's start hook."
        )
