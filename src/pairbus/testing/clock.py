"""A clock in the hand of a test, which the brokers that it was given to follow at once."""

from __future__ import annotations

import time

from pairbus.broker import Broker
from pairbus.clock import ManualClock


class SteeredClock(ManualClock):
    """Begins at the present, because the SDKs compare locks with the machine's clock, and stands still."""

    def __init__(self, start: float | None = None) -> None:
        super().__init__(time.time() if start is None else start)
        self._brokers: list[Broker] = []

    def follow(self, broker: Broker) -> None:
        """Let a running broker, which was made with this clock, notice when time passes."""
        self._brokers.append(broker)

    def advance(self, seconds: float) -> None:
        """Let time pass: locks and messages expire, schedules come due, before this returns."""
        super().advance(seconds)
        for broker in self._brokers:
            broker.tick()
