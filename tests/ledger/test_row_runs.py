"""What the numbers of rows tell: every one that was written and is not there, and no other."""

import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pairbus.ledger.operations import KIND
from pairbus.ledger.retention import trim
from pairbus.ledger.row_runs import MissingRows, RowRun, find_missing, join_runs, kept_since, since_name

OCTOBER, NOVEMBER = 1_790_812_800.0, 1_793_491_200.0
MINUTE = 60.0


def run(first: int, last: int, *, writer: str = "w", at: float = OCTOBER) -> RowRun:
    """Rows of a minute each."""
    return RowRun(writer, "shop", first, last, at + first * MINUTE, at + last * MINUTE, last - first + 1)


@given(st.sets(st.integers(0, 30), min_size=1), st.randoms(use_true_random=False))
def test_what_is_missing_is_what_is_not_there(numbers: set[int], dice: random.Random) -> None:
    singles = [run(number, number) for number in numbers]
    dice.shuffle(singles)
    found = find_missing(singles)
    assert sum(one.rows for one in found) == max(numbers) + 1 - len(numbers)
    joined = join_runs(singles)
    assert sum(one.last - one.first + 1 for one in joined) == sum(one.rows for one in joined) == len(numbers)
    assert find_missing(joined) == found


def test_it_is_told_by_writer_and_time() -> None:
    runs = [run(0, 4), run(7, 9), run(12, 12), run(0, 3, writer="whole"), run(2, 3, writer="headless")]
    assert find_missing(runs) == [
        MissingRows("headless", "shop", 2, OCTOBER - 2 * MINUTE, OCTOBER + 2 * MINUTE),
        MissingRows("w", "shop", 4, OCTOBER + 4 * MINUTE, OCTOBER + 12 * MINUTE),
    ]
    later = find_missing(runs, since=OCTOBER + 8 * MINUTE)
    assert [(one.writer, one.rows) for one in later] == [("w", 2)]
    assert find_missing(runs, before=OCTOBER - 2 * MINUTE) == []


def test_a_month_of_which_a_writer_has_nothing_left_misses_what_it_wrote_there() -> None:
    """Its first row that is there is of the next month; it began to write at most so long before."""
    left = [run(4000, 4100, at=OCTOBER - 4000 * MINUTE)]
    september = OCTOBER - 30 * 86_400
    assert [one.rows for one in find_missing(left, since=september, before=OCTOBER)] == [4000]
    assert find_missing(left, before=september) == []


def test_a_row_that_is_there_twice_shows_in_their_number() -> None:
    (joined,) = join_runs([run(0, 4), run(4, 6)])
    assert (joined.first, joined.last, joined.rows) == (0, 6, 8)


def test_months_that_retention_has_removed_are_not_missing(tmp_path: Path) -> None:
    for day in ("2026-09-30", "2026-10-01"):
        (tmp_path / f"{KIND}-{day}-000001.parquet").mkdir()
    trim(tmp_path, before=OCTOBER + 5 * 86_400)
    names = [path.name for path in tmp_path.iterdir()]
    assert since_name("2026-10") in names
    assert kept_since(names) == OCTOBER
    left = [run(100, 200), run(205, 210, at=OCTOBER + 3 * 86_400)]
    assert [one.rows for one in find_missing(left)] == [104]
    assert [one.rows for one in find_missing(left, kept=OCTOBER)] == [4]
    (tmp_path / f"{KIND}-2026-11-01-000001.parquet").mkdir()
    trim(tmp_path, before=NOVEMBER)
    assert [path.name for path in tmp_path.glob(f"{KIND}-since-*")] == [since_name("2026-11")]


def test_a_ledger_of_which_nothing_is_old_gets_no_word(tmp_path: Path) -> None:
    (tmp_path / f"{KIND}-2026-10-01-000001.parquet").mkdir()
    trim(tmp_path, before=OCTOBER + 86_400)
    assert kept_since(path.name for path in tmp_path.iterdir()) == 0.0
