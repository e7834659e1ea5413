"""What histories of all kinds share: a loop, a trace, and faults that come to pass."""

import hashlib
from collections.abc import Callable

from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings

from .faults import MOMENTS, Fault
from .loop import SimulatedLoop, outside
from .namespace import SimulatedNamespace

__all__ = ["SimulatedHistory", "create_queue", "schedule_fault"]


class SimulatedHistory:
    """A loop, and what happened on it."""

    def __init__(self, seed: int) -> None:
        self.loop = SimulatedLoop(seed)
        self.trace: list[str] = []
        self.failures: list[str] = []

    def note(self, line: str) -> None:
        """Put a line into the trace."""
        self.trace.append(f"{self.loop.time():10.4f} {line}")

    @property
    def digest(self) -> str:
        """Two histories that went the same way have the same."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


def schedule_fault(history: SimulatedHistory, fault: Fault, namespace: SimulatedNamespace) -> None:
    """Have a fault of a namespace begin and end."""

    def hold() -> None:
        history.note(f"somebody locks messages of {fault.entity} and dies")
        namespace.act(lambda engine, now: namespace.queue(fault.entity or "").receive(3, now))

    begins: dict[str, Callable[[], None]] = {
        "cut": lambda: namespace.cut("all connections break"),
        "refuse": lambda: namespace.cut("connections are refused"),
        "detach": lambda: namespace.detach(fault.entity),
        "disabled": lambda: namespace.detach(fault.entity),
        "token": lambda: namespace.detach(fault.entity),
        "restart": namespace.restart,
        "hold": hold,
    }

    def begin() -> None:
        history.note(f"{fault.where}: {fault.kind} {fault.entity or ''}")
        if fault.kind in begins:
            begins[fault.kind]()

    def end() -> None:
        if fault.kind == "silence":
            namespace.cut("it was silent for too long")
        else:
            namespace.wake()

    history.loop.call_at(fault.begin, begin, context=outside())
    if fault.kind not in MOMENTS:
        history.loop.call_at(fault.end, end, context=outside())


def create_queue(path: str, settings: QueueSettings, engine: Namespace, now: float) -> None:
    """Make a queue."""
    engine.create_queue(path, settings, now)
