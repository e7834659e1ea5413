"""The API by hand-made requests: what no client sends, and what clients other than Python's need."""

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker.admin.api import AdminApi
from pairbus.broker.admin.errors import Unauthorized
from pairbus.broker.admin.exchange import HttpRequest, Response
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.engine.tiers import PREMIUM
from pairbus.errors import PairbusError
from tests.examples import examples

ATOM = "{http://www.w3.org/2005/Atom}"
SB = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
NOW = 1_700_000_000.0


def entry(description: str) -> bytes:
    """An ATOM entry around a description, in the namespaces that clients use."""
    spaces = f'xmlns="{SB.strip("{}")}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
    described = description.replace("Description>", f"Description {spaces}>", 1)
    return f'<entry xmlns="{ATOM.strip("{}")}"><content>{described}</content></entry>'.encode()


def call(
    api: AdminApi, method: str, target: str, *, body: bytes = b"", headers: dict[str, str] | None = None
) -> Response:
    return api.handle(
        HttpRequest(method, target, headers={"host": "here:1"} | (headers or {}), body=body), NOW
    )


def detail(response: Response) -> str:
    root = ElementTree.fromstring(response.body)
    assert root.tag == "Error"
    assert root.findtext("Code") == str(response.status)
    return root.findtext("Detail") or ""


@pytest.fixture
def api(namespace: Namespace) -> AdminApi:
    return AdminApi(namespace)


def test_creation_answers_201_and_update_200(api: AdminApi) -> None:
    body = entry("<QueueDescription></QueueDescription>")
    assert call(api, "PUT", "/q", body=body).status == 201
    assert call(api, "PUT", "/q", body=body).status == 409
    assert call(api, "PUT", "/q", body=body, headers={"if-match": "*"}).status == 200
    assert call(api, "DELETE", "/q").status == 200
    assert call(api, "DELETE", "/q").status == 404
    assert call(api, "PUT", "/q", body=body, headers={"if-match": "*"}).status == 404


def test_a_queue_that_is_not_there_is_an_empty_feed(api: AdminApi) -> None:
    response = call(api, "GET", "/nobody")
    root = ElementTree.fromstring(response.body)
    assert (response.status, root.tag, root.findall(f"{ATOM}entry")) == (200, f"{ATOM}feed", [])
    assert response.headers["Content-Type"] == "application/atom+xml;type=feed;charset=utf-8"
    assert call(api, "GET", "/nobody/subscriptions/x").status == 404
    assert call(api, "GET", "/nobody/subscriptions").status == 404


def test_an_update_that_leaves_settings_out_resets_them_but_not_the_fixed_ones(
    api: AdminApi, namespace: Namespace
) -> None:
    call(
        api,
        "PUT",
        "/q",
        body=entry(
            "<QueueDescription><LockDuration>PT10S</LockDuration><RequiresSession>true</RequiresSession>"
            "<UserMetadata>x</UserMetadata></QueueDescription>"
        ),
    )
    assert namespace.get_queue("q").settings.lock_duration == 10
    body = entry("<QueueDescription><MaxDeliveryCount>3</MaxDeliveryCount></QueueDescription>")
    assert call(api, "PUT", "/q", body=body, headers={"if-match": "*"}).status == 200
    assert namespace.get_queue("q").settings == QueueSettings(max_delivery_count=3, requires_session=True)


def test_unknown_elements_are_ignored(api: AdminApi, namespace: Namespace) -> None:
    body = entry(
        "<QueueDescription><Novelty><Deep/></Novelty><MessageCount>9</MessageCount><SizeInBytes>x</SizeInBytes>"
        "<MaxDeliveryCount>2</MaxDeliveryCount></QueueDescription>"
    )
    assert call(api, "PUT", "/q", body=body).status == 201
    assert namespace.get_queue("q").settings.max_delivery_count == 2


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "not well-formed"),
        (b"<entry/>", "content"),
        (b"<feed><content/></feed>", "ATOM entry"),
        (b"<entry><content><RuleDescription/></content></entry>", "QueueDescription or TopicDescription"),
        (b'<!DOCTYPE x [<!ENTITY a "b">]><entry/>', "document type"),
        (entry("<QueueDescription><LockDuration>1</LockDuration></QueueDescription>"), "LockDuration"),
        (
            entry("<QueueDescription><RequiresSession>2</RequiresSession></QueueDescription>"),
            "RequiresSession",
        ),
        (
            entry("<QueueDescription><MaxDeliveryCount>x</MaxDeliveryCount></QueueDescription>"),
            "whole number",
        ),
        (entry("<QueueDescription><Status>Gone</Status></QueueDescription>"), "Active, Disabled"),
        (
            entry(
                "<QueueDescription><LockDuration>P10675199DT2H48M5.4775807S</LockDuration></QueueDescription>"
            ),
            "must end",
        ),
    ],
)
def test_bodies_that_describe_no_queue(api: AdminApi, body: bytes, text: str) -> None:
    response = call(api, "PUT", "/q", body=body)
    assert response.status == 400
    assert text in detail(response)
    assert "SubCode=40000" in detail(response)


def test_methods_and_resources_that_do_not_exist(api: AdminApi) -> None:
    response = call(api, "POST", "/q/messages")
    assert response.status == 405
    assert "GET and PUT and DELETE" in detail(response)
    assert call(api, "DELETE", "/$Resources/queues").status == 405
    assert call(api, "GET", "/$Resources/relays").status == 404
    assert call(api, "GET", "/$Resources/queues?$skip=x").status == 400


def test_links_name_the_host_that_was_asked(api: AdminApi, namespace: Namespace) -> None:
    for number in range(3):
        namespace.create_queue(f"q{number}", QueueSettings(), NOW)
    root = ElementTree.fromstring(
        call(api, "GET", "/$Resources/queues?$skip=1&$top=1&api-version=2021-05").body
    )
    links = {each.get("rel"): each.get("href") for each in root.findall(f"{ATOM}link")}
    assert links["next"] == "https://here:1/$Resources/queues?$skip=2&$top=1&api-version=2021-05"
    (only,) = root.findall(f"{ATOM}entry")
    assert only.findtext(f"{ATOM}id") == "https://here:1/q1?api-version=2021-05"
    assert only.findtext(f"{ATOM}title") == "q1"
    last = ElementTree.fromstring(call(api, "GET", "/$Resources/queues?$skip=2&$top=1").body)
    assert [each.get("rel") for each in last.findall(f"{ATOM}link")] == ["self"]


def test_the_javascript_client_takes_names_and_counts_by_prefix(api: AdminApi) -> None:
    call(api, "PUT", "/t", body=entry("<TopicDescription></TopicDescription>"))
    call(api, "PUT", "/t/Subscriptions/s", body=entry("<SubscriptionDescription></SubscriptionDescription>"))
    rules = call(api, "GET", "/t/Subscriptions/s/Rules").body
    assert b"<id>https://here:1/t/Subscriptions/s/Rules/$Default?api-version=2021-05</id>" in rules
    assert b'<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression>' in rules
    assert b'<Action i:type="EmptyRuleAction" />' in rules
    counts = call(api, "GET", "/t/Subscriptions/s").body
    assert (
        b'<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">' in counts
    )
    assert b"<d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount>" in counts


def test_a_subscription_may_be_made_with_a_rule_of_its_own(api: AdminApi, namespace: Namespace) -> None:
    call(api, "PUT", "/t", body=entry("<TopicDescription></TopicDescription>"))
    body = entry(
        "<SubscriptionDescription><DefaultRuleDescription>"
        '<Filter i:type="CorrelationFilter"><Label>x</Label></Filter>'
        '<Action i:type="EmptyRuleAction"/><Name>first</Name>'
        "</DefaultRuleDescription></SubscriptionDescription>"
    )
    assert call(api, "PUT", "/t/Subscriptions/s", body=body).status == 201
    (rule,) = namespace.get_subscription("t", "s").rules
    assert rule.name == "first"


@pytest.mark.parametrize(
    ("description", "text"),
    [
        ('<Filter i:type="Sieve"/>', "no filter of type 'Sieve'"),
        ('<Filter i:type="SqlFilter"/>', "needs a SqlExpression"),
        ('<Action i:type="Dance"/>', "no action of type 'Dance'"),
        ('<Filter i:type="CorrelationFilter"/>', "SubCode=40000"),
    ],
)
def test_rules_that_make_no_sense(api: AdminApi, description: str, text: str) -> None:
    call(api, "PUT", "/t", body=entry("<TopicDescription></TopicDescription>"))
    call(api, "PUT", "/t/Subscriptions/s", body=entry("<SubscriptionDescription></SubscriptionDescription>"))
    response = call(
        api,
        "PUT",
        "/t/Subscriptions/s/Rules/r",
        body=entry(f"<RuleDescription>{description}</RuleDescription>"),
    )
    assert response.status == 400
    assert text in detail(response)


def test_filters_are_counted_since_2024(api: AdminApi) -> None:
    call(api, "PUT", "/t", body=entry("<TopicDescription></TopicDescription>"))
    call(api, "PUT", "/t/Subscriptions/s", body=entry("<SubscriptionDescription></SubscriptionDescription>"))
    body = entry(
        '<RuleDescription><Filter i:type="CorrelationFilter"><Label>x</Label></Filter></RuleDescription>'
    )
    assert call(api, "PUT", "/t/Subscriptions/s/Rules/r", body=body).status == 201
    new = call(api, "GET", "/t?api-version=2024-05").body
    assert b"<SqlFilterCount>1</SqlFilterCount><CorrelationFilterCount>1</CorrelationFilterCount>" in new
    assert b"FilterCount" not in call(api, "GET", "/t?api-version=2021-05").body


def test_a_premium_namespace_says_so() -> None:
    body = call(AdminApi(Namespace("c", limits=PREMIUM)), "GET", "/$namespaceinfo").body
    assert b"<MessagingSKU>Premium</MessagingSKU>" in body
    assert b"<MessagingUnits>1</MessagingUnits>" in body


@pytest.mark.parametrize("error", [Unauthorized("no entry"), PairbusError("no entry")])
def test_what_is_not_authorized_is_401_and_changes_nothing(namespace: Namespace, error: PairbusError) -> None:
    def authorize(request: HttpRequest, path: str) -> None:
        assert path == "q"
        assert request.token == "SharedAccessSignature sr=x"
        raise error

    api = AdminApi(namespace, authorize=authorize)
    body = entry("<QueueDescription></QueueDescription>")
    for header in ("authorization", "servicebusauthorization"):
        response = call(api, "PUT", "/q", body=body, headers={header: "SharedAccessSignature sr=x"})
        assert response.status == 401
        assert "no entry" in detail(response)
    assert namespace.list_queues() == []


def test_tokens_and_bodies_do_not_show_in_a_representation() -> None:
    request = HttpRequest("GET", "/q", headers={"authorization": "Bearer sesame"}, body=b"sesame")
    assert request.token == "sesame"
    assert "sesame" not in repr(request)


def test_a_conflict_has_code_and_detail(api: AdminApi) -> None:
    body = entry("<QueueDescription></QueueDescription>")
    call(api, "PUT", "/q", body=body)
    assert detail(call(api, "PUT", "/q", body=body)).startswith("SubCode=40900. ")


TAGS = st.sampled_from(
    [
        "QueueDescription",
        "TopicDescription",
        "SubscriptionDescription",
        "RuleDescription",
        "DefaultRuleDescription",
        "Filter",
        "Action",
        "Parameters",
        "Properties",
        "KeyValueOfstringanyType",
        "Key",
        "Value",
        "SqlExpression",
        "Label",
        "LockDuration",
        "ForwardTo",
        "AuthorizationRules",
        "AuthorizationRule",
        "Rights",
    ]
)
ATTRIBUTES = st.sampled_from(
    [
        "",
        ' type="SqlFilter"',
        ' type="CorrelationFilter"',
        ' type="SqlRuleAction"',
        ' type="x:int"',
        ' nil="true"',
    ]
)
TEXTS = st.sampled_from(["", "PT1M", "true", "1", "a = 1", "sb://h/q", "é", "&#55;", "P1Y", "x" * 300, "@p"])
DOCUMENTS = st.recursive(
    TEXTS,
    lambda inner: st.tuples(TAGS, ATTRIBUTES, st.lists(inner, max_size=4)).map(
        lambda each: f"<{each[0]}{each[1]}>{''.join(each[2])}</{each[0]}>"
    ),
    max_leaves=12,
)
TARGETS = st.one_of(
    st.sampled_from(
        ["/q", "/t", "/t/subscriptions/s", "/t/subscriptions/s/rules/r", "/$Resources/queues?$top=1"]
    ),
    st.text(max_size=40).map("/".__add__),
    st.text(max_size=40),
)


@settings(max_examples=examples(200))
@given(
    method=st.sampled_from(["GET", "PUT", "DELETE", "POST", "é"]),
    target=TARGETS,
    body=st.one_of(
        st.binary(max_size=200),
        DOCUMENTS.map(lambda text: f"<entry><content>{text}</content></entry>".encode()),
    ),
    update=st.booleans(),
)
def test_no_request_raises(method: str, target: str, body: bytes, update: bool) -> None:
    namespace = Namespace("contoso")
    api = AdminApi(namespace)
    call(api, "PUT", "/t", body=entry("<TopicDescription></TopicDescription>"))
    call(api, "PUT", "/t/Subscriptions/s", body=entry("<SubscriptionDescription></SubscriptionDescription>"))
    call(api, "PUT", "/q", body=entry("<QueueDescription></QueueDescription>"))
    response = call(api, method, target, body=body, headers={"if-match": "*"} if update else {})
    assert 200 <= response.status < 500
    if response.body:
        ElementTree.fromstring(response.body)
