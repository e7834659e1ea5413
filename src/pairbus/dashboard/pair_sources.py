"""The sources of one pair: clients, backlog, what waits in it and for whom, drain, spool, money, verdict."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pairbus.backlog.backlog import Backlog
from pairbus.backlog.depth import read_depth
from pairbus.backlog.discovery import administration
from pairbus.backlog.survey import MessageSighting, survey_queues
from pairbus.client.state.directory import records_dir, spool_dir, status_dir, verdict_file
from pairbus.client.state.spool_aside import list_damaged, list_refused
from pairbus.client.state.spool_survey import count_bytes_left
from pairbus.client.state.status_file import describe_unreadable, read_status_files, unreadable_status_files
from pairbus.clock import Clock
from pairbus.errors import UnreachableError
from pairbus.pairing.names import backlog_queue_names
from pairbus.plumbing.files import read_file
from pairbus.plumbing.json_text import MAYBE_TEXT, MOMENT, Shape, fits, parse_json
from pairbus.pump.options import PumpOptions
from pairbus.spark.leash.leash import ORDER_STATES
from pairbus.spark.leash.tether import ControlFile, ask_leash
from pairbus.stores.places import StoreUri

from .money import MoneySum
from .source import Aside, LookSource
from .watched import Watched, WatchedPair

# Looked at in each queue, and in its dead letters: enough to tell destinations and reasons apart, and four
# operations a look. What lies beyond is counted, not looked at.
_MOST_PEEKED = 1000
_MOST_SHOWN = 50
_PEEK_LIMIT = 60.0
# What the page shows of an answer of the syphon, and of a verdict.
_DRAIN: Shape = {
    "order": str,
    "pumps": int,
    "trouble": MAYBE_TEXT,
    "counts": {"moved": int, "dead_lettered": int, "waiting": int},
}
_SUMS = ("redirected", "delivered", "waiting", "dead_lettered")
_VERDICT: Shape = {"is_clean": bool, "lost": int, "at": MOMENT, **{f"{name}?": int for name in _SUMS}}


def pair_sources(pair: WatchedPair, watched: Watched, clock: Clock) -> Iterator[LookSource]:
    pace = watched.pace

    def on_thread(name: str, every: float, function: Callable[[], Any]) -> LookSource:
        return LookSource(of=pair.name, name=name, read=Aside(function), every=every)

    yield on_thread("clients", pace.glance, lambda: read_clients(pair.state_dir, now=clock.now()))
    yield on_thread("status files", pace.count, lambda: check_status_files(pair))
    yield on_thread("drain", pace.glance, lambda: read_drain(pair.state_dir))
    yield on_thread("spool", pace.count, lambda: read_spool(pair.state_dir))
    records = pair.shared_records or records_dir(pair.state_dir)
    money = MoneySum(records, watched.sheet)
    # To list a store is paid for.
    often = pace.list_store if isinstance(records, StoreUri) else pace.count
    yield on_thread("money", often, lambda: money.read(now=clock.now()))
    yield on_thread("verdict", pace.count, lambda: read_verdict(pair.state_dir))
    backlog = pair.backlog
    if backlog is not None:
        yield LookSource(of=pair.name, name="backlog", read=lambda: count_backlog(backlog), every=pace.count)
        yield LookSource(
            of=pair.name,
            name="waiting",
            read=lambda: look_into(backlog, pair.options, now=clock.now()),
            every=pace.peek,
            limit=_PEEK_LIMIT,
        )


def read_clients(state_dir: Path, *, now: float) -> list[dict[str, Any]]:
    # `asdict` would copy thousands of entities.
    names = ("file", "pid", "host", "written_at", "is_stale", "status")
    found = read_status_files(status_dir(state_dir), now=now)
    return [{name: getattr(one, name) for name in names} for one in found]


def check_status_files(pair: WatchedPair) -> None:
    """Raise UnreachableError if what clients write cannot be seen, which would look as if all were well."""
    directory = status_dir(pair.state_dir)
    if pair.backlog is None and not directory.is_dir():  # it was named for what clients leave there
        raise UnreachableError(
            f"no client has written to {pair.state_dir}: is it the `state_dir` of the application?"
        )
    if broken := unreadable_status_files(directory):
        raise UnreachableError(describe_unreadable(broken))


def read_drain(state_dir: Path) -> dict[str, Any] | None:
    """What the running syphon says; None if there is none."""
    try:
        address = ControlFile(state_dir).read()
    except UnreachableError:
        return None
    answer = ask_leash(address)
    if not fits(answer, _DRAIN) or answer["order"] not in ORDER_STATES:
        raise UnreachableError("the syphon says what is not understood: is it of another version?")
    return answer


def read_spool(state_dir: Path) -> dict[str, Any]:
    """What the spool keeps because no side takes it, it cannot be read, or its client is gone."""
    refused, damaged = list_refused(state_dir), list_damaged(state_dir)
    return {
        "refused": len(refused),
        "damaged": len(damaged),
        "bytes_left": count_bytes_left(spool_dir(state_dir)),
        "refused_messages": [
            {name: one.described()[name] for name in ("name", "path", "message_id", "reason", "at")}
            for one in refused[:_MOST_SHOWN]
        ],
    }


def read_verdict(state_dir: Path) -> dict[str, Any] | None:
    """The last verdict that `pairbus verify` has given; None if it never has."""
    file = verdict_file(state_dir)
    try:
        found = parse_json(read_file(file))
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    if not fits(found, _VERDICT):
        raise UnreachableError(f"{file} is no verdict: `pairbus verify` writes it anew")
    return dict(found)


async def count_backlog(backlog: Backlog) -> dict[str, Any]:
    """How much each backlog queue holds, as the secondary tells it."""
    names = backlog_queue_names(backlog.name, backlog.count)
    depth = await read_depth(lambda: administration(backlog.pair.secondary), names)
    if depth.trouble is not None:
        raise UnreachableError(f"{depth.trouble.value.replace('_', ' ')}: {depth.reason}")
    return depth.to_dict()


async def look_into(backlog: Backlog, options: PumpOptions, *, now: float) -> dict[str, Any]:
    """For whom messages wait and since when, and why others are dead; a peek locks nothing."""
    paths: dict[str, dict[str, Any]] = {}
    dead: dict[str, dict[str, Any]] = {}
    is_partial = False
    for queue in backlog_queue_names(backlog.name, backlog.count):
        for is_dead in (False, True):
            seen = 0
            sightings = survey_queues(
                backlog.pair, [queue], options, now=now, active=not is_dead, dead_letters=is_dead
            )
            async for one in sightings:
                _note(one, dead if is_dead else paths, is_dead=is_dead)
                seen += 1
                if seen == _MOST_PEEKED:
                    is_partial = True
                    await sightings.aclose()
                    break
    return {
        "paths": sorted(paths.values(), key=lambda one: one["path"]),
        "dead": sorted(dead.values(), key=lambda one: one["reason"]),
        "is_partial": is_partial,
    }


def _note(one: MessageSighting, found: dict[str, dict[str, Any]], *, is_dead: bool) -> None:
    key = (one.reason or "unknown") if is_dead else (one.path or "(none)")
    row = found.get(key)
    if row is None:
        name = "reason" if is_dead else "path"
        row = found[key] = {name: key, "messages": 0, "bytes": 0, "deferred": 0, "oldest": one.enqueued}
        row.update({"paths": {}} if is_dead else {"queues": {}, "problems": {}})
    row["messages"] += 1
    row["bytes"] += one.bytes
    row["deferred"] += one.is_deferred
    row["oldest"] = min(row["oldest"], one.enqueued)
    places = row["paths" if is_dead else "queues"]
    place = (one.path or "(none)") if is_dead else one.queue
    places[place] = places.get(place, 0) + 1
    if not is_dead and one.reason is not None:
        problem = one.reason.partition(":")[0]
        row["problems"][problem] = row["problems"].get(problem, 0) + 1
