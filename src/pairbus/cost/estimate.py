"""The model: from a described system to operations, bytes and money, stage by stage.

Rules
1. An operation on a message of up to 64 KB is one, above it one for each started 64 KB. Received under peek-
   lock, a message costs a delivery and a completion; the completion is one, whatever the size.
2. On its normal way a message costs a send, and a delivery and a completion for each copy. Through the
   backlog it costs these too, and before them a send to the backlog, a delivery and a completion there.
3. Idle, the syphon's receives end empty: one each `poll` seconds for each backlog queue. An empty receive is
   one. Each quarter of an hour, or after as many whole polls as that takes, it looks at each: a peek is one.
   As often it looks for its queues: a request for each, and one for the list of all.
4. The syphon of a pair renews its lease every half minute: an operation each.
5. In an outage each client pings each entity once an interval, beginning at once. A ping is a message. That
   is the most that it can be; with `share_pings` one client pings for all. It leaves word when the entity is
   back, and each passes that on: a receive and two sends at most. To wait for it costs nothing.
6. Operations are priced by the month and graduated, over all namespaces of the subscription together. A stage
   bears its share of that sum by its operations: no stage has the free ones for itself.
7. What crosses from the secondary's region to the primary's is priced by the gigabyte, as is what goes the
   other way.
8. Where records are kept in an object store each write of it is priced. A client writes its ledger each
   minute, and in an outage records and the end of its chain every 10 seconds; a syphon tells of itself and
   its lease; a pump writes receipts a few times a second, each time for some hundred messages.
"""

import math
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

from pairbus.metering import PING_BYTES, units
from pairbus.stages import Stage

from .sheet import PriceSheet
from .system import System
from .transfer import RegionBytes, sum_transfer

# The aliases and the path around a message in the backlog; about what they take for ordinary names.
ENVELOPE_BYTES = 200
# About what an embedded namespace counts, for ordinary names, of a renewal of the lease, of a peek, and of a
# word that is sent or received.
RENEWAL_BYTES, PEEK_BYTES, WORD_BYTES, WORD_RECEIVE_BYTES = 107, 130, 234, 368
# A lock of a minute is renewed when half of it is over.
RENEWAL_SECONDS = 30
# How long the queues of an idle syphon stay dealt as they are, at least.
EPOCH_SECONDS = 900
# Rule 8, in an hour: the ledger of a client, and now and then its head; the status of a syphon each half
# minute, and the ledgers of pump and lease each minute; and of a client in an outage.
CLIENT_PUTS = 90
SYPHON_PUTS = 240
OUTAGE_PUTS = 720
# What `bench.places` counts: 150 puts for 100,000 messages.
MESSAGES_A_PUT = 650


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one stage comes to in the month."""

    stage: Stage
    operations: int
    bytes: int
    cost: Decimal


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to run the same system, and what that costs a month."""

    name: str
    cost: Decimal
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A month of a system, in money."""

    currency: str
    as_of: str
    stages: tuple[StageCost, ...]
    base: Decimal
    operations_cost: Decimal
    connections_cost: Decimal
    bandwidth_cost: Decimal
    healthy_total: Decimal
    # Rates: of what is done less than once an hour there is a fraction.
    idle_per_hour: float
    renewals_per_hour: float
    peeks_per_hour: float
    searches_per_hour: float
    days: int
    alternatives: tuple[Alternative, ...]

    @property
    def transfer(self) -> tuple[RegionBytes, ...]:
        return sum_transfer((row.stage, row.bytes) for row in self.stages)

    @property
    def total(self) -> Decimal:
        used = self.operations_cost + self.connections_cost + self.bandwidth_cost + self.store_cost
        return self.base + used

    @property
    def outages_cost(self) -> Decimal:
        """What the outages of the month add to a healthy one."""
        return self.total - self.healthy_total

    def cost_of(self, stage: Stage) -> Decimal:
        """What one stage bears of the operations."""
        return sum((row.cost for row in self.stages if row.stage is stage), Decimal(0))

    @property
    def operations(self) -> int:
        return sum(row.operations for row in self.stages if not row.stage.traits.is_stored)

    @property
    def store_writes(self) -> int:
        """Writes to an object store, which are no operations."""
        return sum(row.operations for row in self.stages if row.stage.traits.is_stored)

    @property
    def store_cost(self) -> Decimal:
        return self.cost_of(Stage.STORE_WRITE)

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON; money as text, so that no binary fraction comes between."""
        return {
            "currency": self.currency,
            "prices_as_of": self.as_of,
            "days": self.days,
            "idle_receives": by_time(self.idle_per_hour),
            "idle_peeks": by_time(self.peeks_per_hour),
            "idle_searches": by_time(self.searches_per_hour),
            "lease_renewals": by_time(self.renewals_per_hour),
            "stages": [
                {**asdict(row), "stage": row.stage.words, "cost": _text(row.cost)} for row in self.stages
            ],
            "transfer": [asdict(one) for one in self.transfer],
            "operations": self.operations,
            "base": _text(self.base),
            "operations_cost": _text(self.operations_cost),
            "connections_cost": _text(self.connections_cost),
            "bandwidth_cost": _text(self.bandwidth_cost),
            "store_writes": self.store_writes,
            "store_cost": _text(self.store_cost),
            "healthy_month": _text(self.healthy_total),
            "outages_cost": _text(self.outages_cost),
            "idle_cost": _text(self.cost_of(Stage.IDLE)),
            "total": _text(self.total),
            "alternatives": [{**asdict(other), "cost": _text(other.cost)} for other in self.alternatives],
        }


def by_time(per_hour: float) -> dict[str, int]:
    """What a rate comes to, each rounded by itself."""
    return {
        "per_hour": round(per_hour),
        "per_day": round(per_hour * 24),
        "per_30_days": round(per_hour * 24 * 30),
    }


def estimate(system: System, sheet: PriceSheet) -> Estimate:
    """What a month of the system costs, and what other ways would."""
    counted = _count(system)
    total = _operations(counted)
    operations_cost = sheet.cost_of_operations(total)
    store_cost = _store_writes(system) * sheet.storage_write
    return Estimate(
        currency=sheet.currency,
        as_of=sheet.as_of.isoformat(),
        stages=tuple(
            StageCost(
                stage,
                operations,
                size,
                store_cost if stage.traits.is_stored else _share(operations_cost, operations, total),
            )
            for stage, (operations, size) in counted.items()
        ),
        base=_base(system, sheet),
        operations_cost=operations_cost,
        connections_cost=_connections_cost(system, sheet),
        bandwidth_cost=_bandwidth(counted, system, sheet),
        healthy_total=_total(replace(system, outages=0.0, outage_hours=0.0), sheet),
        idle_per_hour=_idle_per_hour(system),
        renewals_per_hour=_renewals_per_hour(system),
        peeks_per_hour=_peeks_per_hour(system),
        searches_per_hour=_searches_per_hour(system),
        days=system.days,
        alternatives=_alternatives(system, sheet),
    )


def _total(system: System, sheet: PriceSheet) -> Decimal:
    counted = _count(system)
    return (
        _base(system, sheet)
        + sheet.cost_of_operations(_operations(counted))
        + _connections_cost(system, sheet)
        + _bandwidth(counted, system, sheet)
        + _store_writes(system) * sheet.storage_write
    )


def _base(system: System, sheet: PriceSheet) -> Decimal:
    return sheet.standard_base_per_hour * 24 * system.days


def _connections_cost(system: System, sheet: PriceSheet) -> Decimal:
    return sheet.standard_connections.cost(Decimal(_connections(system)))


def _count(system: System) -> dict[Stage, tuple[int, int]]:
    """Operations and bytes of each stage, over all pairs."""
    redirected, wrapped = _redirected(system), system.size + ENVELOPE_BYTES
    pings, words = _pings(system), _words(system)
    sent, heard = 2 * system.clients * words, (system.clients - 1) * words
    idle, renewals, peeks, searches = (
        round(count(system) * 24 * system.days)
        for count in (_idle_per_hour, _renewals_per_hour, _peeks_per_hour, _searches_per_hour)
    )
    return {
        **_count_normal_way(_messages(system), system),
        Stage.IDLE: (idle, 0),
        Stage.LEASE: (renewals, renewals * RENEWAL_BYTES),
        Stage.BACKLOG_SEND: (_sends(redirected, wrapped, system), redirected * wrapped),
        Stage.BACKLOG_RECEIVE: (redirected * units(wrapped), redirected * wrapped),
        Stage.BACKLOG_COMPLETE: (redirected, 0),
        Stage.PING: (pings, pings * PING_BYTES),
        Stage.WORD: (sent, sent * WORD_BYTES),
        Stage.WORD_RECEIVE: (heard, heard * WORD_RECEIVE_BYTES),
        Stage.MANAGEMENT: (peeks + searches, peeks * PEEK_BYTES),
        Stage.STORE_WRITE: (_store_writes(system), 0),
    }


def _operations(counted: dict[Stage, tuple[int, int]]) -> int:
    return sum(operations for stage, (operations, _) in counted.items() if not stage.traits.is_stored)


def _messages(system: System) -> int:
    return round(system.rate * system.days * 86400) * system.pairs


def _redirected(system: System) -> int:
    """Those of the messages that are sent while the primary is down."""
    down = round(system.rate * system.outages * system.outage_hours * 3600) * system.pairs
    return min(down, _messages(system))


def _count_normal_way(messages: int, system: System) -> dict[Stage, tuple[int, int]]:
    copies, unit = messages * system.subscriptions, units(system.size)
    return {
        Stage.SEND: (_sends(messages, system.size, system), messages * system.size),
        Stage.RECEIVE: (copies * unit, copies * system.size),
        Stage.COMPLETE: (copies, 0),
    }


def _sends(messages: int, size: int, system: System) -> int:
    """Of messages of this size; a batch that is billed as one has what is left over in its last one."""
    if system.batch_billing == "per_message":
        return messages * units(size)
    batches, rest = divmod(messages, system.batch_size)
    return batches * units(size * system.batch_size) + (units(size * rest) if rest else 0)


def _pings(system: System) -> int:
    an_outage = math.ceil(system.outage_hours * 3600 / system.ping_interval)
    pingers = 1 if system.share_pings else system.clients
    return round(an_outage * system.outages) * system.entities * pingers * system.pairs


def _words(system: System) -> int:
    """How often an entity comes back to clients that tell each other."""
    return round(system.outages) * system.entities * system.pairs if system.share_pings else 0


def _store_writes(system: System) -> int:
    """Rule 8."""
    if not system.records_in_store:
        return 0
    hours, down = 24 * system.days, system.outages * system.outage_hours
    of_pair = hours * (system.clients * CLIENT_PUTS + SYPHON_PUTS) + down * system.clients * OUTAGE_PUTS
    return round(of_pair) * system.pairs + -(-_redirected(system) // MESSAGES_A_PUT)


def _idle_per_hour(system: System) -> float:
    return system.pairs * system.backlog_queues * 3600 / system.poll


def _peeks_per_hour(system: System) -> float:
    epoch = math.ceil(EPOCH_SECONDS / system.poll) * system.poll
    return system.pairs * system.backlog_queues * 3600 / epoch


def _searches_per_hour(system: System) -> float:
    return system.pairs * (system.backlog_queues + 1) * 3600 / EPOCH_SECONDS


def _renewals_per_hour(system: System) -> float:
    return system.pairs * 3600 / RENEWAL_SECONDS


def _connections(system: System) -> int:
    if system.connections is not None:
        return system.connections
    return system.pairs * (system.clients * system.entities + 2)


def _bandwidth(counted: dict[Stage, tuple[int, int]], system: System, sheet: PriceSheet) -> Decimal:
    if system.same_region:
        return Decimal(0)
    # Senders and syphon stand beside the primary: what is redirected crosses over and comes back.
    crossing = sum(size for stage, (_, size) in counted.items() if stage.traits.crosses)
    return crossing * sheet.crossing_byte


def _alternatives(system: System, sheet: PriceSheet) -> tuple[Alternative, ...]:
    # Without a pair, what would be redirected is not sent, and so neither received nor billed.
    alone = _count_normal_way(_messages(system) - _redirected(system), system)
    plain = sum(operations for operations, _ in alone.values())
    without = _base(system, sheet) + sheet.cost_of_operations(plain) + _connections_cost(system, sheet)
    unit_hours = 24 * system.days * 2 * system.pairs
    return tell_alternatives(without, unit_hours, _messages(system) * system.size, sheet)


def tell_alternatives(
    without: Decimal, unit_hours: int, size: int, sheet: PriceSheet
) -> tuple[Alternative, ...]:
    """Without a pair, for so much; or Premium for so many unit hours, and with so many bytes replicated."""
    replicated = sheet.geo_replication_per_gb * size / 10**9
    premium = sheet.premium_unit_per_hour * unit_hours + replicated
    return (
        Alternative("no pairing", without, "one namespace, and nothing is sent while it is down"),
        Alternative(
            "Premium with Geo-Replication",
            premium,
            "one messaging unit in each of two regions, failed over by hand",
        ),
    )


def _share(total: Decimal, part: int, whole: int) -> Decimal:
    return total * part / whole if whole else Decimal(0)


def _text(amount: Decimal) -> str:
    return f"{amount:.2f}"
