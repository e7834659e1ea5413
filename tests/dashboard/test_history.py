"""What was stays known: across restarts, torn lines, full disks and any order of looks."""

import json
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.dashboard.history import CHANGES_KEPT, SAMPLE_EVERY, SAMPLES_KEPT, History
from tests.examples import examples

STATES = ("healthy", "suspect", "failed_over", "faulted")


def write(history: History) -> None:
    """As the collector does it, on a thread of its own."""
    if job := history.unwritten():
        job()


def seen(state: str, since: float | None = None) -> dict[str, dict[str, object]]:
    return {"orders": {"state": state, "since": since, "reason": "because"}}


@settings(max_examples=examples(30))
@given(
    looks=st.lists(st.tuples(st.sampled_from(STATES), st.booleans()), max_size=30),
    torn=st.binary(max_size=20),
)
def test_changes_are_the_same_whether_or_not_it_was_restarted(
    looks: list[tuple[str, bool]], torn: bytes
) -> None:
    with TemporaryDirectory() as place:
        file = Path(place) / "history.jsonl"
        steady, restarted = History(None, now=0.0), History(file, now=0.0)
        for at, (state, restarts) in enumerate(looks):
            if restarts:
                if file.exists():  # as a machine leaves it that stopped while a line was written
                    with file.open("ab") as end:
                        end.write(torn)
                restarted = History(file, now=float(at))
            for history in (steady, restarted):
                history.note_states("shop", seen(state, float(at)), now=float(at))
            write(restarted)
        found, wanted = History(file, now=float(len(looks))).changes("shop"), steady.changes("shop")
        assert [(one["at"], one["new"]) for one in found] == [(one["at"], one["new"]) for one in wanted]
        # That it was well before the first change is not kept on disk.
        assert [one["old"] for one in found[1:]] == [one["old"] for one in wanted[1:]]
        told = [one["new"] for one in steady.changes("shop")]
        assert all(one != other for one, other in pairwise(told))
        assert (told or ["healthy"])[-1] == (looks[-1][0] if looks else "healthy")


def test_an_entity_that_was_always_healthy_has_no_changes() -> None:
    history = History(None, now=0.0)
    assert not history.note_states("shop", seen("healthy"), now=1.0)
    assert history.changes("shop") == []


def test_a_change_tells_what_was_known_before_it() -> None:
    history = History(None, now=0.0)
    history.note_states("shop", seen("faulted", 3.0), now=5.0)  # it was so when it was looked at first
    history.note_states("shop", {"carts": seen("healthy")["orders"]}, now=6.0)
    assert (history.known("shop", "orders"), history.known("shop", "carts")) == (3.0, 6.0)
    history.note_states("shop", {"carts": seen("healthy")["orders"]}, now=7.0)
    history.note_states("shop", {"carts": seen("suspect", 9.0)["orders"]}, now=9.5)
    told = [(one["path"], one["old"], one["known"], one["seen"]) for one in history.changes("shop")]
    assert told == [("orders", "unknown", None, None), ("carts", "healthy", 6.0, 7.0)]
    assert history.seen("shop") == {"orders": 5.0, "carts": 9.5}


def test_a_chart_knows_the_state_that_it_begins_with() -> None:
    history = History(None, now=0.0)
    for at in range(500):  # another path that flaps must not push it out
        flapping = {"state": "suspect" if at % 2 else "failed_over", "since": float(at), "reason": ""}
        steady = {"state": "failed_over", "since": 0.0, "reason": ""}
        history.note_states("shop", {"orders": steady, "payments": flapping}, now=float(at))
    found = history.changes("shop", since=495.0)
    assert [one["new"] for one in found if one["path"] == "orders"] == ["failed_over"]
    assert [one["at"] for one in found if one["path"] == "payments"] == [
        494.0,
        495.0,
        496.0,
        497.0,
        498.0,
        499.0,
    ]


def test_samples_keep_their_distance_and_the_peak() -> None:
    history = History(None, now=0.0)
    depths = [5, *range(2000), 7]
    for number, active in enumerate(depths):
        assert history.note_sample("shop", {"active": active}, now=number * SAMPLE_EVERY)
        assert not history.note_sample("shop", {"active": 0}, now=number * SAMPLE_EVERY + 1)
    drawn = history.samples("shop", since=0.0)
    assert len(drawn) <= 240
    assert max(one["active"] for one in drawn) == 1999


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    history = History(file, now=0.0)
    for number in range(3000):
        history.note_sample("shop", {"active": number}, now=number * SAMPLES_KEPT / 20)
        write(history)
    assert len(file.read_text(encoding="utf-8").splitlines()) < 300
    assert len(history.samples("shop", since=0.0)) == 21


def test_what_is_old_is_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    history = History(file, now=0.0)
    history.note_states("shop", seen("failed_over", 10.0), now=10.0)
    write(history)
    assert len(History(file, now=CHANGES_KEPT).changes("shop")) == 1
    assert History(file, now=CHANGES_KEPT + 11).changes("shop") == []


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        "nul",
        '{"kind": [], "at": 1, "pair": "shop"}',
        '{"kind": "change", "at": 1, "pair": "shop"}',
        '{"kind": "sample", "at": NaN, "pair": "shop"}',
        '{"kind": "sample", "at": 1, "pair": "shop", "active": "many"}',
        '{"kind": "sample", "at": 1, "pair": "shop", "cost": 1e999}',
    ],
)
def test_a_line_that_is_none_of_ours_is_passed_over(tmp_path: Path, line: str) -> None:
    file = tmp_path / "history.jsonl"
    good = {"kind": "change", "at": 2.0, "pair": "shop", "path": "orders", "old": "healthy", "new": "faulted"}
    file.write_text(f"{line}\n{json.dumps(good)}\n", encoding="utf-8")
    history = History(file, now=3.0)
    assert [one["new"] for one in history.changes("shop")] == ["faulted"]
    assert history.samples("shop", since=0.0) == []


def test_a_disk_that_takes_nothing_stops_nobody_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file" / "history.jsonl"
    file.parent.write_text("not a directory", encoding="utf-8")
    history = History(file, now=0.0)
    for at, state in enumerate(["faulted", "healthy"], start=1):
        assert history.note_states("shop", seen(state, float(at)), now=float(at))
        write(history)
    assert len(history.changes("shop")) == 2
    assert caplog.text.count("cannot be written") == 1
    file.parent.unlink()
    history.note_states("shop", seen("suspect", 3.0), now=3.0)
    write(history)
    assert [one["new"] for one in History(file, now=4.0).changes("shop")] == ["suspect"]
