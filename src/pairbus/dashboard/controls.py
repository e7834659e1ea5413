"""What the dashboard does when it is told to: hold a drain, begin one, redrive, break and heal namespaces.

Each is what a command of `pairbus` does, through the same interface; nothing here can do more than that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from pairbus.backlog.discovery import discover
from pairbus.backlog.redrive import DeadLetterChoice, redrive
from pairbus.broker.control import ControlClient
from pairbus.errors import ConfigurationError, show_value
from pairbus.pairing.names import check_text
from pairbus.plumbing.wording import counted
from pairbus.spark.leash.leash import Order
from pairbus.spark.leash.tether import ControlFile, ask_leash

from .collector import SourceCollector
from .namespaces import fault_arguments
from .own_drain import OwnDrain
from .watched import Watched, WatchedPair

log = logging.getLogger(__name__)
# Redriving goes through all dead letters of a pair.
_LIMIT = 120.0
Given = Mapping[str, Any]
# What can be asked of a drain: of our own, of a syphon; what is said then, and the sources that show it.
_ORDERS: dict[str, tuple[Callable[[OwnDrain], Awaitable[None]], Order, str, tuple[str, ...]]] = {
    "pause": (
        OwnDrain.pause,
        "pause",
        "the drain pauses: what is in hand is given back",
        ("drain", "backlog"),
    ),
    "resume": (OwnDrain.resume, "run", "the drain goes on", ("drain",)),
    "stop": (OwnDrain.stop, "stop", "the drain stops; nothing stays locked", ("drain", "backlog", "waiting")),
}


def _text(given: Given, name: str) -> str | None:
    """A text that may be left out."""
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{name!r} is a text, not {show_value(value)}")
    return check_text(value) if value else None


def _need(given: Given, name: str) -> str:
    value = _text(given, name)
    if value is None:
        raise ConfigurationError(f"say which {name}: {name!r} is missing")
    return value


class Controls:
    """Carries out what a page asks for; each method tells what was done, in words."""

    def __init__(self, watched: Watched, collector: SourceCollector) -> None:
        self._watched = watched
        self._collector = collector
        self._actions: dict[str, Callable[[Given], Awaitable[str]]] = {
            **{name: partial(self._steer, name) for name in _ORDERS},
            "drain": self._drain,
            "redrive": self._redrive,
            "fault": self._fault,
            "heal": self._heal,
        }

    async def perform(self, given: Given) -> str:
        """Do it; ConfigurationError if it cannot be meant."""
        perform = self._actions.get(str(given.get("action")))
        if perform is None:
            raise ConfigurationError(f"there is no such action; there are {', '.join(self._actions)}")
        async with asyncio.timeout(_LIMIT):
            done = await perform(given)
        log.warning("done for the page: %s %a", given["action"], done)  # as a fault that is set is told
        return done

    # -- drains

    async def _steer(self, name: str, given: Given) -> str:
        steer, order, words, sources = _ORDERS[name]
        pair = self._pair(given)
        own = self._collector.drains[pair.name]
        if own.is_active:
            await steer(own)
        else:
            await asyncio.to_thread(lambda: ask_leash(ControlFile(pair.state_dir).read(), order))
        return self._told(words, *sources)

    async def _drain(self, given: Given) -> str:
        pair, path = self._pair(given), _text(given, "path")
        self._collector.drains[pair.name].start(path)
        return self._told(f"draining {path or 'everything'}", "drain", "backlog")

    # -- dead letters

    async def _redrive(self, given: Given) -> str:
        pair, reason = self._pair(given), _text(given, "reason")
        if pair.backlog is None:
            raise ConfigurationError(f"{pair.name} is known by its state directory alone: name its sides")
        choice = DeadLetterChoice(reasons=[reason] if reason else [])
        found = await discover([pair.backlog])
        names = [queue.name for queue in found.queues]
        done = await redrive(pair.backlog.pair, names, choice, options=pair.options)
        count = sum(done.redriven.values())
        locked = f"; {done.locked:,} stay, since somebody else has them locked" if done.locked else ""
        back = counted(count, "dead letter is", "dead letters are")
        return self._told(f"{back} back in the backlog{locked}", "backlog", "waiting")

    # -- embedded namespaces

    async def _fault(self, given: Given) -> str:
        namespace, kind = _need(given, "namespace"), _need(given, "kind")
        control, arguments = self._control(), fault_arguments(given)
        await asyncio.to_thread(lambda: control.set_fault(namespace, kind, arguments=arguments))
        return self._told(f"{namespace}: {kind}", "broker")

    async def _heal(self, given: Given) -> str:
        namespace, control = _need(given, "namespace"), self._control()
        await asyncio.to_thread(lambda: control.clear_faults(namespace))
        return self._told(f"{namespace} is healed", "broker")

    def _control(self) -> ControlClient:
        if self._watched.ready_file is None:
            raise ConfigurationError("no embedded namespaces are watched: start with --ready-file")
        return ControlClient.from_ready_file(self._watched.ready_file)

    # -- all

    def _pair(self, given: Given) -> WatchedPair:
        for pair in self._watched.pairs:
            if pair.name == given.get("pair"):
                return pair
        known = ", ".join(pair.name for pair in self._watched.pairs)
        raise ConfigurationError(f"there is no such pair; there are {known or 'none'}")

    def _told(self, words: str, *sources: str) -> str:
        self._collector.poke(*sources)
        return words
