"""Names: connection strings, the name of a primary, its backlog queues, and when two endpoints are one.

Client, syphon and command line must agree on the names of the backlog queues to the letter, or messages wait
where nobody looks. Hence one function, `primary_name`, and no other place that forms these names. Its
rules, in this order:

1. a given alias;
2. the field `Namespace=` of the connection string, which embedded namespaces write into theirs;
3. the first label of the host name: `contoso.servicebus.windows.net` is `contoso`;
4. for an IP address or `localhost`, host and port joined by dashes: `127-0-0-1-5672`. A dot or a colon
   of the address becomes a dash as well, so that the result is one label like any namespace's.

Names are lower-cased, since host names and paths are case-insensitive.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from pairbus.errors import ConfigurationError
from pairbus.plumbing.hosts import is_loopback, numeric_address

from .errors import SamePairError

#: The segment between the primary's name and the index, as the original feature has it.
TRANSFER_SEGMENT = "x-servicebus-transfer"
#: What the queue of the syphon's lease is called, behind the primary's name.
LEASE_SEGMENT = "x-pairbus-syphon"

# AMQP over TLS, and without it for embedded namespaces and emulators.
_TLS_PORT = 5671
_PLAIN_PORT = 5672
# The service's limit for the name of a namespace.
_NAME_LIMIT = 50
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
_BACKLOG_QUEUE = re.compile(rf"(?P<primary>[^/]+)/{TRANSFER_SEGMENT}/(?P<index>0|[1-9][0-9]*)", re.IGNORECASE)


class Endpoint(NamedTuple):
    """Where a namespace listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def administration(self) -> str:
        """Where its administration is asked: at the port of https, unless a port is named, which has all."""
        return self.host if self.port == _TLS_PORT else str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionString:
    """The fields of a connection string that matter to us. Key and signature never show in the repr."""

    endpoint: Endpoint
    #: All of it as the SDK takes it: there no field has spaces around it, and the endpoint has a scheme.
    text: str = field(repr=False)
    namespace: str | None = None
    entity_path: str | None = None
    key_name: str | None = None
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)
    emulator: bool = False


@dataclass(frozen=True, slots=True)
class BacklogQueueName:
    """The parts of a backlog queue's name."""

    primary: str
    index: int


def parse_connection_string(text: str) -> ConnectionString:
    """Read `Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…`; errors never quote the text."""
    if not text:  # None too, from a variable that is not set
        raise ConfigurationError("There is no connection string: is the variable set that should hold it?")
    values = _split_fields(text)
    emulator = values.get("usedevelopmentemulator", "") == "true"
    address = values.pop("hostname", None) or values.get("endpoint")
    if not address:
        raise ConfigurationError(
            "The connection string has no Endpoint= field; copy it whole from the portal"
        )
    values["endpoint"] = address if "//" in address else f"sb://{address}"
    name, key = values.get("sharedaccesskeyname"), values.get("sharedaccesskey")
    signature = values.get("sharedaccesssignature")
    if not signature and not (key and name):
        raise ConfigurationError(
            "The connection string has neither SharedAccessKeyName= with SharedAccessKey= nor "
            "SharedAccessSignature=; to sign in with a credential, give the host name instead"
        )
    if signature and (key or name):
        raise ConfigurationError(
            "The connection string has SharedAccessSignature=, and a key besides; leave one of them out"
        )
    return ConnectionString(
        endpoint=endpoint_of(address, emulator=emulator),
        text=";".join(f"{field}={value}" for field, value in values.items()),
        namespace=values.get("namespace") or None,
        entity_path=values.get("entitypath") or None,
        key_name=name or None,
        key=key or None,
        signature=signature or None,
        emulator=emulator,
    )


def _split_fields(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for number, part in enumerate(text.strip().strip(";").split(";"), start=1):
        name, equals, value = part.partition("=")
        name = name.strip().lower()
        # The text may hold a key, so the message counts fields and quotes none.
        if not equals or not name:
            raise ConfigurationError(
                f"Field {number} of the connection string is not of the form Name=Value; copy it whole from "
                "the portal"
            )
        if name in values:
            raise ConfigurationError(f"Field {number} of the connection string repeats an earlier one")
        values[name] = value.strip()
    return values


def endpoint_of(address: str, *, emulator: bool = False) -> Endpoint:
    """The endpoint of `sb://host:port/`, `host:port` or `host`."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.username is not None or parts.path.strip("/") or not address.isprintable():
        raise ConfigurationError(
            "The endpoint must be sb://HOST or sb://HOST:PORT, or the host name alone, such as "
            "contoso.servicebus.windows.net"
        )
    if (parts.scheme, port) == ("https", 443):  # so Azure's resource manager names a namespace
        port = None
    return Endpoint(check_host(host), port or (_PLAIN_PORT if emulator else _TLS_PORT))


def check_host(host: str) -> str:
    """The host as it is looked for; one that no resolver takes is a mistake, and no outage."""
    host = host.removesuffix(".").lower()
    try:
        is_one = bool(host.encode("idna")) and host.isprintable() and " " not in host and host[-1] != "."
    except UnicodeError:
        is_one = False
    if not is_one:
        raise ConfigurationError(
            f"{host!r} is no host name: each of its labels, between the dots, has 1 to 63 characters"
        )
    return host


def primary_name(side: ConnectionString | Endpoint | str, *, alias: str | None = None) -> str:
    """The name of a primary, first part of its backlog queues' names. A string is taken for a host name."""
    if alias is not None:
        return _checked_name(alias, "The name given for the primary")
    if isinstance(side, ConnectionString):
        if side.namespace is not None:
            return _checked_name(side.namespace, "The Namespace= field of the connection string")
        side = side.endpoint
    endpoint = endpoint_of(side) if isinstance(side, str) else side
    address = numeric_address(endpoint.host)
    if address is not None:
        # Written out in full, an IPv6 address starts with a digit or letter, as entity names must.
        return f"{re.sub('[.:]', '-', address.exploded)}-{endpoint.port}"
    if endpoint.host == "localhost":
        return f"localhost-{endpoint.port}"
    return _checked_name(endpoint.host.partition(".")[0], "The first label of the host name")


def _checked_name(name: str, what: str) -> str:
    lowered = name.strip().lower()
    if len(lowered) > _NAME_LIMIT or not _NAME.fullmatch(lowered):
        # What is longer than any name may be a connection string in the wrong place.
        shown = repr(name) if len(name) <= _NAME_LIMIT else f"{len(name)} characters"
        raise ConfigurationError(
            f"{what} cannot begin the name of a backlog queue: {shown}. Use 1 to {_NAME_LIMIT} letters, "
            "digits, dots, dashes or underscores, with a letter or digit at both ends; primary_name= sets "
            "another one"
        )
    return lowered


def backlog_queue_name(primary: str, index: int) -> str:
    """`contoso/x-servicebus-transfer/0`; `primary` is what `primary_name` returned."""
    if index < 0:
        raise ValueError(f"backlog queues are counted from 0, not {index}")
    return f"{primary}/{TRANSFER_SEGMENT}/{index}"


def backlog_queue_names(primary: str, count: int) -> list[str]:
    """The names of the backlog queues below `count`, in order."""
    return [backlog_queue_name(primary, index) for index in range(count)]


def lease_queue_name(primary: str) -> str:
    """`contoso/x-pairbus-syphon`: a session of it is what a syphon holds while it works on the pair."""
    return f"{primary}/{LEASE_SEGMENT}"


def parse_backlog_queue_name(name: str) -> BacklogQueueName | None:
    """The parts of a backlog queue's name, or None for any other entity's."""
    match = _BACKLOG_QUEUE.fullmatch(name.strip("/"))
    return BacklogQueueName(match["primary"].lower(), int(match["index"])) if match else None


def is_same_endpoint(one: Endpoint, other: Endpoint) -> bool:
    """Whether two endpoints are the same host and port; the names of the loopback are one host."""
    return one.port == other.port and _host_key(one.host) == _host_key(other.host)


def _host_key(host: str) -> str:
    if is_loopback(host):
        return "localhost"
    address = numeric_address(host)
    return str(address) if address is not None else host.rstrip(".").lower()


def check_distinct(primary: Endpoint, secondary: Endpoint) -> None:
    """Refuse a pair whose sides are one namespace: an outage would take both."""
    if is_same_endpoint(primary, secondary):
        raise SamePairError(
            f"Primary and secondary are the same endpoint, {primary}. A pair needs two namespaces, best in "
            "two regions; give the other one's connection string or host name"
        )


def id_text(message_id: object) -> str:
    """A message id as records name it. AMQP knows ids of text, of bytes, numbers and UUIDs; client and pump
    must write the same, or what one has redirected is missing for the other.
    """
    if message_id is None:
        return ""
    if isinstance(message_id, bytes):
        return message_id.decode("utf-8", "backslashreplace")
    return str(message_id)


def check_text(text: str) -> str:
    """Refuse what no message, file or page can carry: bytes that are no text, or half of a character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigurationError(f"{text!a} is not valid text: write it in UTF-8") from None
    return text


def path_key(path: str) -> str:
    """The form of an entity's path under which it is looked up: paths are case-insensitive."""
    return path.strip("/").lower()
