"""Authorization rules of single entities: kept and given back as they came.

They are a record, not a lock: tokens are checked against the policies of the namespace alone. Azure fills in
keys and times that were left out; here they stay out. The engine has no use for them: to it they are a text
among the settings of an entity, which a store keeps with the others.
"""

from __future__ import annotations

import json
from typing import Final

from pairbus.plumbing.json_text import parse_json

from .markup import XmlNode, branch, leaf

_HEAD: Final = ("ClaimType", "ClaimValue")
_TAIL: Final = ("CreatedTime", "ModifiedTime", "KeyName", "PrimaryKey", "SecondaryKey")


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
