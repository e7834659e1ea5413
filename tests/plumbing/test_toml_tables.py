"""One reader of TOML: whatever is wrong with a file, it tells the place, and never falls over."""

import tomllib
from collections.abc import Callable, Iterator
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker import FaultPlan
from pairbus.cli.config import load_config, read_config
from pairbus.cost.sheet import parse_sheet
from pairbus.cost.system import parse_system
from pairbus.drill.scenario import parse_scenario, shipped_scenarios, shipped_text
from pairbus.errors import ConfigurationError
from pairbus.plumbing.toml_tables import Mistake, parse_toml, parse_value, read_text
from tests.cli.test_config import FULL
from tests.faults.test_plan import PLAN

Reader = Callable[[str], object]
Place = tuple[str | int, ...]
SYSTEM = 'rate = 12.5\nentities = 3\nbatch_billing = "per_batch"\nconnections = 4\nsame_region = true\n'


def read_scenario(text: str) -> object:
    return parse_scenario(text, name="mine", where="mine.toml")


def read_configuration(text: str, directory: Path) -> object:
    file = directory / "pairbus.toml"
    file.write_text(text, encoding="utf-8")
    if mistakes := read_config(file).mistakes:
        raise ConfigurationError("\n".join(map(str, mistakes)))
    return load_config(file)


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Reader]]:
    """Every file that we read, by what it is: one without mistakes, and its reader."""
    directory = tmp_path_factory.mktemp("config")
    prices = resources.files("pairbus.cost").joinpath("prices.toml").read_text(encoding="utf-8")
    found: dict[str, tuple[str, Reader]] = {
        "config": (FULL, lambda text: read_configuration(text, directory)),
        "plan": (PLAN, FaultPlan.parse),
        "sheet": (prices, parse_sheet),
        "system": (SYSTEM, parse_system),
    }
    return found | {name: (shipped_text(name), read_scenario) for name in shipped_scenarios()}


def write(value: Any) -> str:
    """A value as TOML writes it, tables in one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{write(key)} = {write(below)}" for key, below in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(write, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(letter):08X}" for letter in value) + '"'
    return value.isoformat() if isinstance(value, date) else repr(value)


def write_document(document: dict[str, Any]) -> str:
    return "".join(f"{write(key)} = {write(value)}\n" for key, value in document.items())


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """All places below a value that have a key."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in below:
        if isinstance(key, str):
            yield (*place, key)
        yield from places(one, (*place, key))


def table_at(document: dict[str, Any], place: Place) -> dict[str, Any]:
    found: Any = document
    for key in place[:-1]:
        found = found[key]
    assert isinstance(found, dict)
    return found


# What no key of any file may be.
WRONG = st.sampled_from([[[1]], [{}, 3], [[], {}], float("nan"), float("-inf")])
# What some may be: it is read, or refused, and nothing else happens.
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none().map(lambda _: {})
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc.", max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
FILES = st.sampled_from(["config", "plan", "sheet", "system", *shipped_scenarios()])


def complaint_of(read: Reader, text: str) -> str | None:
    """What the reader says of a text, if it refuses it; any other error ends the test."""
    try:
        read(text)
    except ConfigurationError as error:
        return str(error)
    return None


def name_of(place: Place) -> str:
    """What an error has to name: the key, or the option that is judged as a whole."""
    return "ttl_policies" if "ttl_policies" in place else str(place[-1])


@given(file=FILES, data=st.data())
def test_a_mutation_is_refused_with_its_place_or_read(
    readers: dict[str, tuple[str, Reader]], file: str, data: st.DataObject
) -> None:
    text, read = readers[file]
    document = tomllib.loads(text)
    place = data.draw(st.sampled_from(sorted(places(document), key=str)))
    table, key = table_at(document, place), str(place[-1])
    mutation = data.draw(st.sampled_from(["misspelt", "wrong", "removed", "anything"]))
    if mutation == "misspelt":
        table[f"{key}x"] = table.pop(key)
    elif mutation == "removed":
        del table[key]
    else:
        table[key] = data.draw(WRONG if mutation == "wrong" else ANYTHING)
    complaint = complaint_of(read, write_document(document))
    if mutation == "wrong":
        assert complaint is not None
    # Another value may well be right, and then not fit to others, which are named then.
    if complaint is not None and mutation != "anything":
        assert name_of(place) in complaint


@given(text=st.text(max_size=200))
def test_any_text_is_read_or_refused(readers: dict[str, tuple[str, Reader]], text: str) -> None:
    for _, read in readers.values():
        assert complaint_of(read, text.encode("utf-8", "replace").decode()) != ""


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 5000, "a = 0x" + "f" * 5000])
def test_what_breaks_the_parser_of_python_is_a_mistake_too(text: str) -> None:
    top = parse_toml(text, where="f")
    top.number("a", 0.0)
    with pytest.raises(ConfigurationError, match=r"f: (is not TOML|a must be a number, 0 and up)"):
        top.refuse()
    assert parse_value(text.removeprefix("a = ")) is not None


def test_reading_goes_on_after_a_mistake_and_tells_all_of_them_table_by_table() -> None:
    top = parse_toml(
        """
        name = ""
        colour = "red"
        [below]
        share = 2
        many = "yes"
        [[row]]
        kind = "c"
        names = ["a", 3, "A"]
        """,
        where="file.toml",
    )
    assert top.text("name", "nobody") == "nobody"
    assert top.number("rate", 1.5) == 1.5
    below = top.table("below")
    assert (below.number("share", 0.5, high=1.0), below.flag("many")) == (0.5, False)
    (row,) = top.rows("row")
    assert (row.choice("kind", ("a", "b"), "a"), row.texts("names")) == ("a", ("a", "A"))
    row.need("size")
    assert [(mistake.place, mistake.text) for mistake in top.mistakes] == [
        ("colour", "'colour' is not known; there are: name, rate, below, row"),
        ("name", "name must be a text that is not empty, not ''"),
        ("below.share", "share must be a number, 0 to 1, not 2"),
        ("below.many", "many must be true or false, not 'yes'"),
        ("row[1].kind", 'kind must be "a" or "b", not \'c\''),
        ("row[1].names[2]", "names[2] must be a text that is not empty, not 3"),
        ("row[1].names", "names names something twice"),
        ("row[1].size", "size is missing"),
    ]
    with pytest.raises(ConfigurationError) as caught:
        top.refuse()
    assert str(caught.value).splitlines()[2] == "file.toml: [below]: share must be a number, 0 to 1, not 2"
    assert len(str(caught.value).splitlines()) == 8


def test_a_place_is_written_as_toml_writes_it() -> None:
    assert str(Mistake(("pairs", "a.b"), ("x",), "is odd")) == '[pairs."a.b"]: is odd'
    assert str(Mistake(("entity", 2), (), "is odd")) == "[[entity]] 2: is odd"
    assert Mistake(("entity", 2), ("rate",), "").place == "entity[2].rate"
    assert Mistake((), ('a"\n',), "").place == '"a\\"\\n"'


def test_a_long_text_is_not_shown() -> None:
    top = parse_toml(f'rate = "{"secret" * 10}"\nflag = ["{"secret" * 10}"]', where="f")
    top.number("rate", 0.0)
    top.flag("flag")
    assert len(list(top.mistakes)) == 2
    assert "secret" not in str(list(top.mistakes))


def test_a_mark_at_the_beginning_is_no_part_of_the_text(tmp_path: Path) -> None:
    """Editors of Windows write one, and TOML knows none."""
    file = tmp_path / "a.toml"
    file.write_bytes(b"\xef\xbb\xbfa = 1\r\n")
    assert parse_toml(read_text(file), where="a").number("a", 0.0) == 1.0


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    with pytest.raises(ConfigurationError, match=r"a\.toml: there is no such file; make one"):
        read_text(file, advice="; make one")
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"a\.toml: cannot be read: it is not UTF-8"):
        read_text(file)
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        read_text(tmp_path)
    with pytest.raises(ConfigurationError, match="/dev/zero: cannot be read: It has more than 16 MB"):
        read_text(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("text", "value"), [("30", 30), ("true", True), ("hold", "hold"), ("[1]", [1]), ("1]", "1]")]
)
def test_a_value_alone(text: str, value: Any) -> None:
    assert parse_value(text) == value
