"""Lines between machines: a network namespace for each broker, one for all others, and a pair of interfaces
from there to each broker, which can be cut, slowed down, or made deaf in one direction.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Lines"]

BROKERS = {"primary": 1, "secondary": 2}
NOWHERE = "02:00:00:00:00:99"
LIMIT = 20.0


def run(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, timeout=LIMIT, text=True)
    return done.stdout


class Lines:
    """The network of one ordeal. Nothing of it is seen outside of its namespaces."""

    def __init__(self) -> None:
        self._here = f"pairbus-{os.getpid()}"

    def _space(self, actor: str) -> str:
        return f"{self._here}-{actor if actor in BROKERS else 'clients'}"

    def inside(self, actor: str) -> list[str]:
        """What to put before a command, so that it runs where an actor lives."""
        return ["ip", "netns", "exec", self._space(actor)]

    def address(self, broker: str) -> str:
        return f"10.0.{BROKERS[broker]}.2"

    @contextmanager
    def laid(self) -> Iterator[Lines]:
        spaces = [self._space(actor) for actor in (*BROKERS, "clients")]
        made: list[str] = []
        try:
            for space in spaces:
                run("ip", "netns", "add", space)
                made.append(space)
                run("ip", "-n", space, "link", "set", "lo", "up")
            for broker in BROKERS:
                self._lay(broker)
            yield self
        finally:
            for space in made:
                run("ip", "netns", "del", space)

    def _lay(self, broker: str) -> None:
        clients, there = self._space("clients"), self._space(broker)
        run(
            "ip", "-n", clients, "link", "add", broker, "type", "veth", "peer", "name", "line", "netns", there
        )
        for space, interface, last in ((clients, broker, 1), (there, "line", 2)):
            run("ip", "-n", space, "address", "add", f"10.0.{BROKERS[broker]}.{last}/24", "dev", interface)
            run("ip", "-n", space, "link", "set", interface, "up")

    # -- whether a line is in trouble

    def reaches(self, broker: str, port: int) -> bool:
        """Whether clients get an answer from a broker's port."""
        knock = f"import socket; socket.create_connection(({self.address(broker)!r}, {port}), 1.0).close()"
        command = [*self.inside("clients"), sys.executable, "-S", "-c", knock]
        return not subprocess.run(command, capture_output=True, timeout=LIMIT, check=False).returncode

    def holds_back(self, broker: str) -> bool:
        """Whether a slow line has had more to carry than it can, in either direction."""
        told = [
            run("tc", "-n", space, "-s", "qdisc", "show", "dev", interface)
            for space, interface in self._ends(broker)
        ]
        return any(int(count) for count in re.findall(r"overlimits (\d+)", "".join(told)))

    def _ends(self, broker: str) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self._space("clients"), broker), (self._space(broker), "line")

    # -- troubles

    @contextmanager
    def cut(self, broker: str) -> Iterator[None]:
        """Nothing gets through, and nobody is told."""
        run("ip", "-n", self._space(broker), "link", "set", "line", "down")
        yield
        run("ip", "-n", self._space(broker), "link", "set", "line", "up")

    @contextmanager
    def one_way(self, broker: str) -> Iterator[None]:
        """What clients say arrives; what the broker answers does not."""
        client = f"10.0.{BROKERS[broker]}.1"
        there = ("ip", "-n", self._space(broker), "neigh")
        run(*there, "replace", client, "lladdr", NOWHERE, "dev", "line", "nud", "permanent")
        yield
        run(*there, "del", client, "dev", "line")

    @contextmanager
    def slow(self, broker: str) -> Iterator[None]:
        """A few kilobytes a second in either direction."""
        slowly = ("root", "tbf", "rate", "64kbit", "burst", "4kb", "latency", "1s")
        for space, interface in self._ends(broker):
            run("tc", "-n", space, "qdisc", "add", "dev", interface, *slowly)
        yield
        for space, interface in self._ends(broker):
            run("tc", "-n", space, "qdisc", "del", "dev", interface, "root")
