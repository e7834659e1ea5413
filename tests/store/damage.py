"""Stores with everything in them, and what can happen to their files."""

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.store.counter import counter_path
from pairbus.broker.store.file import wal_path
from pairbus.broker.store.sqlite import SqliteStore
from tests.engine.observing import observe
from tests.engine.samples import START, message, namespace
from tests.store.files import load, store_path

Contents = dict[tuple[str, int], tuple[Any, ...]]


class Original(NamedTuple):
    """A store as it was left, and what was acknowledged of it."""

    directory: Path
    observed: Any
    contents: Contents
    # Every message that was ever acknowledged, by where it was, and what never changes of it.
    ever: set[tuple[str, int, str, bytes]]


def make_originals(directory: Path) -> list[Original]:
    """The same namespace as a kill leaves it, much of it in the WAL, and as a broker does that was closed."""
    space, ever = namespace(), set[tuple[str, int, str, bytes]]()
    source = store_path(directory / "source")
    with closing(SqliteStore(source)) as store:
        _live(space, store, ever)
        killed = directory / "killed"
        shutil.copytree(directory / "source", killed)
    closed = directory / "closed"
    shutil.copytree(directory / "source", closed)
    return [Original(each, observe(space), contents_of(space), ever) for each in (killed, closed)]


def _live(space: Namespace, store: SqliteStore, ever: set[tuple[str, int, str, bytes]]) -> None:
    chance = random.Random(1)

    def commit() -> None:
        store.commit(space.take_events())
        ever.update(fixed_parts(contents_of(space)))

    space.create_queue("orders", QueueSettings(requires_duplicate_detection=True), START)
    space.create_queue("sessions", QueueSettings(requires_session=True), START)
    space.create_topic("news", None, START)
    for name in ("all", "some"):
        space.create_subscription("news", name, None, START)
    commit()
    for index in range(60):
        body = chance.randbytes(chance.choice((10, 300, 2000)))
        space.send("orders", [message(body, message_id=f"o{index}", properties={"n": index})], START + index)
        commit()
    store._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    orders, sessions = space.get_queue("orders"), space.get_queue("sessions")
    for index, handout in enumerate(orders.receive(30, START + 70)):
        token = handout.lock_token
        assert token is not None
        settle = (orders.complete, orders.abandon, orders.defer, orders.dead_letter, orders.complete)[
            index % 5
        ]
        settle(token, START + 70)
        if index % 3 == 0:
            commit()
    for index in range(20):
        space.send("sessions", [message(b"s" * index, session_id=f"s{index % 3}")], START + 80)
        sessions.set_session_state(f"s{index % 3}", b"state %d" % index, START + 80)
        space.send("news", [message(chance.randbytes(500), properties={"n": index})], START + 80)
        commit()
    space.send("news", [message(chance.randbytes(40_000))], START + 81)
    space.schedule("orders", [message(b"later", at=START + 1e9)], START + 81)
    commit()


def contents_of(space: Namespace) -> Contents:
    """Every message, wherever it is, with all that a receiver gets of it."""
    queues = [*space.list_queues(), *(s for topic in space.list_topics() for s in topic.subscriptions)]
    rooms = [room for queue in queues for room in (queue, *queue.sub_queues())]
    return {
        (room.path, each.sequence_number): (
            each.message_id,
            each.session_id,
            each.enqueued_at,
            each.expires_at,
            each.state,
            each.delivery_count,
            each.properties_bytes,
            each.application_properties_bytes,
            each.body_bytes,
        )
        for room in rooms
        if isinstance(room, MessageQueue)
        for each in room.table.since(0)
    }


def fixed_parts(contents: Contents) -> set[tuple[str, int, str, bytes]]:
    return {(path, number, fields[0], fields[-1]) for (path, number), fields in contents.items()}


def _flip(path: Path, chance: random.Random, bits: int = 1) -> None:
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content))
    for _ in range(bits):
        content[min(at + chance.randrange(bits), len(content) - 1)] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def _blank(path: Path, chance: random.Random) -> None:
    """A sector that the disk has lost."""
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content)) // 512 * 512
    content[at : at + 512] = bytes(len(content[at : at + 512]))
    path.write_bytes(content)


def _tear_out(path: Path, chance: random.Random) -> None:
    """A piece from the middle."""
    content = path.read_bytes()
    at, size = chance.randrange(len(content)), chance.choice((1, 100, 8192, 8216))
    path.write_bytes(content[:at] + content[at + size :])


def _remove(path: Path, chance: random.Random) -> None:
    path.unlink()


def _empty(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def _flip_many(path: Path, chance: random.Random) -> None:
    _flip(path, chance, 64)


# What happens how often. A flip is what was seen, and there are the most places for it.
DAMAGES: list[Callable[[Path, random.Random], None]] = [
    *[_flip] * 12,
    *[_flip_many] * 2,
    *[_cut] * 3,
    *[_blank] * 2,
    _tear_out,
    _remove,
    _empty,
]


def do_damage(directory: Path, seed: int) -> str:
    """Do something to a file of a store; what it was. It may be that nothing has changed."""
    chance = random.Random(seed)
    store = store_path(directory)
    files = [store] * 5 + [wal_path(store)] * 5 + [counter_path(store)]
    path = chance.choice([path for path in files if path.exists() and path.stat().st_size])
    damage = chance.choice(DAMAGES)
    damage(path, chance)
    return f"seed {seed}: {damage.__name__} {path.name}"


def reload(directory: Path) -> tuple[Any, Contents]:
    """What a broker would have that starts now."""
    space = load(store_path(directory))
    return observe(space), contents_of(space)
