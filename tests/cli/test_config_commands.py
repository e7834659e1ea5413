"""`pairbus config`: every mistake is told, the schema is that of the code, the example is right."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pairbus.cli.config import read_config
from pairbus.cli.config_schema import config_schema
from pairbus.options import describe_options
from tests.guards.documents import code_blocks

from .json_schema import conforms
from .process import call
from .test_config import FULL, PRIMARY, SECONDARY

ROOT = Path(__file__).resolve().parents[2]
PAIR = '[pairs.shop]\nprimary_env = "P"\nsecondary_env = "S"\n'
BOTH = {"P": PRIMARY, "S": SECONDARY}


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("P", "S", "SHOP_PRIMARY", "SHOP_SECONDARY", "PAIRBUS_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def check(text: str, *arguments: str, variables: dict[str, str] | None = None) -> tuple[int, list[str]]:
    """The exit code and the findings in lines, for a file with this text."""
    Path("pairbus.toml").write_text(text, encoding="utf-8")
    done = call("config", "check", "--json", *arguments, variables=variables)
    found = json.loads(done.stdout)["findings"]
    return done.returncode, [f"{one['severity']} {one['place']} {one['text']}" for one in found]


def test_a_file_that_is_right_is_0() -> None:
    assert check(PAIR, variables=BOTH) == (0, [])
    done = call("config", "check", variables=BOTH)
    assert (done.returncode, done.stdout) == (0, "pairbus.toml: no mistakes; pairs: shop\n")


def test_one_variable_for_both_sides_is_a_mistake_also_where_it_is_not_set() -> None:
    text = PAIR.replace('"S"', '"P"')
    code, found = check(text)
    assert (code, found[-1]) == (
        1,
        "error [pairs.shop] primary_env and secondary_env name one variable, P: a pair needs two",
    )
    code, found = check(text, variables=BOTH)
    assert (code, len(found)) == (1, 1), "that they are one namespace is said then"


def test_a_name_that_a_terminal_would_obey_is_shown_as_it_is_written() -> None:
    check(PAIR.replace("shop", r'"sh\u001b[31m\nop"'))
    assert "pairs: sh\\x1b[31m\\nop\n" in call("config", "check").stdout


def test_all_mistakes_are_told_with_their_places() -> None:
    text = PAIR + "primary_nam = 3\n[pairs.shop.options]\nfailover_interval = -1\n[pairs.bare]\n"
    code, found = check(text, variables=BOTH)
    assert code == 1
    assert found == [
        "error [pairs.shop] 'primary_nam' is not known; did you mean 'primary_name'?",
        "error [pairs.shop.options] failover_interval must be 0 to 3600 seconds, not -1",
        "error [pairs.bare] give one of primary_env and primary_host",
        "error [pairs.bare] give one of secondary_env and secondary_host",
    ]
    done = call("config", "check", "--pair", "shop", variables=BOTH)
    assert done.returncode == 1
    assert "pairbus.toml: 2 mistakes; pairs: shop, bare" in done.stdout
    assert "[pairs.bare]" not in done.stdout


def test_a_file_that_is_not_toml_is_1_and_one_that_is_not_there_2() -> None:
    assert check("[pairs", "--pair", "shop")[0] == 1
    done = call("config", "check", "--config", "missing.toml")
    assert done.returncode == 2
    assert "pairbus config example" in done.stderr
    check(PAIR)
    done = call("config", "check", "--pair", "shopp")
    assert (done.returncode, "did you mean 'shop'?" in done.stderr) == (2, True)


def test_a_variable_that_is_not_set_is_a_warning_or_a_mistake() -> None:
    said = "[pairs.shop] secondary_env: the variable S is not set here; it has to hold a connection string"
    assert check(PAIR, variables={"P": PRIMARY}) == (0, [f"warning {said}"])
    assert check(PAIR, "--env", variables={"P": PRIMARY}) == (1, [f"error {said}"])


def test_what_variables_hold_is_looked_at_and_not_shown() -> None:
    code, found = check(PAIR, variables={"P": PRIMARY, "S": PRIMARY})
    assert code == 1
    assert "the same endpoint" in found[0]
    code, found = check(PAIR, variables={"P": PRIMARY, "S": PRIMARY.removeprefix("Endpoint=sb://")})
    assert (code, len(found)) == (1, 1)
    assert found[0].startswith("error [pairs.shop] secondary_env: the variable S: ")
    assert "c2VjcmV0" not in found[0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('certificate = "ca.pem"', "certificate: ca.pem: No such file or directory"),
        (
            'certificate = "pairbus.toml"',
            "certificate: pairbus.toml: there is no certificate in it, in the form PEM",
        ),
        ('state_dir = "pairbus.toml"', "state_dir: pairbus.toml is not a directory"),
        ('primary_name = "a/b"', "cannot begin the name of a backlog queue"),
        (f'primary_name = "{PRIMARY}"', "cannot begin the name of a backlog queue"),
    ],
)
def test_what_a_pair_names_must_be_fit(line: str, said: str) -> None:
    code, found = check(PAIR + line, variables=BOTH)
    assert (code, len(found)) == (1, 1)
    assert said in found[0]
    assert "c2VjcmV0" not in found[0]


def test_a_price_sheet_that_is_not_there_is_a_mistake_and_a_file_without_pairs_a_warning() -> None:
    code, found = check('prices = "none.toml"')
    assert (code, len(found)) == (1, 1)
    assert "none.toml: there is no such file" in found[0]
    assert check("") == (0, ["warning  there is no pair; add [pairs.NAME]"])


def test_the_schema_in_the_documents_is_that_of_the_code() -> None:
    file = ROOT / "docs" / "pairbus.schema.json"
    done = call("config", "schema")
    assert done.returncode == 0
    assert file.read_text(encoding="utf-8") == done.stdout, (
        "run: pairbus config schema > docs/pairbus.schema.json"
    )


def test_the_example_is_right_and_conforms() -> None:
    text = call("config", "example").stdout
    code, found = check(text, variables={"SHOP_PRIMARY": PRIMARY, "SHOP_SECONDARY": SECONDARY})
    assert (code, found) == (0, [])
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for example in (text, FULL, *code_blocks(page, "toml")):
        assert conforms(tomllib.loads(example), config_schema())


@pytest.mark.parametrize(
    "text",
    [
        "pairs = 3",
        "[pair.a]",
        "prices = ''",
        "[options]\nfailover = 3",
        "[pairs.a]\nprimary_env = 'P'",
        PAIR + "primary_host = 'h'",
        PAIR + "certificate = 3",
        PAIR + "[pairs.shop.entities.o]\nkind = 'pipe'",
        PAIR + "[pairs.shop.entities.o]\ncolour = 'red'",
        PAIR + "[pairs.shop.options]\nttl_policies = { o = 'stop' }",
        "[pairs.a]\nprimary_env = 'Endpoint=sb://a'\nsecondary_env = 'S'",
        "[pairs.a]\nprimary_host = 'a b'\nsecondary_env = 'S'",
    ],
)
def test_what_the_reader_refuses_the_schema_refuses(text: str) -> None:
    Path("pairbus.toml").write_text(text, encoding="utf-8")
    assert read_config(Path("pairbus.toml")).mistakes
    assert not conforms(tomllib.loads(text), config_schema())


def _samples(schema: dict[str, Any]) -> list[Any]:
    """Values on both sides of what an option allows, and of other types."""
    edges = [schema[key] for key in ("minimum", "maximum") if key in schema]
    return [*edges, *(edge - 1 for edge in edges), *(edge + 1 for edge in edges), *schema.get("enum", ())]


@pytest.mark.parametrize("name", [option.name for option in describe_options()])
def test_schema_and_reader_agree_on_every_option(name: str) -> None:
    schema = config_schema()["$defs"]["options"]["properties"][name]
    for value in [*_samples(schema), True, 3, 0.5, "text", {"o": "pause"}, {"o": "x"}, {"": "pause"}]:
        text = f"[options]\n{name} = {_toml(value)}"
        Path("pairbus.toml").write_text(text, encoding="utf-8")
        is_right = not read_config(Path("pairbus.toml")).mistakes
        assert conforms(tomllib.loads(text), config_schema()) == is_right, text


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {json.dumps(item)}' for key, item in value.items())} }}"
    return json.dumps(value)
