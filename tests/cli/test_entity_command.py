"""`pairbus entity` on an embedded namespace, found in each of the ways that there are."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pairbus.broker import Broker
from pairbus.plumbing.files import publish

from .process import call


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        yield broker


@pytest.fixture
def here(broker: Broker, tmp_path: Path) -> tuple[str, ...]:
    """The options that name `contoso`, which is empty."""
    ready = tmp_path / "ready.json"
    publish(ready, json.dumps(broker.describe()))
    admin = broker["contoso"]
    for queue in json.loads(call("entity", "ls", *options(ready), "--json").stdout):
        if queue["kind"] != "subscription":
            getattr(admin, f"delete_{queue['kind']}")(queue["path"])
    return options(ready)


def options(ready: Path) -> tuple[str, ...]:
    return "--ready-file", str(ready), "--namespace", "contoso"


def done(*arguments: str) -> Any:
    result = call("entity", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_entities_are_made_listed_shown_and_deleted(here: tuple[str, ...]) -> None:
    assert done("ls", *here) == []
    settings = (
        "--set",
        "requires_session=true",
        "--set",
        "lock_duration=30",
        "--set",
        "max_delivery_count=3",
    )
    assert done("create", "eu/orders", *here, *settings) == {"path": "eu/orders", "created": True}
    done("create", "events", "--topic", *here, "--set", "default_message_time_to_live=P1D")
    done("create", "events/subscriptions/audit", *here, "--sql", "amount > 100", "--action", "SET big = 1")
    done("create", "events/Subscriptions/audit/Rules/more", *here, "--sql", "b = 2")
    assert [(row["kind"], row["path"], row["active"]) for row in done("ls", *here) if "active" in row] == [
        ("queue", "eu/orders", 0),
        ("subscription", "events/Subscriptions/audit", 0),
    ]
    shown = done("show", "eu/orders", *here)
    assert (shown["kind"], shown["path"]) == ("queue", "eu/orders")
    assert (shown["requires_session"], shown["lock_duration"], shown["max_delivery_count"]) == (True, 30.0, 3)
    assert shown["default_message_time_to_live"] is None  # for ever
    assert shown["messages"]["total"] == 0
    assert done("show", "events", *here)["default_message_time_to_live"] == 86_400
    assert done("show", "events/Subscriptions/audit", *here)["rules"] == [
        {"name": "filter", "filter": "amount > 100", "action": "SET big = 1"},
        {"name": "more", "filter": "b = 2", "action": None},
    ]
    assert done("show", "events/Subscriptions/audit/Rules/more", *here)["filter"] == "b = 2"
    done("delete", "events/Subscriptions/audit/Rules/more", "--yes", *here)
    done("delete", "events/Subscriptions/audit", "--yes", *here)
    done("delete", "events", "--yes", *here)
    assert done("delete", "eu/orders", "--yes", *here) == {"path": "eu/orders", "deleted": True}
    assert done("ls", *here) == []


def test_people_get_tables(here: tuple[str, ...]) -> None:
    assert call("entity", "ls", *here).stdout == "there are no entities\n"
    assert call("entity", "create", "orders", *here).stdout == "orders: created\n"
    assert "queue  orders  Active       0" in call("entity", "ls", *here).stdout
    shown = call("entity", "show", "orders", *here).stdout
    assert "max_delivery_count                       10\n" in shown
    assert "default_message_time_to_live             none\n" in shown


def test_what_scripts_repeat_is_no_mistake(here: tuple[str, ...]) -> None:
    done("create", "orders", *here)
    again = call("entity", "create", "orders", *here)
    assert (again.returncode, "say --if-missing" in again.stderr) == (2, True)
    assert done("create", "orders", "--if-missing", *here)["created"] is False
    done("delete", "orders", "--yes", *here)
    again = call("entity", "delete", "orders", "--yes", *here)
    assert (again.returncode, "has no entity 'orders'" in again.stderr) == (2, True)
    assert done("delete", "orders", "--yes", "--if-exists", *here)["deleted"] is False


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("show", "/"), "the path is empty"),
        (("create", "q", "--set", "lock_duraton=1"), "did you mean 'lock_duration'?"),
        (("create", "q", "--set", "lock_duration"), "write NAME=VALUE"),
        (("create", "q", "--set", "max_delivery_count=true"), "write a whole number"),
        (("create", "q", "--set", "requires_session=1"), "write true or false"),
        (("create", "q", "--set", "lock_duration=3600"), "contoso refuses: "),
        (("create", "q", "--set", "lock_duration=abc"), "write seconds, or a duration such as PT1M"),
        (("create", "q", "--set", "lock_duration=P"), "write seconds, or a duration such as PT1M"),
        (("create", "q", "--set", "lock_duration=nan"), "write seconds"),
        (("create", "q", "--set", "lock_duration=1e300"), "write seconds"),
        (("create", "q", "--sql", "a=1"), "for subscriptions and rules"),
        (("create", "t/Subscriptions/s", "--topic"), "leave --topic out"),
        (("create", "t/Subscriptions/s", "--action", "SET a=1"), "--action needs --sql"),
        (("create", "t/Subscriptions/s/Rules/r", "--set", "a=1"), "a rule has no settings"),
        (("create", "t/Subscriptions/s"), "has no entity 't/Subscriptions/s'"),
        (("show", "missing"), "--namespace contoso` shows what there is"),
    ],
)
def test_mistakes_are_told_with_how_to_mend_them(
    here: tuple[str, ...], arguments: tuple[str, ...], told: str
) -> None:
    result = call("entity", *arguments, *here)
    assert (result.returncode, result.stdout) == (2, "")
    assert told in result.stderr


@pytest.mark.parametrize("rule", [("--sql", "amount >"), ("--sql", "a=1", "--action", "SET")])
def test_a_subscription_whose_rule_is_refused_is_not_left_behind(
    here: tuple[str, ...], rule: tuple[str, ...]
) -> None:
    done("create", "events", "--topic", *here)
    result = call("entity", "create", "events/Subscriptions/a", *rule, *here)
    assert (result.returncode, "contoso refuses: " in result.stderr) == (2, True), result.stderr
    assert [one["path"] for one in done("ls", *here)] == ["events"]


def test_nothing_is_deleted_unasked(here: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    done("create", "orders", *here)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    result = call("entity", "delete", "orders", *here)
    assert (result.returncode, "say --yes" in result.stderr) == (2, True)
    assert result.stderr.splitlines()[-1].startswith("pairbus: "), "below the question"
    monkeypatch.setattr("click.termui.visible_prompt_func", interrupt)
    assert call("entity", "delete", "orders", *here).returncode == 130
    assert done("show", "orders", *here)["kind"] == "queue"


def interrupt(question: str) -> NoReturn:
    """Answers with Ctrl-C."""
    raise KeyboardInterrupt


def test_a_namespace_is_found_by_variable_pair_and_ready_file(
    broker: Broker, here: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("create", "orders", *here)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONE", broker["contoso"].connection_string)
    monkeypatch.setenv("TWO", broker["contoso-dr"].connection_string)
    (tmp_path / "pairbus.toml").write_text(
        '[pairs.shop]\nprimary_env = "ONE"\nsecondary_env = "TWO"\n', encoding="utf-8"
    )
    both = ("--primary-env", "ONE", "--secondary-env", "TWO")
    for named, count in (
        (("--primary-env", "ONE"), 1),
        (("--secondary-env", "TWO"), 0),
        (both, 1),
        ((*both, "--side", "secondary"), 0),
        (("--pair", "shop"), 1),
        (("--pair", "shop", "--side", "secondary"), 0),
        ((), 1),
    ):
        assert len(done("ls", *named)) == count, named
    found = call("entity", "ls", "--json", variables={"PAIRBUS_READY_FILE": here[1]})
    assert (found.returncode, "--namespace" in found.stderr) == (2, True)
    found = call("entity", "ls", "--json", "--pair", "shop", variables={"PAIRBUS_READY_FILE": "missing"})
    assert found.returncode == 0
    found = call("entity", "ls", "--json", "--side", "secondary", variables={"PAIRBUS_READY_FILE": here[1]})
    assert found.stdout.split() == ["[]"], "that of the pair: a side is said on the command line"
    for wrong, told in (
        (("--pair", "shop", "--primary-env", "ONE"), "exclude each other"),
        (("--primary-env", "MISSING"), "The environment variable MISSING is not set"),
        (("--ready-file", "missing.json"), "Start a broker first: pairbus broker --ready-file missing.json"),
        (("--ready-file", "pairbus.toml"), "is not a ready file"),
        (("--ready-file", here[1], "--namespace", "other"), "there are: contoso, contoso-dr"),
        (("--pair", "other"), "other"),
        (("--pair", "shop", "--namespace", "contoso"), "name its --ready-file too"),
        (("--side", "primary", "--namespace", "contoso"), "name its --ready-file too"),
        (("--primary-env", "ONE", "--namespace", "contoso"), "name its --ready-file too"),
        (("--namespace", "contoso"), "name its --ready-file too"),
    ):
        result = call("entity", "ls", *wrong)
        assert (result.returncode, told in result.stderr) == (2, True), result.stderr
    (tmp_path / "pairbus.toml").unlink()
    assert "Say which namespace" in call("entity", "ls").stderr


def test_a_policy_without_manage_and_a_closed_port_are_three(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, hold_port: Any
) -> None:
    monkeypatch.setenv("LISTEN", broker["contoso"].policies["listen"])
    result = call("entity", "ls", "--primary-env", "LISTEN")
    assert (result.returncode, "the Manage claim" in result.stderr) == (3, True)
    wrong = broker["contoso"].connection_string.replace("SharedAccessKey=", "SharedAccessKey=AAAA")
    monkeypatch.setenv("WRONG", wrong)
    result = call("entity", "ls", "--primary-env", "WRONG")
    assert (result.returncode, "does not exist; is its key right, and" in result.stderr) == (3, True)
    port = broker["contoso"].port
    away = broker["contoso"].connection_string.replace(f":{port}", f":{hold_port()}")
    monkeypatch.setenv("AWAY", away)
    result = call("entity", "ls", "--primary-env", "AWAY")
    assert (result.returncode, "does not answer" in result.stderr) == (3, True)
    assert "is it up, and its connection string right?" in result.stderr
