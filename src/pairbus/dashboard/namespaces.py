"""The embedded namespaces of a broker: what its control address tells, its entities, a look into a queue.

Connection strings come out of the ready file and go nowhere: what is told of a namespace has no key in it.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairbus import words
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.message import MessageSections
from pairbus.broker.control import ControlClient, read_ready_file
from pairbus.errors import ConfigurationError, show_value
from pairbus.fault_kinds import KINDS
from pairbus.pairing.errors import MalformedEnvelope
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import Side
from pairbus.pump.pump import opened_transport
from pairbus.pump.transport import Peeked
from pairbus.pump.unwrapping import read_postmark
from pairbus.sdk.administration import ask, open_administration

_MOST_PEEKED = 50
_LONGEST_BODY = 4096
_LIMIT = 5.0
# What is told of an entity, by the names that the SDK has for it.
_COUNTS = {
    "active": "active_message_count",
    "scheduled": "scheduled_message_count",
    "dead_letters": "dead_letter_message_count",
    "bytes": "size_in_bytes",
}


async def read_broker(ready_file: Path) -> dict[str, Any]:
    """A broker by namespace; one whose port is closed by a fault is told without its entities."""
    address, ready = await asyncio.to_thread(read_ready_file, ready_file)
    control = ControlClient(address["url"], address["token"])
    faults, counters, connections = await asyncio.gather(
        *(asyncio.to_thread(call) for call in (control.list_faults, control.counters, control.connections))
    )
    entities = await asyncio.gather(
        *(_list_entities(ready[name]["connection_string"]) for name in ready), return_exceptions=True
    )
    return {
        "kinds": [{"kind": kind.value, "help": traits.help} for kind, traits in KINDS.items()],
        "namespaces": [
            {
                "name": name,
                "port": ready[name]["port"],
                "faults": faults.get(name, []),
                "operations": _sum_operations(counters.get(name, [])),
                "connections": sum(one.get("closed_at") is None for one in connections.get(name, [])),
                "entities": [] if isinstance(found, BaseException) else found,
                "trouble": "its entities cannot be listed now" if isinstance(found, BaseException) else None,
            }
            for name, found in zip(ready, entities, strict=True)
        ],
    }


def _sum_operations(rows: list[dict[str, Any]]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for row in rows:
        sums[str(row["kind"])] += int(row["count"])
    return dict(sorted(sums.items()))


async def _list_entities(connection_string: str) -> list[dict[str, Any]]:
    found = []
    async with open_administration(connection_string) as admin, asyncio.timeout(_LIMIT):
        async for queue in admin.list_queues_runtime_properties():
            found.append(_entity("queue", queue.name, queue))
        async for topic in admin.list_topics_runtime_properties():
            found.append(_entity("topic", topic.name, topic))
            async for one in admin.list_subscriptions_runtime_properties(topic.name):
                found.append(_entity("subscription", f"{topic.name}/Subscriptions/{one.name}", one))
    return found


def _entity(kind: str, path: str, runtime: Any) -> dict[str, Any]:
    """An entity, with those of the counts that its kind has."""
    counts = {name: getattr(runtime, of) or 0 for name, of in _COUNTS.items() if hasattr(runtime, of)}
    return {"path": path, "kind": kind, **counts}


async def peek(ready_file: Path, namespace: str, path: str, *, is_dead: bool = False) -> dict[str, Any]:
    """The first messages of a queue or a subscription, or of its dead letters. It locks nothing."""
    _, ready = await asyncio.to_thread(read_ready_file, ready_file)
    if namespace not in ready:
        raise ConfigurationError(f"there is no namespace {namespace!r} here")
    side = Side(connection_string=ready[namespace]["connection_string"])
    async with opened_transport(side.resolve(), PumpOptions(send_timeout=_LIMIT)) as transport:
        source = transport.source(f"{path}/{words.DEAD_LETTER_QUEUE}" if is_dead else path)
        try:
            page = await ask(source.peek(0, _MOST_PEEKED), limit=2 * _LIMIT)
        finally:
            await source.close()
    return {
        "namespace": namespace,
        "path": path,
        "is_dead": is_dead,
        "is_partial": len(page) == _MOST_PEEKED,
        "messages": list(map(_describe, page)),
    }


def _describe(one: Peeked) -> dict[str, Any]:
    sections = one.sections
    told: dict[str, Any] = {"number": one.sequence_number, "bytes": len(sections.payload)}
    try:
        properties = sections.properties
        told |= {
            "id": "" if properties.message_id is None else str(properties.message_id),
            "session": None if properties.group_id is None else str(properties.group_id),
            "enqueued": read_postmark(sections).enqueued_ms / 1000,
            "state": "deferred" if one.is_deferred else "",
            "properties": {
                str(key): str(value)[:_LONGEST_BODY] for key, value in sections.application_properties.items()
            },
            "body": _body_text(sections),
        }
    except (DecodeError, MalformedEnvelope, ValueError) as error:
        told["body"] = f"cannot be read: {error}"
    return told


def _body_text(sections: MessageSections) -> str:
    if sections.body_kind == "data":
        data = sections.data()
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.hex(" ")
    elif sections.body_kind == "value":
        text = repr(sections.value())
    else:
        text = sections.body_bytes.hex(" ")
    return text if len(text) <= _LONGEST_BODY else f"{text[:_LONGEST_BODY]} …"


def fault_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the control address takes beside namespace and kind, of what a page has sent."""
    found = {name: given[name] for name in ("entity", "for") if given.get(name) not in (None, "")}
    if not isinstance(found.get("entity", ""), str):
        raise ConfigurationError(f"'entity' is a text, not {show_value(found['entity'])}")
    if "for" in found:
        try:
            found["for"] = float(found["for"])
        except (TypeError, ValueError, OverflowError):
            found["for"] = math.nan
        if not 0 < found["for"] < math.inf:
            raise ConfigurationError(
                f"a fault lasts for a number of seconds above 0, not {show_value(given['for'])}"
            )
    return found
