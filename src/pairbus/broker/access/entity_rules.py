"""Shared access policies of single queues and topics, as administration sets them.

They stand among the settings of an entity as a text, which `admin.authorization` writes. A rule has two keys,
either of which signs tokens, for its entity and what belongs to that alone.
"""

from __future__ import annotations

from functools import lru_cache

from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings, TopicSettings
from pairbus.errors import ConfigurationError
from pairbus.plumbing.json_text import parse_json

from .policies import Claim, Policy

_KEYS = ("PrimaryKey", "SecondaryKey")
_CLAIMS = {claim.value: claim for claim in Claim}


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
