"""What a token is for, and that nothing else is reached with it, whatever a path looks like.

The oracle knows of each path which entity it was made from, so it needs no rule to read one.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker.access.grants import Access, TokenRejected
from pairbus.broker.access.policies import Claim
from pairbus.broker.access.tokens import check_authorization, check_token
from pairbus.broker.admin.api import AdminApi
from pairbus.broker.admin.exchange import HttpRequest
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings
from pairbus.broker.links.address import parse_address
from tests.access.test_tokens import KEY, NOW, POLICIES, make_token
from tests.admin.test_api import entry
from tests.examples import examples

QUEUES = ("q", "q2", "q/evil", "q/evil/deep", "orders.v2", "subscriptions")
TOPICS = ("t", "t2", "t/x", "subscriptions/x")
QUEUE_PARTS = ("", "$deadletterqueue", "$management", "$transfer/$deadletterqueue")
TOPIC_PARTS = (
    "",
    "$management",
    "subscriptions",
    "subscriptions/s",
    "subscriptions/s2",
    "subscriptions/s/$deadletterqueue",
    "subscriptions/s/rules",
    "subscriptions/s/rules/r",
)


class Place(NamedTuple):
    """Something at a path: a part of an entity, the entity itself, or the namespace."""

    entity: str
    part: str

    @property
    def path(self) -> str:
        return f"{self.entity}/{self.part}".strip("/")

    def holds(self, other: Place) -> bool:
        """Whether a token for this place is one for the other."""
        if not self.entity:
            return True
        mine, other_part = self.part.split("/") if self.part else [], other.part.split("/")
        return self.entity == other.entity and other_part[: len(mine)] == mine


NAMESPACE = Place("", "")
places = st.one_of(
    st.builds(Place, st.sampled_from(QUEUES), st.sampled_from(QUEUE_PARTS)),
    st.builds(Place, st.sampled_from(TOPICS), st.sampled_from(TOPIC_PARTS)),
)


@st.composite
def spellings(draw: st.DrawFn, path: str) -> str:
    """A path as some client may write it: in any case, with slashes around it, quoted here and there."""
    choice = draw(st.randoms(use_true_random=False))
    written = ""
    for character in path:
        changed = choice.choice([character, character.upper()])
        written += f"%{ord(changed):02x}" if choice.random() < 0.2 else changed
    return f"{choice.choice(['', '/'])}{written}{choice.choice(['', '/'])}"


def token_for(place: Place, *, name: str = "root", key: str = KEY) -> str:
    return make_token(f"sb://127.0.0.1:5672/{place.path}", name=name, key=key)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(places | st.just(NAMESPACE), st.sets(st.sampled_from(list(Claim)), min_size=1)), max_size=5
    ),
    places,
    st.data(),
)
def test_a_connection_may_do_what_its_newest_tokens_say(
    shown: list[tuple[Place, set[Claim]]], wanted: Place, data: st.DataObject
) -> None:
    access = Access()
    newest: dict[Place, set[Claim]] = {}
    for place, claims in shown:
        grant = check_token(token_for(place), entity=place.path, now=NOW, policies=POLICIES)
        audience = parse_address(data.draw(spellings(place.path))).resource
        lost = access.add(type(grant)(frozenset(claims), grant.expires_at, grant.resource, ""), audience)
        assert lost == (not newest.get(place, set()) <= claims)
        newest[place] = claims
    asked = parse_address(data.draw(spellings(wanted.path))).resource
    for claim in Claim:
        expected = any(claim in claims and place.holds(wanted) for place, claims in newest.items())
        assert access.allows(asked, (claim,), now=NOW) == expected


@settings(max_examples=examples(100))
@given(places | st.just(NAMESPACE), places, st.data())
def test_a_token_is_taken_for_its_own_place_alone(held: Place, wanted: Place, data: st.DataObject) -> None:
    audience = parse_address(data.draw(spellings(wanted.path))).resource
    try:
        check_token(token_for(held), entity=audience, now=NOW, policies=POLICIES)
    except TokenRejected:
        assert not held.holds(wanted)
    else:
        assert held.holds(wanted)


def make_api() -> tuple[AdminApi, Namespace]:
    namespace = Namespace("contoso")
    for name in QUEUES[:2]:
        namespace.create_queue(name, None, NOW)
    for name in TOPICS[:2]:
        namespace.create_topic(name, None, NOW)
        namespace.create_subscription(name, "s", None, NOW)

    def authorize(request: HttpRequest, path: str) -> None:
        check_authorization(request.token, entity=path, now=NOW, policies=POLICIES)

    return AdminApi(namespace, authorize=authorize), namespace


def facts(namespace: Namespace) -> dict[Place, object]:
    """All that administration can change, by place."""
    known: dict[Place, object] = {
        Place(queue.path.lower(), ""): queue.settings for queue in namespace.list_queues()
    }
    for topic in namespace.list_topics():
        known[Place(topic.path.lower(), "")] = topic.settings
        for each in topic.subscriptions:
            known[Place(topic.path.lower(), f"subscriptions/{each.name.lower()}")] = (
                each.settings,
                tuple(each.rules),
            )
    return known


BODIES = {
    0: "<QueueDescription>{}</QueueDescription>",
    2: "<SubscriptionDescription>{}</SubscriptionDescription>",
    4: '<RuleDescription><Filter i:type="TrueFilter"></Filter></RuleDescription>',
}


@settings(max_examples=examples(150))
@given(
    places | st.just(NAMESPACE),
    places.filter(lambda place: "$" not in place.part),
    st.sampled_from(["GET", "PUT", "UPDATE", "DELETE"]),
    st.none() | st.sampled_from(("q2", "t", "q")),
    st.none() | places,
    st.data(),
)
def test_administration_reaches_no_further_than_its_token(
    held: Place, wanted: Place, method: str, target: str | None, supplement: Place | None, data: st.DataObject
) -> None:
    api, namespace = make_api()
    before = facts(namespace)
    forward = "" if target is None else f"<ForwardTo>sb://127.0.0.1/{target}</ForwardTo>"
    segments = len(wanted.part.split("/")) if wanted.part else 0
    headers = {"host": "here:1", "authorization": token_for(held)}
    if supplement is not None:
        headers["servicebussupplementaryauthorization"] = token_for(supplement)
    if method == "UPDATE":
        headers["if-match"] = "*"
    request = HttpRequest(
        "PUT" if method == "UPDATE" else method,
        f"/{data.draw(spellings(wanted.path))}",
        headers=headers,
        body=entry(BODIES.get(segments, BODIES[0]).format(forward)),
    )
    response = api.handle(request, NOW)
    assert (response.status == 401) or held.holds(wanted)
    after = facts(namespace)
    changed = {place for place in {*before, *after} if before.get(place) != after.get(place)}
    assert all(held.holds(place) or wanted.holds(place) for place in changed)
    if not held.holds(wanted):
        assert not changed
    for place in changed:
        new = after.get(place)
        made = new[0] if isinstance(new, tuple) else new
        if isinstance(made, QueueSettings | SubscriptionSettings) and made.forward_to is not None:
            end = Place(made.forward_to, "")
            assert held.holds(end) or (supplement is not None and supplement.holds(end))


@pytest.mark.parametrize(
    ("header", "element"),
    [
        ("servicebussupplementaryauthorization", "ForwardTo"),
        ("servicebusdlqsupplementaryauthorization", "ForwardDeadLetteredMessagesTo"),
    ],
)
@pytest.mark.parametrize("path", ["q", "q3", "t/Subscriptions/s", "t/Subscriptions/new"])
def test_forwarding_needs_a_right_on_the_target(header: str, element: str, path: str) -> None:
    api, namespace = make_api()
    kind = "SubscriptionDescription" if "/" in path else "QueueDescription"
    body = entry(f"<{kind}><{element}>q2</{element}></{kind}>")
    headers = {"host": "here:1", "authorization": token_for(Place(path, ""))}
    if path in ("q", "t/Subscriptions/s"):
        headers["if-match"] = "*"

    def put(**more: str) -> int:
        return api.handle(HttpRequest("PUT", f"/{path}", headers=headers | more, body=body), NOW).status

    assert put() == 401
    other = [
        name
        for name in ("servicebussupplementaryauthorization", "servicebusdlqsupplementaryauthorization")
        if name != header
    ]
    assert put(**{other[0]: token_for(Place("q2", ""))}) == 401
    assert put(**{header: token_for(Place("q", ""))}) == 401
    assert put(**{header: token_for(Place("q2", ""), name="send", key="other-key")}) == 401
    assert put(**{header: token_for(Place("q2", ""))}) in (200, 201)
    headers["if-match"] = "*"
    assert put() == 200, "what was so before needs no right again"
    assert namespace.node(path).settings != QueueSettings()


@pytest.mark.parametrize("name", ["t/Subscriptions/s2", "a/subscriptions", "a/SUBSCRIPTIONS/b/c"])
def test_no_entity_is_named_like_a_part_of_another(name: str) -> None:
    with pytest.raises(Refused, match="Subscriptions"):
        Namespace("contoso").create_queue(name, None, NOW)
