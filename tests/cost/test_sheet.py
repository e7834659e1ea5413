"""The price sheet and the description of a system: what is wrong with them is said, and how to mend it."""

import re
from decimal import Decimal
from importlib import resources

import pytest

from pairbus.cost.bill import Amounts, Extent, price_months
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
        ('base_per_hour = "0.013441"', 'base_per_hour = "-1"', "of 0 to 1,000,000,000, .* not '-1'"),
        ('base_per_hour = "0.013441"', 'base_per_hour = "cheap"', "must be an amount .* not 'cheap'"),
        ('base_per_hour = "0.013441"', "", r"\[standard\]: base_per_hour is missing"),
        (
            '{ up_to = "100", price = "0.80" }',
            '{ up_to = "10", price = "0.80" }',
            "operations_per_million: graduated prices need rising",
        ),
        ('    { price = "0.20" },\n', "", "last step without one"),
        ('base_per_hour = "0.013441"', 'base_per_hour = "1e10"', "of 0 to 1,000,000,000, .* not '1e10'"),
        ("as_of = 2026-10-05", "as_of = 2026-10-05T00:00:00Z", "as_of must be a date"),
        ("as_of = 2026-10-05", 'as_of = "yesterday"', "as_of must be a date, .* not 'yesterday'"),
        ('currency = "USD"', "currency = ", "is not TOML"),
    ],
)
def test_what_is_wrong_with_a_sheet_is_said(old: str, new: str, complaint: str) -> None:
    assert old in TEXT
    with pytest.raises(ConfigurationError, match=complaint):
        parse_sheet(TEXT.replace(old, new))


def test_the_highest_prices_that_are_taken_can_be_billed() -> None:
    dear = re.sub(r'((?:price|_per_\w+) = )"[0-9.]+"', r'\1"1000000000"', TEXT)
    sheet = parse_sheet(dear)
    assert sheet.storage_writes_per_ten_thousand == sheet.standard_base_per_hour == 10**9
    months = {"2028-02": Extent(Amounts(10**9, 10**9, 10**13, 10**9), 0, 0)}
    assert price_months(months, sheet)["2028-02"].total > 10**12


def test_a_system_is_described_by_the_names_of_its_fields() -> None:
    system = parse_system("rate = 12.5\nentities = 3\nbatch_billing = 'per_batch'\nbatch_size = 10\n")
    assert system == System(rate=12.5, entities=3, batch_billing="per_batch", batch_size=10)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("speed = 9", "'speed' is not known; there are: pairs, entities"),
        ("pairs = 0", "pairs of namespaces\\) is a whole number, 1 to 1,000,000,000, not 0"),
        ("days = 40", "is a whole number, 1 to 31, not 40"),
        ("rate = 'fast'", "not 'fast'"),
        ("batch_billing = 'somehow'", "per_message or per_batch"),
        ("connections = 'many'", "is a whole number, 0 to 1,000,000,000, not 'many'"),
        ("same_region = 1", "is False or True, not 1"),
        ("rate = inf", "is 0 to 1,000,000,000, not inf"),
        ("pairs = ", "is not TOML"),
    ],
)
def test_what_is_wrong_with_a_system_is_said(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_system(text)
