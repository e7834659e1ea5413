"""From what sources said to what a page shows. Pure: readings in, plain values for JSON out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from pairbus.pairing.names import path_key

from .source import LastWord

_WORST = ("faulted", "failed_over", "suspect", "healthy")
# A source is called blind when it failed and its last word is older than this.
_STALE = 30.0
# In seconds, as in the alerts: how long a backlog may lie there undrained, and how old it may become.
_UNDRAINED, _OLD = 600.0, 1800.0
Facts = dict[str, Any]


def picture_pair(name: str, readings: Mapping[str, LastWord], *, own: Facts) -> Facts:
    """One pair. `own` tells of the drain that the dashboard itself runs."""
    pictures = _value(readings, "clients") or []
    clients = [_client(one) for one in pictures]
    running = [one["status"] for one in pictures if not one["is_stale"]]
    waiting = _value(readings, "waiting") or {"paths": [], "dead": [], "is_partial": False}
    return {
        "name": name,
        "primary": _first(pictures, "primary"),
        "secondary": _first(pictures, "secondary"),
        "clients": clients,
        "entities": _entities(running),
        "backlog": _value(readings, "backlog"),
        "waiting": waiting,
        "drain": _drain(_value(readings, "drain"), running, own),
        "spool": _spool(running, _value(readings, "spool")),
        "money": _value(readings, "money"),
        "verdict": _value(readings, "verdict"),
        "sources": {
            source: {"at": reading.at, "error": reading.error} for source, reading in readings.items()
        },
    }


def _value(readings: Mapping[str, LastWord], name: str) -> Any:
    return readings[name].value if name in readings else None


def _first(pictures: Sequence[Facts], name: str) -> str | None:
    return next((str(one["status"][name]) for one in pictures), None)


def _client(one: Facts) -> Facts:
    status = one["status"]
    rotation = status["rotation"]
    return {
        "id": f"{one['host']}:{one['pid']}",
        "is_gone": one["is_stale"],
        "written_at": one["written_at"],
        "provisioning": status["provisioning"],
        "fault": status.get("fault"),
        "usable": sum(bool(queue["usable"]) for queue in rotation),
        "queues": len(rotation),
        "syphon": status.get("syphon"),
        "spool": status.get("spool"),
        "sessions": status.get("sessions"),
        "records_lost": status.get("records_lost", 0),
        "shipping": status.get("shipping"),
        "warnings": list(status.get("warnings", ())),
    }


def _entities(running: Iterable[Facts]) -> list[Facts]:
    """Each path once: the worst that any running client sees, and what all of them did."""
    found: dict[str, Facts] = {}
    for status in running:
        for entity in status["entities"]:
            health = entity["health"]
            row = found.get(path_key(health["path"]))
            if row is None:
                row = found[path_key(health["path"])] = {
                    "path": health["path"],
                    "clients": 0,
                    "late": 0,
                    "without_headroom": 0,
                    "pings": 0,
                    "sent": {},
                }
            row["clients"] += 1
            row["late"] += entity.get("arrived_late", 0)
            row["without_headroom"] += entity.get("without_headroom", 0)
            row["pings"] += health["pings"]
            for route, outcomes in entity.get("sent", {}).items():
                sums = row["sent"].setdefault(route, {})
                for outcome, count in outcomes.items():
                    sums[outcome] = sums.get(outcome, 0) + count
            if "state" not in row or _rank(health["state"]) < _rank(row["state"]):
                row.update(
                    {
                        name: health[name]
                        for name in (
                            "state",
                            "since",
                            "reason",
                            "last_failure",
                            "fails_over_at",
                            "next_ping_at",
                        )
                    }
                )
    return sorted(found.values(), key=lambda row: (_rank(row["state"]), row["path"]))


def _rank(state: str) -> int:
    return _WORST.index(state) if state in _WORST else 0


def _drain(syphon: Facts | None, running: Sequence[Facts], own: Facts) -> Facts:
    """Whoever drains: a syphon that is running, the dashboard itself, or clients that host one."""
    is_ours = own["state"] not in ("idle", "ended", "failed")
    if syphon is not None and not is_ours:
        counts = syphon["counts"]
        words = {"run": "running", "pause": "paused", "stop": "stopping"}
        return {
            "by": "syphon",
            "state": words[syphon["order"]],
            "pumps": syphon["pumps"],
            "trouble": syphon["trouble"],
            "path": None,
            **{name: counts[name] for name in ("moved", "dead_lettered", "waiting")},
        }
    if own["state"] != "idle":
        return {"by": "dashboard", "pumps": int(own["state"] == "running"), **own}
    hosted = [status["syphon"] for status in running if status.get("syphon")]
    if hosted:
        return {
            "by": "clients",
            "state": "running" if any(one["state"] == "running" for one in hosted) else hosted[0]["state"],
            "pumps": sum(one["state"] == "running" for one in hosted),
            "trouble": next((one["last_error"] for one in hosted if one["last_error"]), None),
            "path": None,
            **{name: sum(one[name] for one in hosted) for name in ("moved", "dead_lettered", "waiting")},
        }
    return {"by": None, "state": "idle", "pumps": 0, "moved": 0, "dead_lettered": 0, "waiting": 0} | {
        "trouble": None,
        "path": None,
    }


def _spool(running: Iterable[Facts], aside: Facts | None) -> Facts:
    spools = [status["spool"] for status in running if status.get("spool")]
    sums = {name: sum(one[name] for one in spools) for name in ("messages", "bytes", "limit")}
    found = aside or {"refused": 0, "damaged": 0, "refused_messages": []}
    return {
        **sums,
        **found,
        "trouble": next((one["last_failure"] for one in spools if one["last_failure"]), None),
    }


def headline(pairs: Sequence[Facts], *, budget: Decimal | None, now: float) -> Facts:
    """The one thing to know at three in the morning, and what follows it: the worst first."""
    said: list[Facts] = []
    for pair in pairs:
        said += _troubles(pair, budget=budget, now=now)
    said.sort(key=lambda one: ("bad", "warn").index(one["level"]))
    level = said[0]["level"] if said else "good"
    return {"level": level, "said": said}


def _stranded(pair: Facts, now: float) -> Iterable[tuple[str, str]]:
    """Messages that wait longer than they should, as the alerts of the same names have it. While an entity is
    failed over a backlog is as it should be, and whoever drains it may be about to come.
    """
    active = pair["backlog"]["active"] if pair["backlog"] else 0
    waits = {one["path"]: now - one["oldest"] for one in pair["waiting"]["paths"]}
    longest = max(waits, key=waits.__getitem__, default=None)
    oldest = waits[longest] if longest is not None else 0.0
    is_outage = any(entity["state"] == "failed_over" for entity in pair["entities"])
    if active and not pair["drain"]["pumps"] and (oldest > _UNDRAINED or not is_outage):
        waiting = "1 message waits" if active == 1 else f"{active:,} messages wait"
        yield f"{waiting} in the backlog, and nobody drains it", "NobodyDrains"
    if oldest > _OLD:
        yield f"messages for {longest} wait for {oldest / 60:,.0f} minutes", "BacklogOld"


def _troubles(pair: Facts, *, budget: Decimal | None, now: float) -> Iterable[Facts]:
    name = pair["name"]

    def say(level: str, text: str, alert: str, why: str | None = None) -> Facts:
        return {"level": level, "pair": name, "text": text, "alert": alert, "why": why}

    for client in pair["clients"]:
        if client["is_gone"]:
            continue
        if client["fault"]:
            yield say("bad", f"the client {client['id']} has a fault", "PairFaulted", client["fault"])
        if client["queues"] and not client["usable"]:
            yield say("bad", f"no backlog queue is left in the rotation of {client['id']}", "NoRotationLeft")
        if client["records_lost"]:
            text = f"{client['id']} could not write {client['records_lost']:,} redirect records"
            yield say("bad", text, "RecordsNotWritten")
        if client["shipping"] and client["shipping"]["last_error"]:
            text = f"{client['id']} cannot ship its records"
            yield say("warn", text, "RecordsNotShipped", client["shipping"]["last_error"])
    for entity in pair["entities"]:
        why = entity["last_failure"] or entity["reason"]
        if entity["state"] == "faulted":
            yield say("bad", f"{entity['path']} is faulted", "EntityFaulted", why)
        elif entity["state"] == "failed_over":
            yield say("warn", f"{entity['path']} is failed over", "EntityFailedOver", why)
    backlog = pair["backlog"]
    yield from (say("warn", text, alert) for text, alert in _stranded(pair, now))
    if backlog and backlog["dead_letters"]:
        yield say("warn", f"{backlog['dead_letters']:,} dead letters in the backlog", "DeadLetters")
    if backlog and backlog["missing"]:
        yield say(
            "warn",
            f"{len(backlog['missing'])} backlog queues are missing",
            "BacklogQueuesMissing",
        )
    spool = pair["spool"]
    if spool["limit"] and spool["bytes"] > 0.5 * spool["limit"]:
        yield say("bad", f"the spool is {spool['bytes'] / spool['limit']:.0%} full", "SpoolFilling")
    if spool["refused"] or spool["damaged"]:
        text = f"the spool keeps {spool['refused']:,} refused messages and {spool['damaged']:,} damaged parts"
        yield say("warn", text, "SpoolKeepsRefused")
    if pair["drain"]["waiting"]:
        yield say(
            "warn", f"{pair['drain']['waiting']:,} messages wait because their path is down", "PathsWaiting"
        )
    verdict = pair["verdict"]
    if verdict and not verdict["is_clean"]:
        lost = f"{verdict['lost']:,} lost" if verdict["lost"] else "the records are incomplete"
        yield say("bad", f"the last verdict is not clean: {lost}", "VerdictNotClean")
    money = pair["money"]
    if budget is not None and money and Decimal(money["total"]) > budget:
        yield say(
            "warn",
            f"{money['total']} {money['currency']} are spent, above the budget of {budget}",
            "BudgetSpent",
        )
    elif budget is not None and money and money["is_outage"] and Decimal(money["in_a_day"]) > budget:
        hours = (budget - Decimal(money["total"])) / Decimal(money["per_hour"])
        yield say(
            "warn",
            f"the outage passes the budget of {budget} in {hours:.1f} h: {money['total']} "
            f"{money['currency']} are spent, {money['per_hour']} an hour, {money['in_a_day']} in a day",
            "BudgetForecast",
        )
    blind = sorted(
        source
        for source, reading in pair["sources"].items()
        if reading["error"] and (reading["at"] is None or now - reading["at"] > _STALE)
    )
    if blind:
        why = pair["sources"][blind[0]]["error"]
        yield say("warn", f"cannot be seen now: {', '.join(blind)}", "SourceBlind", why)
