"""How fast a backlog may be moved beside its application, and how fast it must be."""

import json
from importlib import resources
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.backlog.schedule import most_rate, schedule
from pairbus.broker import Broker
from pairbus.pump.gait import STANDARD_CREDITS
from tests.cli.process import call
from tests.spark.bus import Bus
from tests.spark.test_local import fill

RATES = st.floats(0, 2000, allow_nan=False)


@given(messages=st.integers(0, 10**9), within=st.floats(1, 10**6), app_rate=RATES)
def test_what_is_promised_fits_credits_and_time(messages: int, within: float, app_rate: float) -> None:
    found = schedule(messages, within=within, tier="standard", app_rate=app_rate)
    assert found.rate * within == pytest.approx(messages)
    if found.is_possible and messages:
        assert found.rate + 2 * app_rate <= STANDARD_CREDITS
        assert "--max-rate" in found.advice
    elif messages:
        assert "Premium" in found.advice


def test_beside_an_application_of_200_a_second_a_drain_has_most_of_what_is_left() -> None:
    assert most_rate("standard", 200.0) >= 0.8 * (STANDARD_CREDITS - 2 * 200)
    assert most_rate("standard", 600.0) == 0
    assert most_rate("premium", 600.0) == inf


def test_the_command_says_what_it_takes(tmp_path: Path) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        bus = Bus(broker, queues=2)
        bus.create_entities(queues=["orders"], sessions=[], topics=[])
        fill(bus, 720)
        variables = {"P": bus.primary.connection_string, "S": bus.secondary.connection_string}
        words = ["syphon", "plan", "--primary-env", "P", "--secondary-env", "S", "--count", "2"]
        done = call(*words, "--within", "1h", "--json", variables=variables)
        told = json.loads(done.stdout)
        assert (done.returncode, told["schedule"]["rate"], told["schedule"]["shards"]) == (0, 0.2, 1)
        named = "--primary-env P --secondary-env S --count 2"
        advice = f"`pairbus syphon run --once --max-rate 1 --shards 1 {named}`"
        assert told["schedule"]["advice"] == advice, "it can be run as it is printed"
        assert told["rate"] == 920.0, "what the tier leaves, not the 2,000 of the default"
        config, prices = tmp_path / "pairbus.toml", tmp_path / "prices.toml"
        config.write_text('prices = "prices.toml"\n', encoding="utf-8")
        ours = resources.files("pairbus.cost").joinpath("prices.toml").read_text(encoding="utf-8")
        prices.write_text(ours.replace('currency = "USD"', 'currency = "EUR"'), encoding="utf-8")
        done = call(*words, "--rate", "0.5", "--config", str(config), variables=variables)
        assert "about 24 min at 0.5 a second; 2,160 operations, 0.001728 EUR at most" in done.stdout
        done = call(*words, "--within", "1s", "--app-rate", "200", variables=variables)
        said = "leaves 552 messages a second beside the application, which takes 1 min: give it that time"
        assert (done.returncode, said in done.stdout) == (1, True)
        done = call(*words, "--within", "1s", "--tier", "premium", variables=variables)
        assert (done.returncode, "--max-rate 720 --shards 1" in done.stdout) == (0, True)
        done = call(*words, "--within", "30d", variables=variables)
        assert "within 30 d: less than 0.01 a second, 1 shard; `pairbus syphon run --once" in done.stdout
