"""`pairbus.toml`: what it may say, and how a mistake in it is told."""

from pathlib import Path

import pytest

from pairbus.cli.config import EntityConfig, load_config, read_config
from pairbus.cli.pairs import PairChoice
from pairbus.errors import ConfigurationError
from pairbus.pairing.errors import SamePairError
from pairbus.stores.places import parse_place

KEY = "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0"
PRIMARY = f"Endpoint=sb://contoso.servicebus.windows.net/;{KEY}"
SECONDARY = f"Endpoint=sb://contoso-dr.servicebus.windows.net/;{KEY}"

FULL = """
[options]
failover_interval = 30
ping_primary_interval = 10.5
ttl_policies = { news = "deduct" }

[pairs.shop]
primary_env = "SHOP_PRIMARY"
secondary_host = "contoso-dr.servicebus.windows.net"
primary_name = "shop"
state_dir = "state"
records = "shared"
certificate = "ca.pem"

[pairs.shop.options]
failover_interval = 5
on_suspect = "raise"

[pairs.shop.entities.orders]
kind = "queue"
ttl_policy = "deduct"

[pairs.shop.entities."billing/invoices"]
kind = "topic"

[pairs.other]
primary_env = "P"
secondary_env = "S"
"""


def choice(
    *,
    config: Path | None = None,
    pair: str | None = None,
    primary_env: str | None = None,
    secondary_env: str | None = None,
    primary_name: str | None = None,
    options: tuple[str, ...] = (),
) -> PairChoice:
    return PairChoice(
        config=config,
        pair=pair,
        primary_env=primary_env,
        secondary_env=secondary_env,
        primary_name=primary_name,
        options=options,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pairbus.toml"
    path.write_text(FULL, encoding="utf-8")
    return path


def test_everything_that_a_pair_can_have(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PRIMARY", PRIMARY)
    settings = choice(config=file, pair="shop").resolve()
    assert settings.primary.connection_string == PRIMARY
    assert settings.secondary.host == "contoso-dr.servicebus.windows.net"
    assert settings.name == "shop"
    assert settings.state_dir == tmp_path / "state"
    assert settings.records == settings.shared_records == tmp_path / "shared"
    assert settings.sdk_options == {"connection_verify": str(tmp_path / "ca.pem")}
    assert settings.entities == (
        EntityConfig(path="orders", kind="queue"),
        EntityConfig(path="billing/invoices", kind="topic"),
    )
    options = settings.options
    assert (options.failover_interval, options.ping_primary_interval) == (5, 10.5)
    assert options.on_suspect == "raise"
    assert (options.ttl_policy, options.ttl_policies) == ("pause", {"orders": "deduct", "news": "deduct"})
    assert "c2VjcmV0" not in repr(settings)


def test_the_command_line_is_above_the_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PRIMARY", PRIMARY)
    chosen = choice(
        config=file, pair="shop", primary_name="Other", options=("failover_interval=7.5", "on_suspect=hold")
    )
    settings = chosen.resolve(state=tmp_path / "elsewhere", overrides={"backlog_queue_count": 3})
    assert settings.name == "other"
    assert settings.state_dir == tmp_path / "elsewhere"
    options = settings.options
    assert (options.failover_interval, options.on_suspect, options.backlog_queue_count) == (7.5, "hold", 3)


def test_variables_alone_name_a_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P", PRIMARY)
    monkeypatch.setenv("S", SECONDARY)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    settings = choice(primary_env="P", secondary_env="S").resolve()
    assert (settings.name, settings.entities, settings.certificate) == ("contoso", (), None)
    assert settings.state_dir == tmp_path / "pairbus" / "contoso"
    assert settings.sdk_options == {}


def test_a_file_with_one_pair_needs_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P", PRIMARY)
    monkeypatch.setenv("S", SECONDARY)
    (tmp_path / "pairbus.toml").write_text('[pairs.only]\nprimary_env = "P"\nsecondary_env = "S"\n')
    monkeypatch.chdir(tmp_path)
    assert choice().is_made
    assert choice().resolve().name == "contoso"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pairs = 3", "pairs must be a table"),
        ("[pairs]\na = 3", "[pairs]: a must be a table"),
        ("options = 3", "options must be a table"),
        ("prices = 3", "prices must be a text"),
        ('[options]\nttl_policies = "pause"', "[options]: ttl_policies must be a mapping"),
        ("[pairs.a", "is not TOML"),
        ("[pair.a]", "'pair' is not known; did you mean 'pairs'?"),
        ("[options]\nfailover = 3", "'failover' is not known; did you mean 'failover_interval'?"),
        ('[pairs.a]\nprimary_env = "P"', "give one of secondary_env and secondary_host"),
        (
            '[pairs.a]\nprimary_env = "P"\nprimary_host = "h"\nsecondary_env = "S"',
            "give one of primary_env and primary_host",
        ),
        ('[pairs.a]\nprimry_env = "P"', "did you mean 'primary_env'?"),
        ('[pairs.a]\nprimary_env = 3\nsecondary_env = "S"', "primary_env must be a text"),
        ('[pairs.a]\nprimary_env = ""\nsecondary_env = "S"', "primary_env must be a text that is not empty"),
        ('[pairs.a]\nprimary_env = "P"\nsecondary_host = "a b"', "secondary_host: give a host name"),
        ('prices = "a\\u0000b"', "prices has the character NUL, which no path has"),
        (
            '[pairs.a]\nprimary_env = "P"\nsecondary_env = "S"\n[pairs.a.options]\nfailover_interval = -1',
            "[pairs.a.options]: failover_interval must be 0 to 3600 seconds, not -1",
        ),
        (
            '[pairs.a]\nprimary_env = "P"\nsecondary_env = "S"\n[pairs.a.entities.o]\nkind = "pipe"',
            'kind must be "queue" or "topic"',
        ),
        (
            '[pairs.a]\nprimary_env = "P"\nsecondary_env = "S"\n[pairs.a.entities.o]\nttl_policy = "stop"',
            '[pairs.a.entities.o]: ttl_policy must be "pause" or "deduct"',
        ),
        (
            '[pairs.a]\nprimary_env = "P"\nsecondary_env = "S"\n[pairs.a.entities.o]\ncolour = "red"',
            "'colour' is not known",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "pairbus.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as raised:
        load_config(path)
    assert said in str(raised.value)
    assert str(path) in str(raised.value)


def test_every_mistake_is_noted_and_what_is_right_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "pairbus.toml"
    path.write_text(
        """
        [options]
        failover_interval = "soon"
        good_pings = 3
        [pairs."a.b"]
        primary_env = "P"
        secondry_env = "S"
        state_dir = ""
        [pairs."a.b".options]
        ping_jiter = 0.5
        retry_delay = 10
        [pairs."a.b".entities."x/y"]
        kind = "pipe"
        [pairs.fine]
        primary_env = "P"
        secondary_env = "S"
        """,
        encoding="utf-8",
    )
    reading = read_config(path)
    assert [str(mistake) for mistake in reading.mistakes] == [
        "[options]: failover_interval must be 0 to 3600 seconds, not 'soon'",
        "[pairs.\"a.b\"]: 'secondry_env' is not known; did you mean 'secondary_env'?",
        '[pairs."a.b"]: give one of secondary_env and secondary_host',
        "[pairs.\"a.b\"]: state_dir must be a text that is not empty, not ''",
        "[pairs.\"a.b\".options]: 'ping_jiter' is not known; did you mean 'ping_jitter'?",
        '[pairs."a.b".options]: retry_delay_max (5 seconds) must not be below retry_delay (10 seconds); '
        "raise the one or lower the other",
        '[pairs."a.b".entities."x/y"]: kind must be "queue" or "topic", not \'pipe\'',
    ]
    assert [mistake.place for mistake in reading.mistakes] == [
        "options.failover_interval",
        'pairs."a.b".secondry_env',
        'pairs."a.b".secondary_env',
        'pairs."a.b".state_dir',
        'pairs."a.b".options.ping_jiter',
        'pairs."a.b".options',
        'pairs."a.b".entities."x/y".kind',
    ]
    assert reading.pair("a.b").options == {"good_pings": 3, "retry_delay": 10}
    with pytest.raises(ConfigurationError, match=r"and 6 more; `pairbus config check` tells all"):
        load_config(path)


def test_a_secret_in_the_place_of_an_option_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "pairbus.toml"
    for value in (f'"{PRIMARY}"', f'["{PRIMARY}"]', f'{{ a = "{PRIMARY}" }}'):
        path.write_text(f"[options]\non_suspect = {value}\nttl_policies = {value}", encoding="utf-8")
        mistakes = read_config(path).mistakes
        assert len(mistakes) == 2
        assert "c2VjcmV0" not in str(mistakes)


def test_records_may_be_in_a_store_and_hold_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "pairbus.toml"
    sides = '[pairs.a]\nprimary_env = "P"\nsecondary_env = "S"\n'
    path.write_text(f'{sides}records = "s3://bucket/fleet?region=eu-west-1"', encoding="utf-8")
    assert load_config(path).pair("a").records == parse_place("s3://bucket/fleet?region=eu-west-1")
    for uri, said in (
        ("abfss://c@account.dfs.core.windows.net/x?key=c2VjcmV0", "name the environment variable"),
        ("s3:/bucket/fleet", "begins with s3:// and two slashes"),
        ("ftp://somewhere", "give a directory, or one of abfss://, s3://"),
    ):
        path.write_text(f'{sides}records = "{uri}"', encoding="utf-8")
        with pytest.raises(ConfigurationError, match=said) as raised:
            load_config(path)
        assert "c2VjcmV0" not in str(raised.value)
        assert "records" in str(raised.value)
    path.write_text(f"{sides}records = 7", encoding="utf-8")
    assert len(read_config(path).mistakes) == 1


@pytest.mark.parametrize("key", ["primary_env", "primary_host"])
def test_a_connection_string_in_the_wrong_place_is_refused_and_not_shown(tmp_path: Path, key: str) -> None:
    path = tmp_path / "pairbus.toml"
    path.write_text(f'[pairs.a]\n{key} = "{PRIMARY}"\nsecondary_env = "S"', encoding="utf-8")
    with pytest.raises(ConfigurationError) as raised:
        load_config(path)
    assert "c2VjcmV0" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="the name of an environment variable") as raised:
        choice(primary_env=PRIMARY, secondary_env="S").resolve()
    assert "c2VjcmV0" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (choice(), "Say which pair"),
        (choice(pair="a"), "there is no pairbus.toml in "),
        (choice(primary_env="P"), "belong together"),
        (choice(pair="a", primary_env="P", secondary_env="S"), "exclude each other"),
        (choice(primary_env="P", secondary_env="UNSET"), "UNSET is not set"),
        (choice(primary_env="P", secondary_env="S", options=("failover",)), "write NAME=VALUE"),
        (
            choice(primary_env="P", secondary_env="S", options=("failover=3",)),
            "did you mean 'failover_interval'",
        ),
        (
            choice(primary_env="P", secondary_env="S", options=("failover_interval=soon",)),
            "0 to 3600 seconds",
        ),
        (choice(primary_env="P", secondary_env="S", primary_name="a/b"), "cannot begin the name"),
    ],
)
def test_what_the_command_line_lacks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: PairChoice, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("P", PRIMARY)
    monkeypatch.setenv("S", SECONDARY)
    monkeypatch.delenv("UNSET", raising=False)
    with pytest.raises(ConfigurationError) as raised:
        given.resolve()
    assert said in str(raised.value)


def test_a_pair_that_the_file_does_not_have_is_told(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="no pair 'shopp'; did you mean 'shop'"):
        choice(config=file, pair="shopp").resolve()
    with pytest.raises(ConfigurationError, match="no pair 'x'; there are: shop, other"):
        choice(config=file, pair="x").resolve()
    with pytest.raises(ConfigurationError, match="there are: shop, other"):
        choice(config=file).resolve()
    with pytest.raises(ConfigurationError, match="no such file"):
        choice(config=file.with_name("missing.toml")).resolve()


def test_a_pair_of_one_namespace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P", PRIMARY)
    with pytest.raises(SamePairError):
        choice(primary_env="P", secondary_env="P").resolve()
