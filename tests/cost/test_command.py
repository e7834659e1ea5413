"""`pairbus cost estimate` as people and programs use it."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from pairbus.cli.cost import estimate_command
from pairbus.cli.main import main
from pairbus.cost.system import System

OURS = Path(__file__).parents[2] / "src" / "pairbus" / "cost" / "prices.toml"
CONFIG = """
prices = "sheets/mine.toml"

[pairs.shop]
primary_env = "P"
secondary_env = "S"
options = { backlog_queue_count = 20, ping_primary_interval = 30 }
entities = { orders = {}, news = { kind = "topic" } }
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["cost", "estimate", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_with_no_arguments_it_reckons_one_idle_pair(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--json")
    assert code == 0
    assert json.loads(out)["idle_receives"] == {"per_hour": 40, "per_day": 960, "per_30_days": 28800}


def test_people_get_a_table_with_bars_and_the_date_of_the_prices(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--rate", "50", "--outages", "1", "--outage-hours", "3")
    assert code == 0
    assert "send to the backlog" in out
    assert "█" in out
    assert "40 an hour, 960 a day, 28,800 in 30 days" in out
    assert "2026-10-05" in out
    assert "what outages add" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_budget_that_is_not_kept_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--rate", "50", "--budget", "1000")[0] == 0
    code, _, err = run(capsys, "--rate", "50", "--budget", "20")
    assert code == 1
    assert "above the budget of 20.00" in err
    assert run(capsys, "--budget", "plenty")[0] == 2


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ("0.004", "9.6775 USD is above the budget of 0.0040"),
        ("9.677", "9.67752 USD is above the budget of 9.67700"),
    ],
)
def test_a_budget_that_is_not_kept_is_told_with_as_many_figures_as_it_takes(
    capsys: pytest.CaptureFixture[str], budget: str, told: str
) -> None:
    code, _, err = run(capsys, "--budget", budget)
    assert (code, err) == (1, f"pairbus: {told}\n")


@pytest.mark.parametrize(("budget", "code"), [("0.0001", 1), ("0.00009", 2), ("2e12", 2)])
def test_a_budget_is_the_same_on_the_command_line_and_in_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, budget: str, code: int
) -> None:
    config = tmp_path / "pairbus.toml"
    config.write_text(f"budget = {budget}\n", encoding="utf-8")
    assert run(capsys, "--budget", budget)[0] == run(capsys, "--config", str(config))[0] == code


def test_a_budget_may_stand_in_the_configuration(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "pairbus.toml"
    config.write_text("budget = 20\n", encoding="utf-8")
    assert run(capsys, "--config", str(config), "--rate", "50")[0] == 1
    assert run(capsys, "--config", str(config), "--rate", "50", "--budget", "1000")[0] == 0


def test_options_go_above_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    described = tmp_path / "system.toml"
    described.write_text("backlog_queues = 20\nentities = 4\n", encoding="utf-8")
    assert json.loads(run(capsys, "--system", str(described), "--json")[1])["idle_receives"]["per_hour"] == 80
    shown = json.loads(run(capsys, "--system", str(described), "--backlog-queues", "5", "--json")[1])
    assert shown["idle_receives"]["per_hour"] == 20


def test_a_sheet_of_ones_own_takes_the_place_of_ours(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sheet = tmp_path / "prices.toml"
    sheet.write_text(OURS.read_text(encoding="utf-8").replace('"0.013441"', '"1"'), encoding="utf-8")
    assert json.loads(run(capsys, "--prices", str(sheet), "--json")[1])["base"] == "720.00"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    text = OURS.read_text(encoding="utf-8").replace('"0.013441"', '"2"')
    (tmp_path / "sheets").mkdir()
    (tmp_path / "sheets" / "mine.toml").write_text(text, encoding="utf-8")
    file = tmp_path / "pairbus.toml"
    file.write_text(CONFIG, encoding="utf-8")
    return file


def test_the_configuration_names_a_sheet(
    capsys: pytest.CaptureFixture[str], config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads(run(capsys, "--config", str(config), "--json")[1])["base"] == "1440.00"
    monkeypatch.chdir(config.parent)
    assert json.loads(run(capsys, "--json")[1])["base"] == "1440.00"
    assert json.loads(run(capsys, "--prices", str(OURS), "--json")[1])["base"] == "9.68"


def test_a_pair_of_the_configuration_describes_the_system(
    capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    outage = ("--outages", "1", "--outage-hours", "1")
    found = json.loads(run(capsys, "--config", str(config), "--pair", "shop", *outage, "--json")[1])
    assert found["idle_receives"]["per_hour"] == 80
    # Two entities, a ping each thirty seconds of an hour.
    assert next(row["operations"] for row in found["stages"] if row["stage"] == "pings") == 240


@pytest.mark.parametrize(
    ("sheet", "complaint"),
    [
        ("nowhere.toml", "nowhere.toml: there is no such file"),
        ("pairbus.toml", "pairbus.toml: as_of is missing"),
    ],
)
def test_a_sheet_that_cannot_be_used_is_told_with_its_file(
    capsys: pytest.CaptureFixture[str], config: Path, sheet: str, complaint: str
) -> None:
    config.write_text(CONFIG.replace("sheets/mine.toml", sheet), encoding="utf-8")
    code, _, err = run(capsys, "--config", str(config))
    assert code == 2
    assert complaint in err
    assert str(config.parent / sheet) in err


def test_a_mistake_ends_with_2_and_says_how_to_mend_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--pairs", "0")
    assert code == 2
    assert "1 to 1,000,000,000" in err


def test_every_field_of_a_system_is_an_option() -> None:
    offered = {parameter.name for parameter in estimate_command.params}
    described = {entry.name for entry in fields(System)}
    assert offered >= described
    assert offered - described == {
        "config", "pair", "system_file", "prices", "budget", "as_json",
    }  # fmt: skip
