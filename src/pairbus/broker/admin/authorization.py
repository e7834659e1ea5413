"""Authorization rules of single entities: the policies of a queue or topic alone.

To the engine they are a text among the settings of an entity, which a store keeps with the others. Keys that
are left out are made, as Azure does; times that are left out stay so. A rule has two keys, either of which
signs tokens, for its entity and what belongs to that alone.
"""

import json
from functools import lru_cache
from typing import Final

from pairbus.broker.access.policies import Claim, Policy, make_key
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings, TopicSettings
from pairbus.errors import ConfigurationError
from pairbus.plumbing.json_text import parse_json

from .markup import XmlNode, branch, leaf

_HEAD: Final = ("ClaimType", "ClaimValue")
_KEYS: Final = ("PrimaryKey", "SecondaryKey")
_CLAIMS: Final = {claim.value: claim for claim in Claim}
_TAIL: Final = ("CreatedTime", "ModifiedTime", "KeyName", *_KEYS)


def read_authorization(description: XmlNode) -> str:
    """The rules of a description as a text; empty if it has none."""
    given = description.find("AuthorizationRules")
    if given is None or not given.children:
        return ""
    return json.dumps([_read_rule(rule) for rule in given.find_all("AuthorizationRule")])


def describe_authorization(text: str) -> XmlNode:
    """The element for a text that `read_authorization` made."""
    rules = parse_json(text) if text else []
    return branch("AuthorizationRules", [_describe_rule(rule) for rule in rules])


def _read_rule(rule: XmlNode) -> dict[str, str | list[str]]:
    """The known elements alone."""
    rights = rule.find("Rights")
    texts = {name: text for name in (*_HEAD, *_TAIL) if (text := rule.text_of(name)) is not None}
    for key in _KEYS:
        texts.setdefault(key, make_key())
    return {
        **texts,
        "type": rule.attributes.get("type", "SharedAccessAuthorizationRule"),
        "Rights": [] if rights is None else [right.text for right in rights.children],
    }


def _describe_rule(rule: dict[str, str | list[str]]) -> XmlNode:
    """In the order in which .NET reads them."""
    rights = branch("Rights", [leaf("AccessRights", right) for right in rule["Rights"]])
    children = [*_leaves(rule, _HEAD), rights, *_leaves(rule, _TAIL)]
    return branch("AuthorizationRule", children, {"i:type": str(rule["type"])})


def _leaves(rule: dict[str, str | list[str]], names: tuple[str, ...]) -> list[XmlNode]:
    return [leaf(name, str(rule[name])) for name in names if name in rule]


def rules_at(engine: Namespace, path: str) -> tuple[Policy, ...]:
    """The policies that the queue or topic at a path has of its own."""
    try:
        settings = engine.node(path).settings
    except Refused:
        return ()
    if not isinstance(settings, QueueSettings | TopicSettings):
        return ()
    return entity_policies(settings.authorization_rules)


@lru_cache(maxsize=1024)
def entity_policies(text: str) -> tuple[Policy, ...]:
    """The policies that rules make, one a key. What cannot be used as one is passed over."""
    found = []
    for rule in parse_json(text) if text else ():
        claims = frozenset(_CLAIMS[right] for right in rule["Rights"] if right in _CLAIMS)
        for key in (rule.get(name, "") for name in _KEYS):
            try:
                found.append(Policy(rule.get("KeyName", ""), key, claims))
            except ConfigurationError:
                continue
    return tuple(found)
