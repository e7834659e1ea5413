"""What a user can say by `option(…)`: one table, by which it is checked on the driver. docs/spark-source.md
says what each of them means.

Options travel with the plan to every executor, so none of them holds a secret: a connection string is given
by the name of an environment variable of the machines that read or write. What is said wrong is refused with
the names of the options, and never with their values, since one may be a connection string in a wrong place.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pairbus import words
from pairbus.errors import ConfigurationError
from pairbus.pairing.names import parse_backlog_queue_name
from pairbus.plumbing.json_text import parse_json
from pairbus.pump.pair import Side

from .columns import COLUMNS, PLAIN_COLUMNS

Use = Literal["read", "stream", "write", "schema"]
_READS: tuple[Use, ...] = ("read", "stream")
_ALL: tuple[Use, ...] = ("read", "stream", "write")
# What Spark itself puts among the options: the argument of `load` and `save`, and those of a stream.
_OF_SPARK = {"path", "paths", "checkpointlocation", "queryname"}
_SECRETS = {"connectionstring", "connection_string", "password", "sharedaccesskey", "key"}
# What every connection string has: one in a wrong place must not come back in an error or a plan.
_CONNECTION_STRING = re.compile(r"SharedAccess(Key|Signature)\s*=|Endpoint\s*=\s*sb:", re.IGNORECASE)
# What the URI of an object store may have behind its question mark, and no option may.
_SECRET_PART = re.compile(r"key|secret|token|sig|password", re.IGNORECASE)
# Thirty years; no clock can wait for what is much longer.
_LONGEST = 1e9
# Sequence numbers are longs.
_MOST = 2**63 - 1
# A message id has 128 characters at most, of which partition and row number need some.
_JOB_ID = re.compile(r"[^/\\\s]{1,80}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What a path ends with whose dead letters are meant.
DEAD = f"/{words.DEAD_LETTER_QUEUE}"


@dataclass(frozen=True, slots=True)
class SourceOption:
    """An option. `parse` gives the value of a text without blanks around it, or raises ValueError."""

    name: str
    uses: tuple[Use, ...]
    default: str | None
    parse: Callable[[str], Any]


def _text(given: str) -> str:
    if not given:
        raise ValueError("is empty")
    return given


def _variable(given: str) -> str:
    if not _VARIABLE.fullmatch(given):
        raise ValueError(
            "is the name of an environment variable that holds a connection string, not a connection string"
        )
    return given


def _job_id(given: str) -> str:
    if not _JOB_ID.fullmatch(given):
        raise ValueError("is a name of at most 80 characters without slashes and blanks")
    return given


def _boolean(given: str) -> bool:
    if given.lower() not in ("true", "false"):
        raise ValueError("is true or false")
    return given.lower() == "true"


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(given: str) -> str:
        if given.lower() not in names:
            raise ValueError(f"is one of {', '.join(names)}")
        return given.lower()

    return parse


def _directory(given: str) -> str:
    """A directory, or a URI. In that Arrow would take credentials, and it stands in plans and logs."""
    place = _text(given)
    if "://" not in place:
        return place
    try:
        parts = urlsplit(place)
        names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    except ValueError:
        raise ValueError("is a directory, or the URI of an object store") from None
    is_user = parts.username is not None and parts.scheme in ("s3", "gs")
    if is_user or parts.password is not None or any(map(_SECRET_PART.search, names)):
        raise ValueError("is a URI without credentials: those are found where the rows are written")
    return place


def _whole(least: int) -> Callable[[str], int]:
    def parse(given: str) -> int:
        if not given.isdecimal() or not least <= int(given) <= _MOST:
            raise ValueError(f"is a whole number of {least} or more, and below 2^63")
        return int(given)

    return parse


def _seconds(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 0 < value <= _LONGEST:
        raise ValueError("is a number of seconds above 0 and up to a thousand million")
    return value


def _entities(given: str) -> tuple[str, ...]:
    names = tuple(name.strip().strip("/") for name in given.split(","))
    if not all(names):
        raise ValueError("names one entity or several, with commas between them")
    return tuple(dict.fromkeys(names))


def _columns(given: str) -> tuple[str, ...]:
    names = tuple(name.strip().lower() for name in given.split(","))
    for name in names:
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f": {', '.join(COLUMNS)}"
            raise ValueError(f"names columns of a message, and {name!r} is none{hint}")
    return tuple(dict.fromkeys(names))


OPTIONS = {
    option.name: option
    for option in (
        SourceOption("connectionStringEnv", _ALL, None, _variable),
        SourceOption("host", _ALL, None, _text),
        SourceOption("credential", _ALL, "default", _text),
        SourceOption("caFile", _ALL, None, _text),
        SourceOption("entity", _ALL, None, _entities),
        SourceOption("deadLetters", ("read",), "no", _one_of("no", "too", "only")),
        SourceOption("columns", _READS, None, _columns),
        SourceOption("envelope", _READS, None, _boolean),
        SourceOption("includeScheduled", _READS, None, _boolean),
        SourceOption("fromSequenceNumber", _READS, "0", _whole(0)),
        SourceOption("maxMessages", ("read",), None, _whole(1)),
        SourceOption("partitions", _READS, "8", _whole(1)),
        SourceOption("maxMessagesPerBatch", ("stream",), None, _whole(1)),
        SourceOption("startingPosition", ("stream",), "earliest", _one_of("earliest", "latest")),
        SourceOption("mode", ("stream",), "peek", _one_of("peek", "consume")),
        SourceOption("pollInterval", ("stream",), "1", _seconds),
        SourceOption("timeout", _ALL, "60", _seconds),
        SourceOption("secondary", ("write",), None, _variable),
        SourceOption("failoverInterval", ("write",), None, _seconds),
        SourceOption("primaryName", ("write",), None, _text),
        SourceOption("errorTable", ("write",), None, _directory),
        SourceOption("jobId", ("write",), None, _job_id),
    )
}
_BY_KEY = {name.lower(): option for name, option in OPTIONS.items()}


class SourceSettings:
    """The options of one use, checked. What is not said has its default."""

    def __init__(self, given: Mapping[str, str], use: Use) -> None:
        self.use = use
        _refuse_secrets(given)
        self._values = {name: _value(option, given, use) for name, option in OPTIONS.items()}
        _refuse_unknown(given)
        if not self._values["entity"] and (named := _argument(given)):
            self._values["entity"] = _value(OPTIONS["entity"], {"entity": named}, use)
        if use != "write" and not self._values["entity"]:
            raise ConfigurationError('Say what to read: .option("entity", "orders") or .load("orders")')
        if use == "stream" and any(name != without_dead(name) for name in self["entity"]):
            raise ConfigurationError(
                "Dead letters keep the numbers that they had, and come in any order: a stream would miss some"
                ". Read them with spark.read"
            )
        if self["mode"] == "consume":
            self._check_consuming()
        if use == "write":
            self._check_writing()
        self.side = self._side()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __repr__(self) -> str:
        return f"<SourceSettings {self.use} of {', '.join(self['entity'] or ())}>"

    def _side(self) -> Side:
        env, host = self["connectionStringEnv"], self["host"]
        # Without TLS nobody would look at it, and miss it on the day of its first use.
        if self["caFile"] is not None and not Path(self["caFile"]).is_file():
            raise ConfigurationError("caFile names no file of this machine; driver and executors need it")
        if bool(env) == bool(host):
            raise ConfigurationError(
                'Say which namespace: .option("connectionStringEnv", "NAME"), the name of an environment '
                'variable that holds the connection string, or .option("host", "NAME.servicebus.windows.net")'
            )
        if env:
            return Side(env=env, ca_file=self["caFile"])
        return Side(host=host, credential=self["credential"], ca_file=self["caFile"])

    def _check_consuming(self) -> None:
        if self["startingPosition"] != "earliest" or self["fromSequenceNumber"]:
            raise ConfigurationError(
                "mode=consume begins with the oldest message: entities are emptied from their head. Leave "
                "out startingPosition and fromSequenceNumber, or read by mode=peek"
            )
        if self["includeScheduled"]:
            raise ConfigurationError(
                "mode=consume cannot remove scheduled messages: leave includeScheduled out"
            )

    def _check_writing(self) -> None:
        if self["errorTable"] is not None and Path(self["errorTable"]).is_file():
            raise ConfigurationError("errorTable names a file, and rows are put into a directory")
        entities = self["entity"] or ()
        if len(entities) > 1 or any("*" in name or "?" in name for name in entities):
            raise ConfigurationError(
                "A write goes to one queue or topic, or, without the option entity, to those that a column "
                "`entity` names"
            )
        for name in ("failoverInterval", "primaryName"):
            if self[name] is not None and self["secondary"] is None:
                raise ConfigurationError(f"{name} means something beside secondary only")
        if self["secondary"] is not None and self["connectionStringEnv"] is None:
            raise ConfigurationError("With secondary, give the primary by connectionStringEnv")

    @property
    def secondary_side(self) -> Side:
        return Side(env=self["secondary"], ca_file=self["caFile"])

    # -- what follows from several of them

    @property
    def is_wrapped(self) -> bool:
        """Whether messages are shown as they were before they were wrapped."""
        if self["envelope"] is not None:
            return bool(self["envelope"])
        asked = self["columns"] or ()
        if any(COLUMNS[name].set_by == "envelope" for name in asked):
            return True
        plain = (without_dead(name).replace("*", "0") for name in self["entity"])
        return all(parse_backlog_queue_name(name) is not None for name in plain)

    @property
    def columns(self) -> tuple[str, ...]:
        return self["columns"] or (tuple(COLUMNS) if self.is_wrapped else PLAIN_COLUMNS)

    @property
    def with_bodies(self) -> bool:
        """Whether a column is made of bodies: else they need not travel."""
        return any(COLUMNS[name].needs_body for name in self.columns)

    @property
    def with_scheduled(self) -> bool:
        return self.use == "read" if self["includeScheduled"] is None else bool(self["includeScheduled"])


def _argument(given: Mapping[str, str]) -> str | None:
    """What `load` or `save` was given; of several, which Spark hands on as JSON, with commas between them."""
    return ",".join(parse_json(given["paths"])) if "paths" in given else given.get("path")


def without_dead(name: str) -> str:
    """The path whose dead letters a name means, or the name itself."""
    return name[: -len(DEAD)] if name.lower().endswith(DEAD.lower()) else name


def _value(option: SourceOption, given: Mapping[str, str], use: Use) -> Any:
    text = given.get(option.name)
    if text is None:
        text = option.default if use in (*option.uses, "schema") else None
    if text is None:
        return None
    if use not in (*option.uses, "schema"):
        raise ConfigurationError(f"The option {option.name} is not for a {_WORDS[use]}")
    try:
        return option.parse(text.strip())
    except ValueError as error:
        raise ConfigurationError(f"The option {option.name} {error}") from None


# Spark asks for the schema before it says whether a batch or a stream is to be read.
_WORDS: dict[Use, str] = {
    "read": "batch read",
    "stream": "stream read",
    "write": "write",
    "schema": "read",
}


def _refuse_secrets(given: Mapping[str, str]) -> None:
    for name, value in given.items():
        if name.lower() in _SECRETS or _CONNECTION_STRING.search(value):
            raise ConfigurationError(
                "A connection string is not taken as an option, since options are seen in plans and logs. "
                'Put it into an environment variable and name that: .option("connectionStringEnv", "NAME")'
            )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    for name in given:
        key = name.lower()
        if key not in _BY_KEY and key not in _OF_SPARK:
            near = difflib.get_close_matches(key, _BY_KEY, n=1)
            hint = f"; did you mean {_BY_KEY[near[0]].name}?" if near else ""
            raise ConfigurationError(f"There is no option {name}{hint}")
