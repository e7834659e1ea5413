"""Shared access signatures, headers and SASL PLAIN: what passes, and that all else is a rejection."""

import base64
import contextlib
import hashlib
import hmac
import math
import pickle
import time
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.core.pipeline.transport import HttpTransport
from azure.servicebus.management import ServiceBusAdministrationClient
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker.access.grants import Grant, TokenRejected, resource_path
from pairbus.broker.access.policies import ALL_CLAIMS, Claim, Policies, Policy, connection_string
from pairbus.broker.access.tokens import check_authorization, check_plain, check_token
from pairbus.broker.admin.exchange import HttpRequest
from pairbus.conditions import UNAUTHORIZED
from tests.examples import examples

NOW = 1_700_000_000.0
KEY = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0PT0="
POLICIES = Policies(
    [
        Policy("root", KEY, ALL_CLAIMS),
        Policy("send", "other-key", frozenset({Claim.SEND})),
        Policy("listen", "third-key", frozenset({Claim.LISTEN})),
    ]
)


def make_token(
    resource: str = "sb://127.0.0.1:5672/orders",
    *,
    name: str = "root",
    key: str = KEY,
    expires_at: float = NOW + 3600,
    lower_case: bool = False,
) -> str:
    """Make a token as the service's documentation describes it."""
    quoted = quote_plus(resource)
    if lower_case:
        # Older .NET clients quote with small letters.
        quoted = quoted.replace("%2F", "%2f").replace("%3A", "%3a")
    expiry = str(int(expires_at))
    signature = hmac.new(key.encode(), f"{quoted}\n{expiry}".encode(), hashlib.sha256).digest()
    sig = quote(base64.b64encode(signature), safe="")
    return f"SharedAccessSignature sr={quoted}&sig={sig}&se={expiry}&skn={name}"


def check(token: object, entity: str = "orders", *, now: float = NOW) -> Grant:
    return check_token(token, entity=entity, now=now, policies=POLICIES)


def allows(grant: Grant, claim: Claim, path: str, *, now: float) -> bool:
    return claim in grant.claims and now < grant.expires_at and grant.covers(path)


def rejection(token: object, entity: str = "orders", *, now: float = NOW) -> TokenRejected:
    with pytest.raises(TokenRejected) as caught:
        check(token, entity, now=now)
    assert caught.value.status == 401
    assert caught.value.condition == UNAUTHORIZED
    assert KEY not in str(caught.value)
    return caught.value


def test_a_good_token_gives_its_policys_claims_until_its_end() -> None:
    grant = check(make_token())
    assert grant == Grant(ALL_CLAIMS, NOW + 3600, "orders", "root")
    assert check(make_token(name="send", key="other-key")).claims == {Claim.SEND}
    assert allows(grant, Claim.SEND, "orders", now=NOW)
    assert not allows(grant, Claim.SEND, "orders", now=NOW + 3600)
    assert not allows(grant, Claim.SEND, "invoices", now=NOW)
    assert not allows(check(make_token(name="send", key="other-key")), Claim.LISTEN, "orders", now=NOW)


@pytest.mark.parametrize(
    "resource",
    [
        "sb://127.0.0.1:5672/orders",
        "sb://localhost/orders/",
        "amqps://anything.example/ORDERS",
        "https://127.0.0.1:5672",
        "https://127.0.0.1:5672/",
        "http://contoso.servicebus.windows.net/orders",
        "contoso.servicebus.windows.net/orders",
        "contoso.servicebus.windows.net",
        "127.0.0.1:5672/orders",
        "[::1]:5672/orders",
        "myhost:5672",
        "orders",
        "sb://127.0.0.1:5672/orders?api-version=1",
    ],
)
@pytest.mark.parametrize("lower_case", [False, True])
def test_resources_that_cover_orders(resource: str, lower_case: bool) -> None:
    token = make_token(resource, lower_case=lower_case)
    for entity in ("orders", "Orders/$DeadLetterQueue", "orders/$management", "/orders/"):
        assert check(token, entity).subject == "root"


@pytest.mark.parametrize(
    "resource",
    [
        "sb://127.0.0.1:5672/order",
        "sb://127.0.0.1:5672/orders2",
        "sb://127.0.0.1:5672/orders/subscriptions/s",
        "sb://127.0.0.1:5672/x/orders",
        "sb:orders",
        "orders.v2",
        "mydomain.example",
    ],
)
def test_resources_that_do_not(resource: str) -> None:
    assert "InvalidAudience" in rejection(make_token(resource)).description


def test_a_token_for_a_subscription_covers_it_alone() -> None:
    token = make_token("sb://h/t/Subscriptions/S")
    assert check(token, "t/subscriptions/s/$DeadLetterQueue")
    rejection(token, "t")
    rejection(token, "t/Subscriptions/s2")
    rejection(token, "")


def test_only_a_token_for_the_namespace_covers_the_namespace() -> None:
    assert check(make_token("sb://h/"), "").resource == ""
    rejection(make_token("sb://h/orders"), "")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sb://h:1/A/b/", "a/b"),
        ("sb://h", ""),
        ("", ""),
        ("orders", "orders"),
        ("orders/sub", "orders/sub"),
        ("a.b/c", "a.b/c"),
        ("127.0.0.1:5672/c", "c"),
        ("[::1]/c", "c"),
        # These may be names of queues.
        ("2024", "2024"),
        ("2024/orders", "2024/orders"),
        ("localhost", "localhost"),
        # No queue can be called that.
        ("x.servicebus.windows.net/c", "c"),
        ("host:99/c", "c"),
        ("sb://user@h:1/c#x", "c"),
    ],
)
def test_resource_path(uri: str, path: str) -> None:
    assert resource_path(uri) == path


def test_expiry() -> None:
    assert check(make_token(expires_at=NOW + 1))
    assert "ExpiredToken" in rejection(make_token(expires_at=NOW)).description
    assert "ExpiredToken" in rejection(make_token(expires_at=NOW - 5)).description
    assert "ExpiredToken" in rejection(make_token(), now=NOW + 4000).description


def test_wrong_key_and_unknown_policy_look_the_same() -> None:
    wrong = rejection(make_token(key="wrong"))
    unknown = rejection(make_token(name="nobody"))
    assert wrong.description == unknown.description
    assert "InvalidSignature" in wrong.description
    rejection(make_token(name="send"))
    rejection(make_token(name="Root"))


@pytest.mark.parametrize("field", ["sr", "sig", "se", "skn"])
def test_every_field_is_signed_and_needed(field: str) -> None:
    scheme, _, rest = make_token().partition(" ")
    parts = [part.partition("=") for part in rest.split("&")]
    without = "&".join(f"{name}={value}" for name, _, value in parts if name != field)
    assert f"'{field}'" in rejection(f"{scheme} {without}").description
    empty = "&".join(f"{name}={'' if name == field else value}" for name, _, value in parts)
    assert f"'{field}'" in rejection(f"{scheme} {empty}").description
    changed = "&".join(f"{name}={value}{'1' if name == field else ''}" for name, _, value in parts)
    rejection(f"{scheme} {changed}")
    twice = f"{rest}&{field.upper()}=x"
    assert "twice" in rejection(f"{scheme} {twice}").description


def test_order_case_and_unknown_fields_do_not_matter() -> None:
    rest = make_token().partition(" ")[2]
    turned = "&".join(reversed(rest.split("&"))).replace("sr=", "SR=")
    assert check(f"sharedaccesssignature {turned}&future=1") == check(make_token())


@pytest.mark.parametrize(
    "token",
    [
        None,
        5,
        b"SharedAccessSignature sr=a&sig=b&se=1&skn=c",
        "",
        " ",
        "SharedAccessSignature",
        "SharedAccessSignature ",
        "SharedAccessSignature a",
        "SharedAccessSignature &&&&",
        "SharedAccessSignature sr=%zz&sig=%&se=1&skn=%",
        "SharedAccessSignature sr=a&sig=b&se=-1&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=1e9&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=9999999999999&skn=c",
        "SharedAccessSignature sr=a&sig=ü&se=1&skn=c",
        "SharedAccessSignature sr=\ud800&sig=b&se=1&skn=c",
        "Bearer abc",
        "a.b.c",
        make_token() + "&x=" + "y" * 20_000,
    ],
)
def test_malformed_tokens(token: object) -> None:
    assert rejection(token).description


def test_without_a_key_no_web_token_counts() -> None:
    assert "signatures only" in rejection("eyJhbGciOiJub25lIn0.e30.").description


class Wiretap(HttpTransport[Any, Any]):
    """Keeps the headers of the request that the SDK would send, and sends nothing."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}

    def send(self, request: Any, **_: Any) -> Any:
        self.headers = dict(request.headers)
        raise ServiceRequestError("this is as far as it goes")

    def open(self) -> None: ...

    def close(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def token_of(headers: dict[str, str]) -> str | None:
    """The token of a request, whose headers come with names in lower case."""
    return HttpRequest("GET", "/", headers={name.lower(): value for name, value in headers.items()}).token


def test_a_token_of_the_official_sdk_passes() -> None:
    wiretap = Wiretap()
    text = connection_string("127.0.0.1", 5672, namespace="contoso", policy=POLICIES["root"])
    client = ServiceBusAdministrationClient.from_connection_string(text, transport=wiretap, retry_total=0)
    with pytest.raises(ServiceRequestError):
        client.get_queue("orders")
    before = time.time()
    token = token_of(wiretap.headers)
    grant = check_authorization(token, entity="orders", now=before, policies=POLICIES)
    assert grant.subject == "root"
    assert grant.resource == ""
    assert 3500 < grant.expires_at - before < 3700
    with pytest.raises(TokenRejected, match="ExpiredToken"):
        check_authorization(token, entity="orders", now=grant.expires_at, policies=POLICIES)


# -- HTTP


def authorize(headers: dict[str, str], *, entity: str = "orders") -> Grant:
    return check_authorization(token_of(headers), entity=entity, now=NOW, policies=POLICIES)


@pytest.mark.parametrize("name", ["Authorization", "authorization", "ServiceBusAuthorization"])
@pytest.mark.parametrize("prefix", ["", "Bearer ", "bearer  "])
def test_headers(name: str, prefix: str) -> None:
    assert authorize({"x": "y", name: prefix + make_token("https://127.0.0.1:5672")}).subject == "root"


def test_a_request_needs_the_claim() -> None:
    header = {"Authorization": make_token(name="send", key="other-key")}
    with pytest.raises(TokenRejected, match="Manage"):
        authorize(header)


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": ""}, {"Authorization": "Basic cm9vdDpyb290"}, {"x": "y"}]
)
def test_requests_without_a_token(headers: dict[str, str]) -> None:
    with pytest.raises(TokenRejected) as caught:
        authorize(headers)
    assert caught.value.status == 401


# -- SASL PLAIN


def test_plain_gives_the_policys_claims_for_ever() -> None:
    grant = check_plain(b"\0send\0other-key", policies=POLICIES)
    assert grant == Grant(frozenset({Claim.SEND}), math.inf, "", "send")
    assert allows(grant, Claim.SEND, "anything", now=1e12)
    assert check_plain(memoryview(b"ignored\0root\0" + KEY.encode()), policies=POLICIES).claims == ALL_CLAIMS


@pytest.mark.parametrize(
    "response",
    [
        None,
        "\0send\0other-key",
        b"",
        b"send\0other-key",
        b"\0send\0other-key\0",
        b"\0send\0wrong",
        b"\0send\0",
        b"\0\0",
        b"\0nobody\0other-key",
        b"\0\xff\xfe\0\xff",
        b"\0send\0" + b"x" * 2000,
    ],
)
def test_plain_refuses(response: object) -> None:
    with pytest.raises(TokenRejected) as caught:
        check_plain(response, policies=POLICIES)
    assert "other-key" not in str(caught.value)


# -- whatever comes

token_pieces = st.sampled_from(
    [
        "SharedAccessSignature ",
        "Bearer ",
        "sr=",
        "sig=",
        "se=",
        "skn=",
        "&",
        "=",
        "%",
        "%2",
        "root",
        "1",
        "sb://h/",
    ]
)
strange_texts = st.lists(token_pieces | st.text(max_size=5), max_size=12).map("".join)


@settings(max_examples=examples(200))
@given(strange_texts | st.binary(max_size=40) | st.none() | st.integers(), st.text(max_size=10))
def test_nothing_but_a_rejection_is_raised(token: object, entity: str) -> None:
    with pytest.raises(TokenRejected):
        check_token(token, entity=entity, now=NOW, policies=POLICIES)
    if isinstance(token, str):
        with pytest.raises(TokenRejected):
            authorize({"Authorization": token}, entity=entity)
    with contextlib.suppress(TokenRejected):
        check_plain(token, policies=POLICIES)


@settings(max_examples=examples(100))
@given(st.data())
def test_no_changed_token_passes(data: st.DataObject) -> None:
    token = make_token()
    position = data.draw(st.integers(len("SharedAccessSignature "), len(token) - 1))
    replacement = data.draw(st.characters(min_codepoint=33, max_codepoint=126))
    changed = token[:position] + replacement + token[position + 1 :]
    # The names of fields are of any case, and so are the digits of a quoted signature.
    if changed.lower() != token.lower():
        with pytest.raises(TokenRejected):
            check(changed)


def test_a_rejection_survives_pickle() -> None:
    error = rejection("x")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), back.status, back.condition, back.description) == (
        TokenRejected,
        401,
        error.condition,
        error.description,
    )
