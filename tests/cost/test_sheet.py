"""The price sheet and the description of a system: what is wrong with them is said, and how to mend it."""

from __future__ import annotations

from decimal import Decimal
from importlib import resources

import pytest

from pairbus.cost.sheet import default_sheet, parse_sheet
from pairbus.cost.system import System, parse_system
from pairbus.errors import ConfigurationError

TEXT = resources.files("pairbus.cost").joinpath("prices.toml").read_text(encoding="utf-8")


def test_the_sheet_that_comes_with_it_is_dated_and_names_its_sources() -> None:
    sheet = default_sheet()
    assert sheet.as_of.isoformat() == "2026-10-05"
    assert len(sheet.sources) >= 3
    assert sheet.standard_base_per_hour == Decimal("0.013441")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            'base_per_hour = "0.013441"',
            "base_per_hour = 0.013441",
            r"\[standard\]: base_per_hour must be an amount .* written as text",
        ),
        ('base_per_hour = "0.013441"', 'base_per_hour = "-1"', "of 0 and up, .* not '-1'"),
        ('base_per_hour = "0.013441"', 'base_per_hour = "cheap"', "must be an amount .* not 'cheap'"),
        ('base_per_hour = "0.013441"', "", r"\[standard\]: base_per_hour is missing"),
        (
            '{ up_to = "100", price = "0.80" }',
            '{ up_to = "10", price = "0.80" }',
            "operations_per_million: graduated prices need rising",
        ),
        ('    { price = "0.20" },\n', "", "last step without one"),
        ("as_of = 2026-10-05", 'as_of = "yesterday"', "as_of must be a date, .* not 'yesterday'"),
        ('currency = "USD"', "currency = ", "is not TOML"),
    ],
)
def test_what_is_wrong_with_a_sheet_is_said(old: str, new: str, complaint: str) -> None:
    assert old in TEXT
    with pytest.raises(ConfigurationError, match=complaint):
        parse_sheet(TEXT.replace(old, new))


def test_a_system_is_described_by_the_names_of_its_fields() -> None:
    system = parse_system("rate = 12.5\nentities = 3\nbatch_billing = 'per_batch'\nbatch_size = 10\n")
    assert system == System(rate=12.5, entities=3, batch_billing="per_batch", batch_size=10)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("speed = 9", "'speed' is not known; there are: pairs, entities"),
        ("pairs = 0", "pairs of namespaces\\) is 1 to 1,000,000,000, not 0"),
        ("days = 40", "is 1 to 31, not 40"),
        ("rate = 'fast'", "not 'fast'"),
        ("batch_billing = 'somehow'", "per_message or per_batch"),
        ("connections = 'many'", "is 0 to 1,000,000,000, not 'many'"),
        ("same_region = 1", "is False or True, not 1"),
        ("rate = inf", "is 0 to 1,000,000,000, not inf"),
        ("pairs = ", "is not TOML"),
    ],
)
def test_what_is_wrong_with_a_system_is_said(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_system(text)
