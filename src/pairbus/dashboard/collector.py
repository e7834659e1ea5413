"""Gathers what all sources say, keeps the history, and tells whoever listens when there is news.

It lives on one event loop. Each source is looked at by a task of its own; a picture is put together from what
they said last, at most so often.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

from pairbus.clock import Clock, SystemClock
from pairbus.plumbing.tasks import cancel_all

from .headline import blinded, headline
from .history import History
from .namespaces import read_broker
from .own_drain import OwnDrain
from .pair_sources import pair_sources
from .picture import Facts, picture_pair
from .source import LookSource, Watch, describe
from .watched import Watched

log = logging.getLogger(__name__)
# News that come together are told together.
_LEAST_PAUSE = 0.2
# Drawing thousands of entities keeps the loop from everything else: this many times as long it has for that.
_REST = 3.0
# How far back the charts of a page look.
_CHART_SPAN = 6 * 3600.0
# How far back the rate of a drain looks.
_RATE_SPAN = 10.0
# So many sends that are refused in a row are no mistake of a single one.
_REFUSALS = 3
_BROKER = "broker"
# At the end, for a disk that is slow; one that hangs is left.
_WRITE_WAIT = 2.0


class SourceCollector:
    """Use it with `async with collector.running()`."""

    def __init__(self, watched: Watched, history: History, *, clock: Clock | None = None) -> None:
        self._watched = watched
        self._history = history
        self._clock = clock or SystemClock()
        self.drains = {pair.name: OwnDrain(pair) for pair in watched.pairs}
        self._changed = asyncio.Event()
        self._listeners: set[asyncio.Event] = set()
        self._moved: dict[str, deque[tuple[float, int]]] = {pair.name: deque() for pair in watched.pairs}
        self._seen: dict[str, tuple[object, ...]] = {}
        # What each entity had taken and refused when it had not yet begun to refuse all, and when that was.
        self._taken: dict[tuple[str, str], tuple[int, int, float]] = {}
        self._watches = [Watch(source, self._clock, self._changed.set) for source in self._sources()]
        self._numbers = itertools.count(1)
        self._has_failed = False
        self._writing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writing.set_result(None)
        #: The picture, and its number; the history has a number of its own.
        self.picture: Facts = {}
        self.number = 0
        self.history_number = 0

    def _sources(self) -> list[LookSource]:
        found = [
            source
            for pair in self._watched.pairs
            for source in pair_sources(pair, self._watched, self._clock)
        ]
        ready_file = self._watched.ready_file
        if ready_file is not None:
            every = max(2.0, self._watched.pace.glance)
            found.append(LookSource(of="", name=_BROKER, read=lambda: read_broker(ready_file), every=every))
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(watch.run()) for watch in self._watches]
        tasks.append(asyncio.create_task(self._publish()))
        try:
            yield
        finally:
            await asyncio.gather(*(drain.stop() for drain in self.drains.values()))
            await cancel_all(*tasks)
            await asyncio.wait({self._writing}, timeout=_WRITE_WAIT)
            self._keep_history()
            await asyncio.wait({self._writing}, timeout=_WRITE_WAIT)

    def poke(self, *names: str, of: str | None = None) -> None:
        """Look at these sources again at once, of one pair or of all."""
        for watch in self._watches:
            if watch.source.name in names and of in (None, watch.source.of):
                watch.poke()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[asyncio.Event]:
        """An event that is set with each new picture."""
        event = asyncio.Event()
        self._listeners.add(event)
        try:
            yield event
        finally:
            self._listeners.discard(event)

    async def _publish(self) -> None:
        took = 0.0
        while True:
            await self._changed.wait()
            await asyncio.sleep(max(_LEAST_PAUSE, _REST * took))
            self._changed.clear()
            began = monotonic()
            self._draw_or_tell()
            took = monotonic() - began
            self._keep_history()

    def _keep_history(self) -> None:
        """Write the history on a thread, one at a time: a disk that hangs costs one thread, not the page."""
        if self._writing.done() and (write := self._history.unwritten()):
            self._writing = asyncio.get_running_loop().run_in_executor(None, write)

    def _draw_or_tell(self) -> None:
        """Draw; a mistake of ours in it must not pass for a page on which nothing happens."""
        try:
            self._draw()
        except Exception as error:
            if not self._has_failed:  # once, not every second
                log.exception("what was seen cannot be drawn")
            self._has_failed = True
            old = {"budget": None, "pairs": [], "broker": None, **self.picture}
            self._show({**old, "at": self._clock.now(), "headline": blinded(describe(error))})
        else:
            self._has_failed = False

    # -- drawing

    def _draw(self) -> None:
        now = self._clock.now()
        pairs = [self._draw_pair(pair.name, now) for pair in self._watched.pairs]
        self._show(
            {
                "at": now,
                "headline": headline(pairs, budget=self._watched.budget, now=now),
                "budget": None if self._watched.budget is None else str(self._watched.budget),
                "pairs": pairs,
                "broker": self._draw_broker(),
            }
        )

    def _show(self, picture: Facts) -> None:
        self.picture = picture
        self.number = next(self._numbers)
        for event in self._listeners:
            event.set()

    def _draw_pair(self, name: str, now: float) -> Facts:
        readings = {watch.source.name: watch.reading for watch in self._watches if watch.source.of == name}
        pair = picture_pair(name, readings, own=self.drains[name].describe())
        drain, backlog = pair["drain"], pair["backlog"]
        rate = self._rate(name, drain["moved"] + drain["dead_lettered"], now)
        drain["rate"] = rate if drain["state"] == "running" else 0.0
        left = 0 if backlog is None else max(backlog["active"] - drain["waiting"], 0)
        drain["seconds_left"] = left / drain["rate"] if drain["rate"] and left else None
        money, is_seen = pair["money"], backlog is not None and readings["backlog"].error is None
        self._look_again(name, backlog, drain["state"], is_seen)
        self._judge_refusals(name, pair["entities"], now)
        states = {entity["path"]: entity for entity in pair["entities"]}
        fresh = self._history.note_states(name, states, now=now)
        for one in pair["entities"]:
            one["known"] = self._history.known(name, one["path"])
        sums = {
            "active": backlog["active"] if is_seen else None,
            "dead": backlog["dead_letters"] if is_seen else None,
            "oldest": max((now - one["oldest"] for one in pair["waiting"]["paths"]), default=0.0),
            "moved": drain["moved"],
            "spool": pair["spool"]["messages"],
            "cost": None if money is None else float(money["used"]),
        }
        fresh |= self._history.note_sample(name, sums, now=now)
        if fresh:
            self.history_number = next(self._numbers)
        return pair

    def _look_again(self, name: str, backlog: Facts | None, *about: object) -> None:
        """What waits for whom is looked at seldom, since that is billed; but once more as soon as the first
        message or dead letter is there, the last one is gone, a drain has begun or ended, or the secondary
        answers again: or the page would contradict itself.
        """
        if backlog is None:
            return
        seen = (backlog["active"] > 0, backlog["dead_letters"] > 0, *about)
        if self._seen.setdefault(name, seen) != seen:
            self._seen[name] = seen
            self.poke("backlog", "waiting", of=name)

    def _judge_refusals(self, name: str, entities: Iterable[Facts], now: float) -> None:
        """Pings go to entities that are down alone: one that was deleted while it was healthy, or that
        throttles, stays so. That it takes nothing shows only in what became of the sends.
        """
        for one in entities:
            sent = one["sent"].get("primary", {})
            taken, refused = sent.get("ok", 0), sent.get("failed", 0)
            before = self._taken.get((name, one["path"]))
            if before is None or one["state"] != "healthy" or before[0] != taken or before[1] >= refused:
                self._taken[name, one["path"]] = before = (taken, refused, now)
            one["refuses_since"] = before[2] if refused - before[1] >= _REFUSALS else None

    def _rate(self, name: str, handled: int, now: float) -> float:
        """Messages a second of late; less than before is another drain, a clock set back tells nothing."""
        seen = self._moved[name]
        if seen and (handled < seen[-1][1] or now < seen[-1][0]):
            seen.clear()
        if not seen or handled != seen[-1][1] or now - seen[-1][0] >= 1.0:
            seen.append((now, handled))
        while len(seen) > 2 and seen[1][0] < now - _RATE_SPAN:
            seen.popleft()
        passed = now - seen[0][0]
        return (handled - seen[0][1]) / passed if passed > 0.5 else 0.0

    def _draw_broker(self) -> Facts | None:
        watch = next((one for one in self._watches if one.source.name == _BROKER), None)
        if watch is None:
            return None
        value = watch.reading.value or {"namespaces": [], "kinds": []}
        return {**value, "at": watch.reading.at, "error": watch.reading.error}

    def history(self) -> dict[str, Any]:
        now = self._clock.now()
        return {
            "at": now,
            "pairs": {
                pair.name: {
                    "changes": self._history.changes(pair.name, since=now - _CHART_SPAN),
                    "samples": self._history.samples(pair.name, since=now - _CHART_SPAN),
                    "seen": self._history.seen(pair.name),
                }
                for pair in self._watched.pairs
            },
        }

    def readings(self) -> dict[tuple[str, str], tuple[float | None, str | None]]:
        """When each source last answered, and why it does not now: by pair and source."""
        ours = {("", "dashboard"): (None, "what was seen cannot be drawn")} if self._has_failed else {}
        return ours | {
            (watch.source.of, watch.source.name): (watch.reading.at, watch.reading.error)
            for watch in self._watches
        }
