"""How places of records are written, and what is said of what is written wrongly."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.errors import ConfigurationError
from pairbus.stores.places import StoreUri, parse_place

AZURE = "abfss://records@contoso.dfs.core.windows.net"


def test_a_path_is_a_directory() -> None:
    assert parse_place("records") == Path("records").absolute()
    assert parse_place(Path("/a/b")) == Path("/a/b")
    assert parse_place("file:///a/b%20c") == Path("/a/b c")


def test_a_container_of_azure() -> None:
    place = parse_place(f"{AZURE}/fleet/shop?key_env=SHOP_KEY")
    assert isinstance(place, StoreUri)
    assert (place.bucket, place.account, place.path) == ("records", "contoso", "fleet/shop")
    assert place.names == (("key_env", "SHOP_KEY"),)
    assert str(place) == f"{AZURE}/fleet/shop"
    assert str(place / "other") == f"{AZURE}/fleet/shop/other"


def test_a_bucket_of_s3() -> None:
    place = parse_place("s3://records?region=eu-central-1&endpoint=http://127.0.0.1:5000")
    assert isinstance(place, StoreUri)
    assert (place.bucket, place.path, place.region) == ("records", "", "eu-central-1")
    assert (place.endpoint, place.is_plain) == ("127.0.0.1:5000", True)
    assert str(place / "shop") == "s3://records/shop"


@pytest.mark.parametrize(
    ("uri", "mend"),
    [
        ("gs://records", "abfss://, s3://"),
        ("abfss://records/fleet", "CONTAINER@ACCOUNT"),
        ("abfss://@contoso.dfs.core.windows.net/fleet", "CONTAINER@ACCOUNT"),
        ("s3://", "s3://BUCKET/PATH"),
        ("s3:/records/fleet", "begins with s3:// and two slashes"),
        ("abfss:/c@contoso.dfs.core.windows.net/x", "begins with abfss:// and two slashes"),
        ("file:/records", "begins with file:// and two slashes"),
        ("file://host/records", "file:///PATH"),
        ("s3://records/../other/x", "s3://BUCKET/PATH"),
        ("s3://records/fleet/..", "s3://BUCKET/PATH"),
        ("s3://records/fl%5Ceet", "s3://BUCKET/PATH"),
        ("s3://records/fleet%0A", "s3://BUCKET/PATH"),
        ("s3://records?access_key_env=A", "together"),
        (f"{AZURE}?key_env=A&sas_env=B", "not both"),
        (f"{AZURE}?endpoint=127.0.0.1:10000", "http://HOST:PORT"),
        (f"{AZURE}?endpoint=http://[", "http://HOST:PORT"),
        (f"{AZURE}?key_env=", "names of environment variables"),
    ],
)
def test_what_is_wrong_is_told_with_how_it_is_written(uri: str, mend: str) -> None:
    with pytest.raises(ConfigurationError, match=mend):
        parse_place(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIA:wJalrXUtnFEMI-bPxRfiCY@records/fleet",
        f"{AZURE}?key_env=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq==",
        f"{AZURE}?sv=2024&sig=wJalrXUtnFEMI-bPxRfiCY",
        f"{AZURE}#wJalrXUtnFEMI-bPxRfiCY",
    ],
)
def test_a_secret_in_a_uri_is_refused_and_not_shown(uri: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_place(uri)
    assert "wJal" not in str(raised.value)
    assert "Eby8" not in str(raised.value)


def test_a_drive_is_no_scheme_and_a_path_that_lost_a_slash_is_refused() -> None:
    assert parse_place("c:/records") == Path("c:/records").absolute()
    assert parse_place("/records/s3:/x") == Path("/records/s3:/x")
    with pytest.raises(ConfigurationError, match="two slashes"):
        parse_place(Path("s3://records/fleet"))


@given(st.text(max_size=60))
def test_any_text_is_a_place_or_a_clear_error(text: str) -> None:
    for uri in (text, f"s3://{text}", f"abfss://{text}"):
        try:
            place = parse_place(uri)
        except ConfigurationError:
            continue
        assert pickle.loads(pickle.dumps(place)) == place
