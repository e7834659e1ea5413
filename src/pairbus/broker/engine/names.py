"""Names of entities: which are good, and how paths are compared.

Paths are compared without regard to case, and keep the spelling that they were created with. A queue or
topic may have slashes in its name, but not the word that stands before the name of a subscription.
"""

import re
from urllib.parse import unquote

from .errors import bad_argument
from .settings import NamespaceLimits

_PATH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._~/-]*[A-Za-z0-9_])?")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
# Stands between the path of a topic and the name of a subscription.
SEGMENT = "Subscriptions"
_SEPARATOR = SEGMENT.lower()
_AZURE = ".servicebus.windows.net"
_RULE_NAME = re.compile(r"[^/\\?#@*\x00-\x1f\ud800-\udfff]+")


def fold(path: str) -> str:
    """The form in which paths are compared."""
    return path.strip("/").lower()


def entity_path(raw: str) -> str:
    """The path of a URI or of a bare path, without scheme, host, port and outer slashes."""
    if "://" in raw:
        raw = raw.partition("://")[2].partition("/")[2]
    return unquote(raw).strip("/")


def entity_of(path: str) -> str:
    """The queue or topic that a folded path belongs to; empty for the namespace's own nodes (`$cbs`)."""
    segments = path.split("/")
    for index, segment in enumerate(segments):
        if segment.startswith("$") or (index and segment == _SEPARATOR):
            return "/".join(segments[:index])
    return path


def check_path(path: str, limits: NamespaceLimits) -> None:
    """Raise Refused unless this can be the name of a queue or topic."""
    if len(path) > limits.max_path:
        raise bad_argument(
            f"The entity path is {len(path)} characters long; it may have {limits.max_path} at most."
        )
    if not _PATH.fullmatch(path) or "//" in path or entity_of(fold(path)) != fold(path):
        raise bad_argument(
            f"The entity path {path!r} is not valid. It may have letters, digits, periods, hyphens, "
            "underscores and single slashes, must start and end with a letter or digit, and has no "
            f"'/{SEGMENT}/' in it, which would make it that of a subscription."
        )
    if fold(path).split("/", 1)[0].endswith(_AZURE):
        raise bad_argument(
            f"The entity path {path!r} begins like the host name of a namespace: a token for it would be "
            "read as one for that namespace. Choose another."
        )


def check_subscription_name(name: str, limits: NamespaceLimits) -> None:
    """Raise Refused unless this can be the name of a subscription."""
    if len(name) > limits.max_subscription_name or not _NAME.fullmatch(name):
        raise bad_argument(
            f"The subscription name {name!r} is not valid. It may have up to {limits.max_subscription_name} "
            "letters, digits, periods, hyphens and underscores, starting and ending with a letter or digit."
        )


def check_rule_name(name: str, limits: NamespaceLimits) -> None:
    """Raise Refused unless this can be the name of a rule."""
    if len(name) > limits.max_rule_name or not _RULE_NAME.fullmatch(name):
        raise bad_argument(
            f"The rule name {name!r} is not valid. It may have up to {limits.max_rule_name} characters, and "
            "none of / \\ ? # @ *."
        )
