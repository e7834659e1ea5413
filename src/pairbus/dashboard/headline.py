"""What the page begins with: what is wrong, since when, whether anything is lost; the worst first.

What concerns many entities or clients in the same way is one line, so that an outage of a namespace with
thousands of queues is as short to read as that of one queue. Pure: pictures of pairs in, plain values for
JSON out.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from pairbus.plumbing.wording import counted, write_amounts, write_moment, write_money

from .picture import Facts

# A source is called blind when it failed and its last word is older than this.
_STALE = 30.0
# The sources that look into the backlog.
_BACKLOG = frozenset({"backlog", "waiting"})
# In seconds, as in the alerts: how long a backlog may lie there undrained, and how old it may become.
_UNDRAINED, _OLD = 600.0, 1800.0
# How full a spool may be before it takes no more: what is left is less than most messages need.
_FULL = 0.99
# Names that a line has room for.
_MOST_NAMES, _LONGEST_NAME, _LONGEST_NAMES = 3, 40, 80
# A state of entities, how bad it is, the alert, and what is said of one or of many.
_FAIL = "no messages: sends fail"
_DOWN = (
    ("faulted", "bad", "EntityFaulted", f"takes {_FAIL}", f"take {_FAIL}"),
    ("refusing", "bad", "EntityRefuses", "refuses what is sent", "refuse what is sent"),
    ("failed_over", "warn", "EntityFailedOver", "is down", "are down"),
)


def headline(pairs: Sequence[Facts], *, budget: Decimal | None, now: float) -> Facts:
    """The one thing to know at three in the morning, and what follows it: the worst first."""
    said: list[Facts] = []
    for pair in pairs:
        said += [one | {"pair": pair["name"]} for one in _troubles(pair, now=now)]
    if budget is not None:
        said += _of_money([pair["money"] for pair in pairs if pair["money"]], budget)
    said.sort(key=lambda one: ("bad", "warn").index(one["level"]))
    return {"level": said[0]["level"] if said else "good", "said": said, "safety": _safety(pairs, now)}


def blinded(why: str) -> Facts:
    """What to know when the dashboard itself has failed."""
    text = "The dashboard cannot draw what it sees: everything below is old"
    said = _say("bad", text, "SourceBlind", why)
    return {"level": "bad", "said": [said], "safety": "Use pairbus status on a terminal instead."}


def _safety(pairs: Sequence[Facts], now: float) -> str:
    """Whether anything is lost, in a sentence."""
    if not pairs:
        return "Only embedded namespaces are watched: --pair NAME shows a pair beside them."
    lost = sum(pair["verdict"]["lost"] for pair in pairs if pair["verdict"])
    if lost:
        return "Keep all records as they are: they tell which messages are missing."
    is_left = any(pair["spool"]["bytes_left"] for pair in pairs)
    unseen = [one["name"] for one in pairs if not (one["clients"] or one["backlog"] or one["verdict"])]
    if len(unseen) == len(pairs):
        what = (
            "but the spool of clients that are gone" if is_left else "so nothing can be said about messages"
        )
        return f"No client and no backlog is seen, {what}."
    waiting = sum(pair["backlog"]["active"] for pair in pairs if pair["backlog"])
    spooled = sum(pair["spool"]["messages"] for pair in pairs)
    places = [*(["the backlog"] if waiting else []), *(["the spools of clients"] if spooled else [])]
    is_damaged = any(pair["spool"]["damaged"] for pair in pairs)
    kept = f"Nothing {'else ' if is_damaged else ''}that was accepted is lost"
    if waiting + spooled:
        kept += f": {counted(waiting + spooled, 'message waits', 'messages wait')} in {' and '.join(places)}"
    kept = f"A damaged part of the spool may hold messages. {kept}." if is_damaged else f"{kept}."
    if is_left:
        kept += " What clients that are gone left in the spool waits until it is replayed."
    if unseen:
        kept += f" Of {_names(unseen)} nothing can be said: no client and no backlog is seen."
    if any("backlog" in _blind(pair, now) for pair in pairs):
        kept += " The backlog cannot be seen now, so its number is not known or old."
    if any(_refuses(pair) for pair in pairs):
        return f"Sends fail now: applications get an error. {kept}"
    return kept


def _refuses(pair: Facts) -> bool:
    """Whether some sends raise: for a fault, or since neither side takes them and no spool does."""
    is_down = any(entity["state"] == "failed_over" for entity in pair["entities"])
    return any(_standing(entity) in ("faulted", "refusing") for entity in pair["entities"]) or any(
        client["fault"]
        or (is_down and client["queues"] and not client["usable"] and not 0 <= _fullness(client) < _FULL)
        for client in pair["clients"]
        if not client["is_gone"]
    )


def _names(names: Sequence[str]) -> str:
    """Names as a sentence has them: all, or the first and how many more. Long ones lose their middle."""
    shown = [
        name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME // 2]}…{name[-_LONGEST_NAME // 2 :]}"
        for name in names[:_MOST_NAMES]
    ]
    if (more := len(names) - len(shown)) > 0:
        shown.append(f"{more:,} more")
    return " and ".join([*([", ".join(shown[:-1])] if shown[1:] else []), shown[-1]])


def _stranded(pair: Facts, now: float) -> Iterable[Facts]:
    """Messages that wait longer than they should, as the alerts of the same names have it. While an entity is
    failed over a backlog is as it should be, and whoever drains it may be about to come. While the backlog
    cannot be seen, no drain would reach it either.
    """
    active, drain = pair["backlog"]["active"] if pair["backlog"] else 0, pair["drain"]
    is_paused = drain["state"] == "paused"
    since = {one["path"]: one["oldest"] for one in pair["waiting"]["paths"]}
    longest = min(since, key=since.__getitem__, default=None)
    oldest = now - since[longest] if longest is not None else 0.0
    is_outage = any(entity["state"] == "failed_over" for entity in pair["entities"])
    is_late = oldest > _UNDRAINED or not is_outage
    if active and (is_paused or not drain["pumps"]) and is_late and _BACKLOG.isdisjoint(_blind(pair, now)):
        waiting = counted(active, "message waits", "messages wait")
        reason = "the drain is paused" if is_paused else "nobody drains it"
        yield _say("warn", f"{waiting} in the backlog, and {reason}", "NobodyDrains", drain["trouble"])
    if longest is not None and oldest > _OLD:
        yield _say("warn", f"Messages for {_names([longest])} wait", "BacklogOld", since=since[longest])


def _say(level: str, text: str, alert: str, why: str | None = None, *, since: float | None = None) -> Facts:
    """A line; what it says of all pairs together has none."""
    return {"level": level, "pair": "", "text": text, "alert": alert, "why": why, "since": since}


def _blind(pair: Facts, now: float) -> list[str]:
    """Sources that say nothing now, and have not for a while."""
    return sorted(
        source
        for source, reading in pair["sources"].items()
        if reading["error"] and (reading["at"] is None or now - reading["at"] > _STALE)
    )


def _troubles(pair: Facts, *, now: float) -> Iterable[Facts]:
    if pair["verdict"] and (lost := pair["verdict"]["lost"]):
        text = counted(lost, "message is lost", "messages are lost")
        told = write_moment(pair["verdict"]["at"], timespec="minutes")
        given = f"It was given at {told} UTC. Did it see the records of all syphons that drained?"
        yield _say("bad", f"{text}, says the last verdict", "VerdictNotClean", given)
    yield from _of_clients([one for one in pair["clients"] if not one["is_gone"]])
    for state, level, alert, one_is, many_are in _DOWN:
        if down := [one for one in pair["entities"] if _standing(one) == state]:
            names = _names([one["path"] for one in down])
            text = f"{names} {one_is if len(down) == 1 else many_are}"
            why = next((one["last_failure"] or one["reason"] for one in down), None)
            if len(down) > _MOST_NAMES or (len(down) > 1 and len(names) > _LONGEST_NAMES):
                every = "All " if len(down) == len(pair["entities"]) else ""
                text, why = f"{every}{len(down):,} entities {many_are}", f"{names}: {why}"
            moments = [one["refuses_since" if state == "refusing" else "since"] for one in down]
            yield _say(level, text, alert, why, since=min(filter(None, moments), default=None))
    yield from _stranded(pair, now)
    yield from _of_messages(pair)
    if gone := [one for one in pair["clients"] if one["is_gone"]]:
        text = f"{_names([one['id'] for one in gone])} ended unclosed, or cannot write to the disk"
        yield _say("warn", text, "ClientGone", since=min(one["written_at"] for one in gone))
    if blind := _blind(pair, now):
        errors = [pair["sources"][source]["error"] for source in blind]
        why = "; ".join(map(": ".join, zip(blind, errors, strict=True))) if blind[1:] else errors[0]
        since = min((at for one in blind if (at := pair["sources"][one]["at"]) is not None), default=None)
        yield _say("warn", f"Cannot be seen now: {', '.join(blind)}", "SourceBlind", why, since=since)


def _of_clients(running: Sequence[Facts]) -> Iterable[Facts]:
    def ids(clients: Sequence[Facts]) -> str:
        return _names([one["id"] for one in clients])

    if faulted := [one for one in running if one["fault"]]:
        text = f"Sends of {ids(faulted)} fail: {'it has' if len(faulted) == 1 else 'they have'} a fault"
        yield _say("bad", text, "PairFaulted", faulted[0]["fault"])
    if stranded := [one for one in running if one["queues"] and not one["usable"]]:
        yield _say("bad", f"No backlog queue takes messages of {ids(stranded)}", "NoRotationLeft")
    if unwritten := [one for one in running if one["records_lost"]]:
        lost = counted(sum(one["records_lost"] for one in unwritten), "redirect record", "redirect records")
        yield _say("warn", f"{ids(unwritten)} could not write {lost}", "RecordsNotWritten")
    if unshipped := [one for one in running if one["shipping"] and one["shipping"]["last_error"]]:
        why = unshipped[0]["shipping"]["last_error"]
        yield _say("warn", f"Records of {ids(unshipped)} cannot be shipped", "RecordsNotShipped", why)


def _standing(entity: Facts) -> str:
    return str(entity["state"]) if entity["refuses_since"] is None else "refusing"


def _fullness(client: Facts) -> float:
    """How much of its spool is full; below 0 if it has none."""
    spool = client["spool"]
    if not spool or client["is_gone"]:
        return -1.0
    return spool["bytes"] / spool["limit"] if spool["limit"] else 1.0


def _of_messages(pair: Facts) -> Iterable[Facts]:
    backlog, spool, verdict = pair["backlog"], pair["spool"], pair["verdict"]
    if backlog and (dead := backlog["dead_letters"]):
        since = min((one["oldest"] for one in pair["waiting"]["dead"]), default=None)
        text = f"{counted(dead, 'dead letter', 'dead letters')} in the backlog"
        yield _say("warn", text, "DeadLetters", since=since)
    if backlog and (missing := len(backlog["missing"])):
        text = counted(missing, "backlog queue is missing", "backlog queues are missing")
        yield _say("warn", text, "BacklogQueuesMissing")
    if filling := [one for one in map(_fullness, pair["clients"]) if one > 0.5]:
        fullest = max(filling)
        text = f"The spool is {fullest:.0%} full" if fullest < _FULL else "The spool is full: sends fail"
        yield _say("bad", text, "SpoolFilling")
    if left := spool["bytes_left"]:
        text = f"Clients that are gone have left {counted(left, 'byte', 'bytes')} in the spool"
        yield _say("warn", text, "SpoolLeft")
    if spool["refused"] or spool["damaged"]:
        refused = counted(spool["refused"], "refused message", "refused messages")
        damaged = counted(spool["damaged"], "damaged part", "damaged parts")
        yield _say("warn", f"The spool keeps {refused} and {damaged}", "SpoolKeepsRefused")
    if waiting := pair["drain"]["waiting"]:
        text = counted(waiting, "message waits for an entity", "messages wait for entities")
        yield _say("warn", f"{text} that {'is' if waiting == 1 else 'are'} down", "PathsWaiting")
    if verdict and not verdict["is_clean"] and not verdict["lost"]:
        yield _say("warn", "The last verdict is incomplete: records are missing", "VerdictNotClean")


def _of_money(sums: Sequence[Facts], budget: Decimal) -> Iterable[Facts]:
    """A budget is that of all pairs together, as in the alerts."""
    total, per_hour, in_a_day = (
        sum((Decimal(one[name]) for one in sums), Decimal(0)) for name in ("total", "per_hour", "in_a_day")
    )
    currency = sums[0]["currency"] if sums else ""
    if total > budget:
        spent, allowed, _ = write_amounts(total, budget, total - budget)
        yield _say("warn", f"{spent} {currency} are spent, above the budget of {allowed}", "BudgetSpent")
    elif any(one["is_outage"] for one in sums) and in_a_day > budget and per_hour > 0:
        hours = (budget - total) / per_hour
        text = f"The outage passes the budget of {write_money(budget)} in {hours:.1f} h"
        spent, hourly, daily = map(write_money, (total, per_hour, in_a_day))
        why = f"{spent} {currency} are spent, {hourly} an hour, {daily} in a day"
        yield _say("warn", text, "BudgetForecast", why)
