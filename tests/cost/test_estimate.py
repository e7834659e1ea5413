"""The model against examples worked by hand, and against its own laws."""

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.cost.estimate import Estimate, estimate
from pairbus.cost.sheet import PriceStep, Tiers, default_sheet
from pairbus.cost.system import System, parse_system
from pairbus.errors import ConfigurationError
from pairbus.metering import units
from pairbus.stages import Stage

SHEET = default_sheet()


def month(**system: float) -> Estimate:
    return estimate(System(**system), SHEET)  # type: ignore[arg-type]


def operations(reckoned: Estimate, stage: Stage) -> int:
    return next(row.operations for row in reckoned.stages if row.stage is stage)


def test_ten_idle_queues_cost_what_the_original_page_says() -> None:
    reckoned = month()
    assert reckoned.to_dict()["idle_receives"] == {"per_hour": 40, "per_day": 960, "per_30_days": 28800}
    assert operations(reckoned, Stage.IDLE) == 28800
    # 24 hours * 30 days * 0.013441, and 28,800 operations are among the free ones.
    assert reckoned.total == Decimal("9.677520")


@pytest.mark.parametrize(
    ("size", "billed"),
    [(0, 1), (1, 1), (65536, 1), (65537, 2), (131072, 2), (131073, 3), (262144, 4)],
)
def test_an_operation_is_billed_for_each_started_64_kb(size: int, billed: int) -> None:
    assert units(size) == billed


def test_a_message_costs_three_operations_on_its_normal_way_and_three_more_through_the_backlog() -> None:
    # One message a second for a day is 86,400; one hour of outage redirects 3,600 of them.
    reckoned = month(rate=1, days=1, outages=1, outage_hours=1)
    assert operations(reckoned, Stage.SEND) == 86_400
    assert operations(reckoned, Stage.RECEIVE) == 86_400
    assert operations(reckoned, Stage.COMPLETE) == 86_400
    for stage in (Stage.BACKLOG_SEND, Stage.BACKLOG_RECEIVE, Stage.BACKLOG_COMPLETE):
        assert operations(reckoned, stage) == 3_600


def test_each_client_pings_each_entity_once_an_interval() -> None:
    # 2 h 40 at a ping a minute: 160 pings, for 3 entities and 4 clients.
    reckoned = month(outages=1, outage_hours=160 / 60, entities=3, clients=4)
    assert operations(reckoned, Stage.PING) == 160 * 3 * 4


def test_a_topic_costs_one_send_and_a_delivery_and_completion_for_each_subscription() -> None:
    reckoned = month(rate=1, days=1, subscriptions=3)
    assert operations(reckoned, Stage.SEND) == 86_400
    assert operations(reckoned, Stage.RECEIVE) == operations(reckoned, Stage.COMPLETE) == 3 * 86_400


@pytest.mark.parametrize(
    ("millions", "cost"),
    [
        ("0", "0"),
        ("13", "0"),
        ("13.000001", "0.0000008"),
        ("14", "0.80"),
        ("100", "69.60"),  # 87 million at 0.80
        ("101", "70.10"),
        ("2500", "1269.60"),  # and 2,400 million at 0.50
        ("2501", "1269.80"),
    ],
)
def test_operations_are_priced_by_monthly_steps(millions: str, cost: str) -> None:
    assert SHEET.standard_operations.cost(Decimal(millions)) == Decimal(cost)


@pytest.mark.parametrize(("connections", "cost"), [(1000, "0"), (1001, "0.03"), (100_000, "2970.00")])
def test_connections_are_priced_by_monthly_steps(connections: int, cost: str) -> None:
    assert month(connections=connections).connections_cost == Decimal(cost)


def test_a_batch_bills_by_its_messages_or_as_one_as_the_parameter_says() -> None:
    # 100 messages of 1 KB are two units of 64 KB if the batch counts as one.
    by_message = System(rate=1, days=1, batch_size=100)
    assert operations(estimate(by_message, SHEET), Stage.SEND) == 86_400
    by_batch = replace(by_message, batch_billing="per_batch")
    assert operations(estimate(by_batch, SHEET), Stage.SEND) == 864 * 2
    # In the backlog each has its envelope: 64 messages of 1,024 bytes are one unit here, and two there.
    tight = replace(by_batch, batch_size=64, outages=1, outage_hours=1)
    assert operations(estimate(tight, SHEET), Stage.SEND) == 86_400 // 64
    assert operations(estimate(tight, SHEET), Stage.BACKLOG_SEND) == 3600 // 64 * 2 + 1


def test_transfer_between_regions_is_paid_there_and_back() -> None:
    reckoned = month(rate=100, size=100_000 - 200, outages=1, outage_hours=1)
    # 360,000 messages of 100,000 bytes, twice: 72 GB at 0.02.
    assert reckoned.bandwidth_cost == Decimal("1.44")
    assert month(rate=100, outages=1, outage_hours=1, same_region=True).bandwidth_cost == 0


def test_every_stage_that_carries_something_has_its_bytes_by_region_and_direction() -> None:
    """Requests to the administration address are not counted, nor in the ledger."""
    reckoned = month(rate=1, days=1, outages=1, outage_hours=1, clients=3, share_pings=True)
    sizes = {row.stage: row.bytes for row in reckoned.stages if row.bytes}
    assert sizes.keys() == {
        stage for stage in Stage if stage.traits.is_estimated and stage.traits.direction is not None
    }
    assert sizes[Stage.LEASE] == 2880 * 107
    assert sizes[Stage.PING] == 60 * 156
    assert sizes[Stage.WORD_RECEIVE] == 2 * 368
    found = {(one.region, one.direction): one.bytes for one in reckoned.transfer}
    assert sum(found.values()) == sum(sizes.values())
    assert found["primary", "in"] == 86_400 * 1024 + 60 * 156


def test_the_stages_bear_the_cost_of_operations_between_them() -> None:
    reckoned = month(rate=50, outages=1, outage_hours=3, entities=5, clients=20, subscriptions=2)
    assert abs(sum(row.cost for row in reckoned.stages) - reckoned.operations_cost) < Decimal("0.000001")


def test_outages_add_to_a_healthy_month_what_a_hand_reckons() -> None:
    # 20 a second: 155.52 million operations. An hour of outage adds 72,000 messages at three each, and 60
    # pings, all at 0.50 a million, and carries 1,224 bytes of each over and back.
    calm, rough = month(rate=20), month(rate=20, outages=1, outage_hours=1)
    assert calm.outages_cost == 0
    assert rough.healthy_total == calm.total
    added = Decimal(3 * 72_000 + 60) / 10**6 * Decimal("0.50")
    carried = Decimal(2 * 72_000 * 1224) / 10**9 * Decimal("0.02")
    assert rough.outages_cost == added + carried
    assert rough.to_dict()["outages_cost"] == "0.11"


def test_the_alternatives_are_what_a_hand_reckons() -> None:
    reckoned = month(rate=10)
    plain, premium = reckoned.alternatives
    # 10 a second for 30 days: 25.92 million messages, 77.76 million operations, 64.76 of them at 0.80.
    assert plain.cost == Decimal("9.677520") + Decimal("51.808")
    # Two units for 720 hours, and 26.54208 GB of replication.
    assert premium.cost == Decimal("1335.60") + Decimal("26.54208") * Decimal("0.09")


systems = st.builds(
    System,
    pairs=st.integers(1, 5),
    entities=st.integers(1, 20),
    subscriptions=st.integers(0, 4),
    clients=st.integers(1, 50),
    rate=st.integers(0, 500).map(float),
    size=st.integers(0, 262_144),
    outages=st.integers(0, 3).map(float),
    outage_hours=st.integers(0, 48).map(float),
)


@given(
    systems, st.sampled_from(["rate", "outages", "entities", "clients", "size", "pairs", "backlog_queues"])
)
def test_more_of_anything_never_costs_less(system: System, name: str) -> None:
    more = replace(system, **{name: getattr(system, name) * 2 + 1})
    assert estimate(more, SHEET).total >= estimate(system, SHEET).total


@given(systems)
def test_two_pairs_do_twice_the_operations_of_one(system: System) -> None:
    one, two = replace(system, pairs=1), replace(system, pairs=2)
    assert estimate(two, SHEET).operations == 2 * estimate(one, SHEET).operations


@pytest.mark.parametrize(
    ("system", "complaint"),
    [
        ({"outages": 2, "outage_hours": 361}, "outages × outage_hours (hours of the month) is at most 720"),
        ({"outages": 1, "outage_hours": 54, "days": 2}, "is at most 48, not 54"),
        ({"pairs": 10**9, "rate": 2}, "pairs × rate"),
        ({"rate": 10, "subscriptions": 10**9}, "pairs × rate × subscriptions (messages a second)"),
        ({"rate": 10**7, "size": 10**9, "subscriptions": 0}, "subscriptions × size (bytes a second) is at"),
        ({"clients": 10**6, "entities": 10**6}, "pairs × clients × entities"),
    ],
)
def test_what_cannot_be_in_a_month_is_refused(system: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(complaint)):
        System(**system)
    assert month(outages=1, outage_hours=720).total > 0


WHOLE = ["pairs", "entities", "subscriptions", "clients", "size", "days", "backlog_queues", "batch_size"]


@pytest.mark.parametrize("name", [*WHOLE, "connections"])
def test_what_is_counted_is_counted_in_whole_numbers(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} .* is a whole number, .*, not 2.5$"):
        System(**{name: 2.5})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=f"the file: {name} .* is a whole number"):
        parse_system(f"{name} = 2.0", where="the file")


@pytest.mark.parametrize(
    ("poll", "a_day"), [(86_400, 1), (43_200, 2), (14_400, 6), (7_200, 12), (5_000, 17), (3_600, 24)]
)
def test_what_an_idle_syphon_does_less_than_once_an_hour_is_counted_too(poll: float, a_day: int) -> None:
    reckoned = month(backlog_queues=1, poll=poll, days=1)
    assert operations(reckoned, Stage.IDLE) == a_day
    assert reckoned.to_dict()["idle_receives"]["per_day"] == a_day
    # Peeks come with polls, and each search is a request for the queue and one for the list of all.
    assert operations(reckoned, Stage.MANAGEMENT) == a_day + 2 * 96


def test_of_the_largest_system_not_a_cent_is_lost() -> None:
    most = month(rate=1e9, size=10**6, outages=1, outage_hours=720)
    shares = sum(row.cost for row in most.stages if not row.stage.traits.is_stored)
    assert abs(shares - most.operations_cost) < Decimal("0.01")
    assert all(Decimal(row["cost"]) >= 0 for row in most.to_dict()["stages"])


def test_without_a_pair_what_the_outage_stops_is_not_billed() -> None:
    # One message a second for a day, of which an hour is not sent: send, delivery and completion of 3,600.
    free = replace(SHEET, standard_operations=Tiers((PriceStep(None, Decimal(1)),)))
    system = System(rate=1, days=1, outages=1, outage_hours=1)
    alone = next(way for way in estimate(system, free).alternatives if way.name == "no pairing")
    calm = next(
        way
        for way in estimate(replace(system, outages=0.0, outage_hours=0.0), free).alternatives
        if way.name == "no pairing"
    )
    assert calm.cost - alone.cost == Decimal(3 * 3600) / 10**6


def test_writes_to_a_store_of_records_are_priced() -> None:
    assert month(clients=10).store_writes == 0
    stored = month(clients=10, records_in_store=True)
    assert stored.store_writes == 720 * (10 * 90 + 240)
    assert stored.store_cost == Decimal("5.3352")
    assert stored.total == month(clients=10).total + stored.store_cost
    busy = month(clients=10, records_in_store=True, rate=100, outages=1, outage_hours=2)
    assert busy.store_writes - stored.store_writes == 2 * 10 * 720 + -(-720_000 // 650)
