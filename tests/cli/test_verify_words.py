"""What `pairbus verify` says of a verdict."""

import pytest

from pairbus.cli.verify import _draw
from pairbus.spark.verdict import Verdict

FAIR = Verdict(
    redirected=9,
    delivered=8,
    waiting=1,
    dead_lettered=0,
    refused=0,
    lost=0,
    recovered=0,
    unexpected=0,
    duplicated=0,
    at_most_duplicated=1200,
    missing=(),
)


@pytest.mark.parametrize(
    ("strict", "said"),
    [(False, "nothing is lost"), (True, "nothing is lost, but by --strict: 1 waiting, 1,200 perhaps twice")],
)
def test_what_is_not_lost_is_an_objection_by_strict_alone(strict: bool, said: str) -> None:
    assert [*_draw(FAIR, strict=strict)][-1].strip() == said
