"""The Python of the pages about Spark does what the pages say."""

from pathlib import Path
from typing import Any

import pytest

from tests.guards.documents import code_blocks
from tests.guards.sources import ROOT

from .bus import Bus, Letter


def run_example(page: str, words: str, names: dict[str, Any], **ours: str) -> None:
    """Run the one that has these words, with some of its texts exchanged for ours."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (example,) = (one for one in code_blocks(text, "python") if words in one)
    for shown, other in ours.items():
        example = example.replace(f'"{shown}"', f'"{other}"')
    exec(example, names)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_examples_of_the_pages_about_spark(
    spark: Any, bus: Bus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bus.create_entities(queues=["orders"], sessions=[], topics=[])
    bus.put([Letter(path="orders", id=f"waits-{number}") for number in range(7)])
    made = spark.createDataFrame([("one", "new"), ("two", "new")], "body string, subject string")
    names = {"spark": spark, "rows": made}
    run_example("spark-source.md", "rows.write", names)
    run_example("spark-source.md", "groupBy", names)
    run_example("spark-source.md", "selectExpr", names)
    run_example("spark-source.md", "create_views", names)
    # Java has a directory of its own.
    places = {'path", "orders': f'path", "{tmp_path}/read', "checkpoint": f"{tmp_path}/checkpoint"}
    run_example("spark-source.md", "readStream", names, **places)
    names["query"].awaitTermination(120)
    ours = {"PRIMARY": "CONTOSO", "SECONDARY": "CONTOSO_DR", "state": f"{tmp_path}/state"}
    run_example("syphon.md", "Syphon(", names, **ours)
    assert names["summary"].moved == 7
    run_example("syphon.md", "load_receipts", names, **{"state/records": f"{tmp_path}/state/records"})
    told = capsys.readouterr().out
    for row in ("|    new|    2|", "|orders|       7|", "|orders|  moved|    7|"):
        assert row in told
