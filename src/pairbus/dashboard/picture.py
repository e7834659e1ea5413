"""From what sources said to what a page shows. Pure: readings in, plain values for JSON out."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pairbus.pairing.names import path_key
from pairbus.spark.leash.leash import ORDER_STATES

from .source import LastWord

_WORST = ("faulted", "failed_over", "suspect", "healthy")
# What is told of an entity as the client sees it that sees the worst.
_SEEN = ("state", "since", "reason", "last_failure", "fails_over_at", "next_ping_at")
Facts = dict[str, Any]


def picture_pair(name: str, readings: Mapping[str, LastWord], *, own: Facts) -> Facts:
    """One pair. `own` tells of the drain that the dashboard itself runs."""
    pictures = _value(readings, "clients") or []
    running = [one["status"] for one in pictures if not one["is_stale"]]
    waiting = _value(readings, "waiting") or {"paths": [], "dead": [], "is_partial": False}
    return {
        "name": name,
        "primary": _first(pictures, "primary"),
        "secondary": _first(pictures, "secondary"),
        "clients": _clients(pictures),
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


def _clients(pictures: Iterable[Facts]) -> list[Facts]:
    """In an order that stays, each with an id of its own: a process may have several."""
    found: list[Facts] = []
    numbers: Counter[str] = Counter()
    for one in sorted(pictures, key=lambda one: (one["is_stale"], one["host"], one["pid"], one["file"])):
        client = _client(one)
        numbers[name := client["id"]] += 1
        if numbers[name] > 1:
            client["id"] = f"{name}#{numbers[name]}"
        found.append(client)
    return found


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
            counts = dict.fromkeys(("clients", "late", "without_headroom", "pings"), 0)
            row = found.setdefault(path_key(health["path"]), {"path": health["path"], "sent": {}, **counts})
            row["clients"] += 1
            row["late"] += entity.get("arrived_late", 0)
            row["without_headroom"] += entity.get("without_headroom", 0)
            row["pings"] += health["pings"]
            for route, outcomes in entity.get("sent", {}).items():
                sums = row["sent"].setdefault(route, {})
                for outcome, count in outcomes.items():
                    sums[outcome] = sums.get(outcome, 0) + count
            if "state" not in row or _rank(health["state"]) < _rank(row["state"]):
                row.update({name: health[name] for name in _SEEN})
    return sorted(found.values(), key=lambda row: (_rank(row["state"]), row["path"]))


def _rank(state: str) -> int:
    return _WORST.index(state) if state in _WORST else 0


def _drain(syphon: Facts | None, running: Sequence[Facts], own: Facts) -> Facts:
    """What drains: a running syphon, the dashboard itself, or clients that host one."""
    is_ours = own["state"] not in ("idle", "ended", "failed")
    if syphon is not None and not is_ours:
        counts = syphon["counts"]
        return {
            "by": "syphon",
            "state": ORDER_STATES[syphon["order"]],
            "pumps": syphon["pumps"],
            "trouble": syphon["trouble"],
            "path": None,
            **{name: counts[name] for name in ("moved", "dead_lettered", "waiting")},
        }
    if own["state"] != "idle":
        return {"by": "dashboard", "pumps": int(own["state"] in ("starting", "running")), **own}
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
    none = {"trouble": None, "path": None, "moved": 0, "dead_lettered": 0, "waiting": 0}
    return {"by": None, "state": "idle", "pumps": 0, **none}


def _spool(running: Iterable[Facts], aside: Facts | None) -> Facts:
    spools = [status["spool"] for status in running if status.get("spool")]
    sums = {name: sum(one[name] for one in spools) for name in ("messages", "bytes", "limit")}
    found = aside or {"refused": 0, "damaged": 0, "bytes_left": 0, "refused_messages": []}
    return {
        **sums,
        **found,
        "trouble": next((one["last_failure"] for one in spools if one["last_failure"]), None),
    }
