"""What a request's target names: an entity, a list of them, or the namespace."""

import re
from dataclasses import dataclass, replace
from enum import Enum
from urllib.parse import parse_qsl, unquote

from pairbus.broker.engine.names import SEGMENT

from .errors import AdminRefused
from .exchange import split_target

# Azure gives at most a hundred entries a page, whatever was asked for.
MAX_PAGE = 100

# Names of queues and topics may contain slashes, so the fixed words are looked for from the end.
_NESTED = re.compile(
    r"(?P<topic>.+?)/subscriptions(?:/(?P<subscription>[^/]+)(?P<rules>/rules(?:/(?P<rule>[^/]+))?)?)?",
    re.IGNORECASE,
)


class ResourceKind(Enum):
    """The resources that the API knows."""

    ROOT = "root"
    NAMESPACE = "namespace"
    QUEUES = "queues"
    TOPICS = "topics"
    ENTITY = "entity"
    SUBSCRIPTIONS = "subscriptions"
    SUBSCRIPTION = "subscription"
    RULES = "rules"
    RULE = "rule"


@dataclass(frozen=True, kw_only=True)
class ResourceAddress:
    """A resource, with the query that came along: `skip` and `top` say which part of a list is wanted."""

    kind: ResourceKind
    entity: str = ""
    subscription: str = ""
    rule: str = ""
    skip: int = 0
    top: int = MAX_PAGE
    api_version: str | None = None

    @property
    def path(self) -> str:
        """The path that a token must cover: of the resource itself, or its address if it has no entity."""
        if not self.entity:
            return _FIXED[self.kind]
        if self.kind is ResourceKind.ENTITY:
            return self.entity
        parts = [self.entity, SEGMENT, self.subscription]
        if self.kind in (ResourceKind.RULES, ResourceKind.RULE):
            parts += ["Rules", self.rule]
        return "/".join(part for part in parts if part)


_FIXED = {
    ResourceKind.ROOT: "",
    ResourceKind.NAMESPACE: "$namespaceinfo",
    ResourceKind.QUEUES: "$Resources/queues",
    ResourceKind.TOPICS: "$Resources/topics",
}


def parse_address(target: str) -> ResourceAddress:
    """Raises `AdminRefused`: 404 on an unknown system resource, 400 on a query that makes no sense."""
    path, query_text = split_target(target)
    query = _parse_query(query_text)
    return replace(
        _place(path),
        skip=_number(query, "$skip", 0),
        top=min(_number(query, "$top", MAX_PAGE), MAX_PAGE),
        api_version=query.get("api-version"),
    )


def _place(path: str) -> ResourceAddress:
    fixed = {address.lower(): kind for kind, address in _FIXED.items()}
    kind = fixed.get(unquote(path).lower())
    if kind is not None:
        return ResourceAddress(kind=kind)
    if path.startswith("$"):
        raise AdminRefused(
            404,
            f"There is no resource '{unquote(path)}'; lists are at $Resources/queues and $Resources/topics.",
        )
    nested = _NESTED.fullmatch(path)
    if nested is None:
        return ResourceAddress(kind=ResourceKind.ENTITY, entity=unquote(path))
    topic, subscription, rule = (unquote(nested[name] or "") for name in ("topic", "subscription", "rule"))
    return ResourceAddress(kind=_nested_kind(nested), entity=topic, subscription=subscription, rule=rule)


def _nested_kind(match: re.Match[str]) -> ResourceKind:
    if match["rule"]:
        return ResourceKind.RULE
    if match["rules"]:
        return ResourceKind.RULES
    return ResourceKind.SUBSCRIPTION if match["subscription"] else ResourceKind.SUBSCRIPTIONS


def _parse_query(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise AdminRefused(
            400, "The query has too many parameters; $skip, $top and api-version are known."
        ) from error
    return {name.lower(): value for name, value in pairs}


def _number(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not re.fullmatch("[0-9]{1,9}", text):
        raise AdminRefused(400, f"{name} must be a whole number of at least 0, not '{text}'.")
    return int(text)
