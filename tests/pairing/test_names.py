from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from hypothesis import given
from hypothesis import strategies as st

from pairbus.errors import ConfigurationError
from pairbus.pairing.errors import SamePairError
from pairbus.pairing.names import (
    BacklogQueueName,
    Endpoint,
    backlog_queue_name,
    backlog_queue_names,
    check_distinct,
    endpoint_of,
    is_same_endpoint,
    parse_backlog_queue_name,
    parse_connection_string,
    path_key,
    primary_name,
)

KEY = "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0LWtleQ=="
CONTOSO = f"Endpoint=sb://Contoso.servicebus.windows.net/;{KEY}"


def test_a_connection_string_is_read_field_by_field() -> None:
    parsed = parse_connection_string(CONTOSO + ";EntityPath=orders;Namespace=Blue;Unheard=of;")
    assert parsed.endpoint == Endpoint("contoso.servicebus.windows.net", 5671)
    assert (parsed.key_name, parsed.key) == ("root", "c2VjcmV0LWtleQ==")
    assert (parsed.entity_path, parsed.namespace, parsed.emulator) == ("orders", "Blue", False)


def test_an_emulator_has_the_plain_port_unless_it_names_one() -> None:
    flag = ";UseDevelopmentEmulator=true"
    assert parse_connection_string(f"Endpoint=sb://localhost;{KEY}{flag}").endpoint.port == 5672
    assert parse_connection_string(f"Endpoint=sb://127.0.0.1:4000;{KEY}{flag}").endpoint.port == 4000
    assert not parse_connection_string(f"Endpoint=sb://localhost;{KEY};UseDevelopmentEmulator=True").emulator


def test_a_signature_stands_for_the_key() -> None:
    parsed = parse_connection_string(
        "Endpoint=sb://c.example;SharedAccessSignature=SharedAccessSignature sr=x&sig=y"
    )
    assert parsed.signature == "SharedAccessSignature sr=x&sig=y"


@pytest.mark.parametrize(
    "text",
    [
        f"; Endpoint = sb://c.example:4000 ;\n{KEY.replace(';', ' ; ')};EntityPath=orders",
        f"Endpoint=c.example:4000;{KEY};EntityPath = orders",
        f"HostName=sb://c.example:4000/;{KEY};EntityPath=orders;",
        "Endpoint=sb://c.example:4000//;SharedAccessSignature= sr=x&sig=y ;entitypath=orders",
    ],
)
def test_what_is_taken_is_given_to_the_sdk_as_it_takes_it(text: str) -> None:
    """It is as particular as this about the string of a secondary, which nobody needs before an outage."""
    parsed = parse_connection_string(text)
    client = ServiceBusClient.from_connection_string(parsed.text)
    assert client.fully_qualified_namespace == parsed.endpoint.host == "c.example"
    assert client._entity_name == parsed.entity_path == "orders"
    assert parse_connection_string(parsed.text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "nonsense",
        KEY,
        "Endpoint=sb://c.example",
        "Endpoint=sb://c.example;SharedAccessKey=c2VjcmV0LWtleQ==",
        f"Endpoint=;{KEY}",
        f"Endpoint=sb://;{KEY}",
        f"Endpoint=sb://c.example/queue;{KEY}",
        f"Endpoint=sb://user@c.example;{KEY}",
        f"Endpoint=sb://c.example:port;{KEY}",
        f"Endpoint=sb://c.example;{KEY};{KEY}",
        f"Endpoint=sb://c.example;{KEY};c2VjcmV0LWtleQ",
        f"Endpoint=sb://c.example;{KEY};SharedAccessSignature=c2VjcmV0",
        "Endpoint=sb://c.example;SharedAccessKeyName=root;SharedAccessSignature=c2VjcmV0",
    ],
)
def test_what_is_no_connection_string_is_refused_without_being_quoted(text: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_connection_string(text)
    assert "c2VjcmV0" not in str(caught.value)


def test_secrets_do_not_show() -> None:
    assert "c2VjcmV0" not in repr(parse_connection_string(CONTOSO))
    parsed = parse_connection_string("Endpoint=sb://c.example;SharedAccessSignature=hidden-signature")
    assert "hidden-signature" not in f"{parsed}"


@pytest.mark.parametrize(
    ("side", "alias", "expected"),
    [
        (CONTOSO + ";Namespace=blue", "Alias-1", "alias-1"),
        (CONTOSO + ";Namespace=Blue", None, "blue"),
        (CONTOSO, None, "contoso"),
        (f"Endpoint=sb://127.0.0.1:5672;{KEY};UseDevelopmentEmulator=true", None, "127-0-0-1-5672"),
        (f"Endpoint=sb://localhost:5673;{KEY};UseDevelopmentEmulator=true", None, "localhost-5673"),
        (f"Endpoint=sb://[::1]:5672;{KEY}", None, "0000-0000-0000-0000-0000-0000-0000-0001-5672"),
    ],
)
def test_a_primary_is_named_by_the_first_rule_that_applies(
    side: str, alias: str | None, expected: str
) -> None:
    assert primary_name(parse_connection_string(side), alias=alias) == expected


def test_the_name_of_a_namespace_among_the_resources_of_azure_is_that_of_the_same_place() -> None:
    assert endpoint_of("https://contoso.servicebus.windows.net:443/") == endpoint_of(
        "contoso.servicebus.windows.net"
    )
    assert endpoint_of("sb://contoso.example:443").port == 443


def test_a_host_name_or_an_endpoint_names_a_primary_too() -> None:
    assert primary_name("contoso.servicebus.windows.net") == "contoso"
    assert primary_name(Endpoint("10.0.0.7", 5671)) == "10-0-0-7-5671"
    assert primary_name("contoso.servicebus.windows.net", alias="c") == "c"


@pytest.mark.parametrize("alias", ["", " ", "a/b", "-a", "a-", "ä", "a b", "x" * 51])
def test_a_name_that_no_queue_could_have_is_refused(alias: str) -> None:
    with pytest.raises(ConfigurationError, match="primary_name="):
        primary_name("contoso.servicebus.windows.net", alias=alias)


def test_the_first_backlog_queue_of_contoso() -> None:
    assert backlog_queue_name("contoso", 0) == "contoso/x-servicebus-transfer/0"
    assert backlog_queue_names("contoso", 2) == [
        "contoso/x-servicebus-transfer/0",
        "contoso/x-servicebus-transfer/1",
    ]
    with pytest.raises(ValueError, match="counted from 0"):
        backlog_queue_name("contoso", -1)


@given(st.from_regex(r"[a-z0-9]([a-z0-9._-]{0,20}[a-z0-9])?", fullmatch=True), st.integers(0, 10**6))
def test_backlog_queue_names_are_read_back(primary: str, index: int) -> None:
    name = backlog_queue_name(primary, index)
    assert parse_backlog_queue_name(name) == BacklogQueueName(primary, index)
    assert parse_backlog_queue_name(name.upper()) == BacklogQueueName(primary, index)


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "c/x-servicebus-transfer",
        "c/x-servicebus-transfer/",
        "c/x-servicebus-transfer/01",
        "a/b/c/0",
    ],
)
def test_other_queues_are_no_backlog_queues(name: str) -> None:
    assert parse_backlog_queue_name(name) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("sb://Contoso.example", "contoso.example.:5671", True),
        ("localhost:5672", "127.0.0.1:5672", True),
        ("[::1]:5672", "127.0.0.2:5672", True),
        ("[2001:DB8::1]:5671", "[2001:db8:0::1]:5671", True),
        ("127.0.0.1:5672", "127.0.0.1:5673", False),
        ("contoso.example", "contoso-dr.example", False),
    ],
)
def test_one_endpoint_has_many_spellings(one: str, other: str, same: bool) -> None:
    assert is_same_endpoint(endpoint_of(one), endpoint_of(other)) is same


def test_a_pair_of_one_namespace_is_refused() -> None:
    with pytest.raises(SamePairError, match=r"same endpoint, contoso\.example:5671"):
        check_distinct(endpoint_of("contoso.example"), endpoint_of("CONTOSO.example"))
    check_distinct(endpoint_of("contoso.example"), endpoint_of("fabrikam.example"))


def test_paths_are_looked_up_in_one_spelling() -> None:
    assert path_key("/Sales/Orders/") == path_key("sales/orders") == "sales/orders"


@pytest.mark.parametrize(
    "host",
    [
        "contoso..example",
        ".contoso",
        "contoso..",
        f"{'a' * 64}.example",
        "con toso",
        "con\x00toso",
        "..",
        "a\tb",
    ],
)
def test_a_host_that_no_resolver_takes_is_refused(host: str) -> None:
    """It would be taken for an outage, for ever."""
    with pytest.raises(ConfigurationError, match=r"host name|HOST"):
        endpoint_of(host)


@pytest.mark.parametrize("host", ["contoso.example.", "b\u00fccher.x", "127.0.0.1", "[::1]", "localhost"])
def test_other_hosts_are_not(host: str) -> None:
    assert endpoint_of(host).host == host.strip("[].")
