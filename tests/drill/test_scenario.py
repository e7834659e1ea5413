"""Scenarios: those that ship are sound, and what is wrong with one is told with its place."""

import pytest

from pairbus.drill.scenario import (
    DEFAULT,
    find_scenario,
    parse_scenario,
    shipped_scenarios,
    shipped_text,
)
from pairbus.errors import ConfigurationError
from tests.guards.documents import code_blocks
from tests.guards.sources import ROOT

LEAST = 'title = "t"\n[[entity]]\npath = "orders"\n'


def parse(text: str, seed: int | None = None) -> object:
    return parse_scenario(text, name="mine", where="mine.toml", seed=seed)


def test_six_scenarios_ship_and_the_default_is_the_first() -> None:
    assert shipped_scenarios() == (
        DEFAULT,
        "flapping",
        "full-on-recovery",
        "secondary-down-too",
        "silence",
        "topic-down",
    )


@pytest.mark.parametrize("name", shipped_scenarios())
def test_a_shipped_scenario_breaks_something_while_it_sends(name: str) -> None:
    scenario = find_scenario(name)
    assert scenario.name == name
    assert scenario.expect.failover
    assert scenario.faults.steps
    assert all(0 < step.at < scenario.send_for for step in scenario.faults.steps)
    assert all(step.duration is not None for step in scenario.faults.steps) or scenario.syphon.heal_after


def test_the_page_names_every_scenario_and_its_example_can_be_read() -> None:
    page = (ROOT / "docs" / "drill.md").read_text(encoding="utf-8")
    for name in shipped_scenarios():
        assert f"| `{name}` |" in page
    (example,) = code_blocks(page, "toml")
    scenario = parse_scenario(example, name="page", where="drill.md")
    assert [one.path for one in scenario.entities] == ["orders", "events"]
    assert scenario.expect.failover == ("orders",)


def test_a_seed_fixes_the_moments_and_another_one_moves_them() -> None:
    moments = [[step.at for step in find_scenario(DEFAULT, seed=seed).faults.steps] for seed in (1, 1, 2)]
    assert moments[0] == moments[1] != moments[2]


def test_what_is_left_out_has_a_default_that_the_client_promises() -> None:
    scenario = parse_scenario(
        LEAST + "[options]\nfailover_interval = 4\ngood_pings = 3\nping_primary_interval = 2\n",
        name="mine",
        where="mine.toml",
    )
    assert (scenario.expect.within, scenario.expect.back_within) == (5.0, 7.0)
    assert scenario.entities[0].nodes == ("orders",)
    assert scenario.expect.failover == ()


def test_every_client_has_a_session_of_its_own() -> None:
    scenario = parse_scenario(LEAST + "sessions = 2\n", name="mine", where="mine.toml")
    assert scenario.entities[0].session_names(3) == ("session-0", "session-1", "session-2")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("title = ", "mine.toml: is not TOML"),
        ('title = "t"', "mine.toml: needs at least one [[entity]] with a path"),
        ('[[entity]]\npath = "orders"', "mine.toml: title is missing"),
        ('[[entity]]\npth = "orders"', "did you mean 'path'?\nmine.toml: [[entity]] 1: path is missing"),
        (LEAST + "rat = 3", "mine.toml: [[entity]] 1: 'rat' is not known; did you mean 'rate'?"),
        (LEAST + "rate = true", "mine.toml: [[entity]] 1: rate must be a number, 0.1 to 100000, not True"),
        (LEAST + "sessions = -1", "mine.toml: [[entity]] 1: sessions must be a whole number, 0 to 1000"),
        (LEAST + 'kind = "topic"', "a topic needs subscriptions"),
        (LEAST + 'subscriptions = ["a"]', "only a topic has subscriptions"),
        (LEAST + '[[entity]]\npath = "Orders/"', "two [[entity]] tables have the same path"),
        (
            LEAST + "[options]\nfailover_intervall = 1",
            "mine.toml: [options]: 'failover_intervall' is not known; did you mean 'failover_interval'?",
        ),
        (LEAST + "[options]\nfailover_interval = -1", "mine.toml: [options]: failover_interval must be 0 to"),
        (
            LEAST + '[[fault]]\nat = 1\nnamespace = "contoso"\nkind = "refuse"',
            "mine.toml: the fault plan names the namespace 'contoso'; there are primary, secondary",
        ),
        (
            LEAST + '[[fault]]\nat = 1\nnamespace = "primary"\nkind = "refuse"\nentity = "order"',
            "mine.toml: a [[fault]] names the entity 'order'; did you mean 'orders'?",
        ),
        (LEAST + '[[fault]]\nat = 1\nnamespace = "primary"\nkind = "melt"', "[[fault]] 1: kind must be "),
        (
            LEAST + '[expect]\nfailover = ["order"]',
            "mine.toml: [expect]: failover names the entity 'order'; did you mean 'orders'?",
        ),
        (LEAST + "[expect]\nwithn = 3", "mine.toml: [expect]: 'withn' is not known; did you mean 'within'?"),
        (LEAST + "[syphon]\nmax_rate = 0", "mine.toml: [syphon]: max_rate must be a number, 1 and up, not 0"),
        ("fault = 3\n" + LEAST, "mine.toml: fault must be a list of tables, [[fault]] once for each"),
        (
            "entity = 3\n" + 'title = "t"',
            "mine.toml: entity must be a list of tables, [[entity]] once for each",
        ),
        ("options = 3\n" + LEAST, "mine.toml: options must be a table"),
        (
            LEAST + '[[fault]]\nat = 20\nnamespace = "primary"\nkind = "refuse"',
            "a [[fault]] begins 20 s after the first send, when all is sent",
        ),
        ("send_for = 3000\n" + LEAST + "rate = 1000", "sends more than 1,000,000 messages"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert told in str(caught.value)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'silence'"):
        shipped_text("silense")
    with pytest.raises(ConfigurationError, match="there is no such file"):
        find_scenario("nowhere/mine.toml")
