"""`pairbus syphon --all-pairs`: which pairs, and where what belongs to the job and to each pair lies."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from pairbus.cli.syphon_run import _draw_summary
from pairbus.client.state.directory import records_dir
from pairbus.pump.summary import PathSummary
from pairbus.spark import SyphonSummary
from pairbus.spark.leash.leash import Leash
from pairbus.spark.leash.tether import ControlFile
from pairbus.stores.places import parse_place

from .process import call

KEY = "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
NAMESPACES = ("CONTOSO", "FABRIKAM", "RESERVE")
PAIRS = """
[pairs.shop]
primary_env = "CONTOSO"
secondary_env = "RESERVE"
primary_name = "contoso"

[pairs.depot]
primary_env = "FABRIKAM"
secondary_env = "RESERVE"
primary_name = "fabrikam"
state_dir = "depot-state"
"""


class Run:
    """A run of the command, with the last steps left out that need Spark."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.config = root / "pairbus.toml"
        self.config.write_text(PAIRS, encoding="utf-8")
        self.home = root / "home" / "pairbus"
        self.has_session = False
        self.given: dict[str, Any] = {}
        monkeypatch.setattr("pairbus.spark.session.open_spark", self._open_session)
        monkeypatch.setattr("pairbus.spark.Syphon", self._make)

    def _open_session(self, **given: Any) -> Run:
        self.has_session = True
        return self

    def _make(self, spark: object, backlogs: Any, **given: Any) -> Run:
        self.given = {**given, "names": [one.primary_name for one in backlogs]}
        return self

    def run(self, **given: Any) -> SyphonSummary:
        zeros: dict[str, Any] = dict.fromkeys(
            ("moved", "dead_lettered", "waiting", "bytes", "unknown", "receipts"), 0
        )
        summary = SyphonSummary(**zeros, seconds=0.0, slowest_path=None)
        if tell := given.get("on_summary"):
            tell(summary)
        return summary

    def stop(self) -> None:
        """As a session is stopped."""

    def call(self, *arguments: str) -> tuple[int, str]:
        variables = {
            name: f"Endpoint=sb://{name.lower()}.example:{number};{KEY}"
            for number, name in enumerate(NAMESPACES, 1)
        }
        done = call(
            "syphon",
            *arguments,
            "--config",
            str(self.config),
            variables={**variables, "XDG_STATE_HOME": str(self.root / "home")},
        )
        return done.returncode, done.stderr

    @property
    def job(self) -> Path:
        """The directory of the job, from a run without any other."""
        assert self.call("run", "--all-pairs", "--once") == (0, "")
        state: Path = self.given["state"]
        return state


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


@pytest.mark.parametrize("text", ["", "[options]\nfailover_interval = 30\n"])
@pytest.mark.parametrize("arguments", [("--once",), ("--state", "state"), ()])
def test_no_pairs_are_told_before_spark_starts(command: Run, text: str, arguments: tuple[str, ...]) -> None:
    command.config.write_text(text, encoding="utf-8")
    code, said = command.call("run", "--all-pairs", *arguments)
    assert code == 2
    assert f"{command.config} has no pairs: describe one as [pairs.NAME]" in said
    assert not command.has_session


def test_a_job_of_several_pairs_has_a_place_of_its_own_and_each_pair_its_records(command: Run) -> None:
    job = command.job
    assert job.parent == command.home
    assert job.name.startswith("all-pairs-")
    assert command.given["names"] == ["contoso", "fabrikam"]
    pairs = [command.home / "contoso", command.root / "depot-state"]
    assert command.given["records"] == [records_dir(state) for state in pairs]
    assert job not in pairs


def test_one_pair_keeps_all_in_its_own_place(command: Run) -> None:
    assert command.call("run", "--pair", "depot", "--once") == (0, "")
    assert command.given["state"] == command.root / "depot-state"
    assert command.given["records"] is None, "below the state"


def test_the_file_says_where_the_records_of_all_hosts_lie(command: Run) -> None:
    uri = "abfss://records@contoso.dfs.core.windows.net/depot?key_env=RECORDS_KEY"
    with command.config.open("a", encoding="utf-8") as file:
        file.write(f'records = "{uri}"\n')
    assert command.call("run", "--pair", "depot", "--once") == (0, "")
    assert command.given["records"] == parse_place(uri)
    assert command.call("run", "--pair", "depot", "--once", "--records", str(command.root)) == (0, "")
    assert command.given["records"] == command.root
    assert command.call("run", "--all-pairs", "--once") == (0, "")
    assert command.given["records"] == [records_dir(command.home / "contoso"), parse_place(uri)]


def test_another_file_is_another_job_and_a_pair_more_the_same(command: Run) -> None:
    before = command.job
    command.config.write_text(PAIRS.split("[pairs.depot]")[0], encoding="utf-8")
    assert command.job == before
    command.config = command.config.rename(command.root / "other.toml")
    assert command.job != before


def test_places_that_are_given_count(command: Run) -> None:
    shared, state = command.root / "shared", command.root / "state"
    code, _ = command.call("run", "--all-pairs", "--once", "--records", str(shared), "--state", str(state))
    assert code == 0
    assert command.given["state"] == state
    assert command.given["records"] == [shared / "contoso", shared / "fabrikam"]


@pytest.mark.parametrize(("verb", "order"), [("pause", "pause"), ("resume", "run"), ("stop", "stop")])
def test_orders_find_the_job_of_all_pairs(command: Run, verb: str, order: str) -> None:
    with Leash([command.root]) as leash:
        job = command.job
        job.mkdir(parents=True, exist_ok=True)
        ControlFile(job).write(leash.address)
        code, said = command.call(verb, "--pair", "shop")
        assert (code, "no syphon runs with the state" in said) == (3, True)
        assert command.call(verb, "--all-pairs") == (0, "")
        assert leash.order == order
    code, said = command.call(verb, "--all-pairs", "--pair", "shop")
    assert (code, "--all-pairs excludes --pair" in said) == (2, True)


@pytest.mark.parametrize("how", [("--once",), ()])
def test_a_second_run_with_the_same_state_is_refused_and_touches_nothing(
    command: Run, how: tuple[str, ...]
) -> None:
    state = command.root / "depot-state"
    running = ControlFile(state)
    with running.held(), Leash([command.root]) as leash:
        running.write(leash.address)
        code, said = command.call("run", "--pair", "depot", *how)
        assert (code, "a syphon runs already with the state" in said) == (3, True)
        assert not command.has_session, "Spark is not started for it"
        assert running.read() == leash.address, "the first one is still found"
        assert command.call("stop", "--pair", "depot") == (0, "")
    assert command.call("run", "--pair", "depot", *how) == (0, ""), "when that one has ended"


def test_the_summary_says_what_is_over_and_what_to_do_about_dead_letters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = {
        "bills": PathSummary(moved=100, trouble="cannot reach it"),
        "notes": PathSummary(dead_lettered=20, trouble="no such entity"),
        "orders": PathSummary(waiting=7, trouble="it is full"),
    }
    summary = SyphonSummary(
        moved=100,
        dead_lettered=20,
        waiting=7,
        bytes=1,
        unknown=0,
        receipts=120,
        seconds=1.0,
        slowest_path=None,
        paths=paths,
    )
    told = list(_draw_summary(summary, once=True))
    troubles = [line.split("  ")[-1].strip() for line in told[1:4]]
    assert troubles == ["earlier: cannot reach it", "no such entity", "it is full"]
    assert "`pairbus redrive --dry-run` says why" in "".join(told)
    assert "redrive" not in "".join(_draw_summary(dataclasses.replace(summary, dead_lettered=0), once=True))
