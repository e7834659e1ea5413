"""docs/settings.md says what the code says: every option, every key of the configuration file."""

import re
import tomllib
from pathlib import Path

import pytest

from pairbus.cli.config import load_config
from pairbus.cli.config_schema import config_schema
from pairbus.options import describe_options

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def test_the_table_of_options_is_that_of_the_code() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Options of a pair")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{option.name}` | `{option.default}` | {option.allowed} | {option.meaning} |"
        for option in describe_options()
    ]


def test_the_example_of_a_configuration_file_works(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    path = tmp_path / "pairbus.toml"
    path.write_text(example, encoding="utf-8")
    config = load_config(path)
    assert list(config.pairs) == list(tomllib.loads(example)["pairs"])
    assert config.pair("shop").options == {
        "failover_interval": 30,
        "backlog_queue_count": 20,
        "ttl_policies": {"orders": "deduct"},
    }


@pytest.mark.parametrize("key", sorted(config_schema()["$defs"]["pair"]["properties"]))
def test_every_key_of_a_pair_is_documented(key: str) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("| key of a pair |")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert any(f"`{key}`" in row.split(" | ")[0] for row in rows)
