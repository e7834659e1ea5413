"""The long form of the syphon with its records in a store: a worker is killed, and tables in S3."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pairbus.spark import PumpOptions, PumpPair, Syphon
from pairbus.spark.receipts import compact_receipts
from tests.object_places import make_azure_container, make_s3_bucket, place_of

from .bus import Bus, until
from .test_store import read, write
from .traffic import assert_whole, letters, running

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def uri(azurite: str) -> str:
    return make_azure_container(azurite)


def test_a_worker_killed_in_the_middle_leaves_a_receipt_for_all_that_left_the_backlog(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path, uri: str
) -> None:
    full_bus.shorten_locks(6.0)
    sent = letters(4_000)
    full_bus.put(sent)
    # Before this is taken away no drain is over, however late it is seen that it has begun.
    full_bus.primary.faults.set("busy", entity="invoices")
    options = PumpOptions(max_rate=1500, patience=600.0)
    syphon = Syphon(spark, pair, state=tmp_path, records=uri, options=options, shards=2)
    with running(syphon, once=True):
        until(lambda: syphon.progress().moved > 300)
        os.kill(syphon.pumps()[0].pid, signal.SIGKILL)
        full_bus.primary.faults.clear()
    assert_whole(full_bus, sent)
    assert read(spark, place_of(uri)) == {one.id: "moved" for one in sent}


def test_tables_in_s3(spark: Any, moto: str) -> None:
    place = place_of(make_s3_bucket(moto))
    for number in range(3):
        write(place, number, number + 1)
        compact_receipts(spark, place)
    assert read(spark, place) == {f"m{number}": "moved" for number in range(4)}
