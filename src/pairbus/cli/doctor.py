"""`pairbus doctor`: what this machine has and reaches, in one table, with what to do about what is amiss.

It is what a person pastes into a report, so that it shows no key and no connection string. Without a pair it
looks at the machine alone. It changes nothing: whether a directory can be written to is asked with a file
that has no name.
"""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from pairbus import __version__
from pairbus.errors import ConfigurationError
from pairbus.plumbing.hosts import os_reason
from pairbus.plumbing.wording import counted

from .complaints import EXTRAS, distribution_of, in_a_line
from .config_review import find_trouble
from .exit_codes import FOUND, UNREACHABLE, USAGE
from .group import examples
from .pairs import PairChoice, PairSettings, SideAddress, pair_options
from .progress import working
from .tables import coloured, draw_table, json_option, tell

if TYPE_CHECKING:
    from pairbus.pairing.names import Endpoint
    from pairbus.stores.places import RecordPlace


# What Pairbus cannot do without.
_NEEDED = ("azure-servicebus", "azure-core", "aiohttp")
# A connection takes two, and a Spark driver with its executors some hundreds.
_FEWEST_DESCRIPTORS = 1024
_LEAST_FREE = 1 << 30
# For a connection, a handshake, an answer: each.
_DEADLINE = 5.0
# A token is refused whose time is minutes off; whoever is off by this much should know.
_MOST_SKEW = 30.0
_AZURE = ".servicebus."


@dataclass(frozen=True, slots=True)
class Symptom:
    """One line: what was looked at, how it is, what was found, and what to do about it."""

    what: str
    verdict: Literal["ok", "note", "warning", "error"]
    found: str
    remedy: str = ""


@examples(
    "pairbus doctor",
    "pairbus doctor --pair shop",
    "pairbus doctor --primary-env PRIMARY --secondary-env SECONDARY --json",
)
@click.command()
@pair_options
@json_option
def doctor(*, choice: PairChoice, as_json: bool) -> int:
    """Look at this machine and at what it reaches.

    Versions, Java, descriptors, and with a pair its directories, both sides and their clocks: one table, with
    what to do, to read or to paste. Shows no keys, sends nothing. Exit code 1: something is amiss. 2: how the
    pair is named or configured is. 3: a side cannot be reached.
    """
    settings, mistake = None, ""
    try:
        settings = choice.resolve() if choice.is_made else None
    except ConfigurationError as error:  # a line like any other: the rest is to be seen too
        mistake = str(error)
    with working("looking around"):
        found = [*_look_at_machine()]
        reached = [] if settings is None else asyncio.run(_look_at_pair(settings))
    found += reached
    if mistake:
        found.append(Symptom("pair", "error", in_a_line(mistake)))
    elif settings is None:
        found.append(Symptom("pair", "note", "none was named", "name one with --pair or --primary-env"))
    tell([asdict(symptom) for symptom in found], _draw(found), as_json=as_json)
    if mistake:
        return USAGE
    if any(symptom.verdict == "error" for symptom in reached if symptom.what.startswith("reach ")):
        return UNREACHABLE
    return FOUND if any(symptom.verdict in ("warning", "error") for symptom in found) else 0


def _draw(found: list[Symptom]) -> Iterator[str]:
    rows = [(coloured(symptom.verdict), symptom.what, symptom.found) for symptom in found]
    yield from draw_table(("", "WHAT", "FOUND"), rows)
    if remedies := [f"{symptom.what}: {symptom.remedy}" for symptom in found if symptom.remedy]:
        yield from ("", *remedies)


# -- this machine


def _look_at_machine() -> Iterator[Symptom]:
    yield Symptom("pairbus", "ok", __version__)
    yield Symptom("python", "ok", f"{platform.python_version()} ({sys.executable})")
    processors = counted(os.cpu_count() or 1, "processor", "processors")
    yield Symptom("system", "ok", f"{platform.system()} {platform.release()}, {processors}")
    for package in _NEEDED:
        yield _look_at_package(package, "")
    for library, extra in EXTRAS.items():
        yield _look_at_package(distribution_of(library), extra)
    yield _look_at_java()
    yield _look_at_descriptors()


def _look_at_package(package: str, extra: str) -> Symptom:
    try:
        return Symptom(package, "ok", version(package))
    except PackageNotFoundError:
        if extra:
            return Symptom(package, "note", f"is not installed: pairbus[{extra}] brings it")
        return Symptom(package, "error", "is not installed", "install Pairbus anew: pip install pairbus")


def _look_at_java() -> Symptom:
    try:
        from pairbus.spark.java import check_java, find_java  # late: it is there with the extra alone
    except ModuleNotFoundError:
        return Symptom("java", "note", "not looked for: without pyspark there is no use for it")
    try:
        java_version = check_java()
    except ConfigurationError as error:
        problem, _, remedy = str(error).partition(": ")
        return Symptom("java", "warning", problem, remedy)
    return Symptom("java", "ok", f"{java_version} ({find_java()})")


def _look_at_descriptors() -> Symptom:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "any number" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    found = f"{soft:,} may be open, {most} if raised"
    if soft == resource.RLIM_INFINITY or soft >= _FEWEST_DESCRIPTORS:
        return Symptom("descriptors", "ok", found)
    return Symptom("descriptors", "warning", found, f"raise the limit: ulimit -n {_FEWEST_DESCRIPTORS}")


# -- the pair


async def _look_at_pair(settings: PairSettings) -> list[Symptom]:
    from pairbus.client.state.directory import records_dir  # late: help needs no clients

    queues = counted(settings.options.backlog_queue_count, "backlog queue", "backlog queues")
    found = [
        Symptom("pair", "ok", f"{settings.name}, {queues}"),
        _look_at_directory("state directory", settings.state_dir),
        _look_at_directory("records", records_dir(settings.state_dir)),
    ]
    if settings.shared_records is not None:
        found.append(await asyncio.to_thread(_look_at_place, settings.shared_records))
    tls = ssl.create_default_context()
    if settings.certificate is not None:
        tls, symptom = _look_at_certificate(settings.certificate)
        found.append(symptom)
    sides = {"primary": settings.primary, "secondary": settings.secondary}
    for name, side in sides.items():
        found += [symptom async for symptom in _look_at_side(name, side, tls)]
    return found


def _look_at_certificate(file: Path) -> tuple[ssl.SSLContext, Symptom]:
    """How to reach the sides with it. If it is none, whether they can be reached is asked without."""
    what, trouble = "certificate", find_trouble(file)
    if trouble is None:
        return ssl.create_default_context(cafile=str(file)), Symptom(what, "ok", str(file))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    remedy = "name the certificate of the issuer as certificate in pairbus.toml"
    return context, Symptom(what, "error", f"{file}: {trouble}", remedy)


def _look_at_place(place: RecordPlace) -> Symptom:
    """Whether the place where records of all hosts come together can be listed."""
    from pairbus.stores.places import StoreUri
    from pairbus.stores.store import open_store

    what = "shared records"
    if not isinstance(place, StoreUri):
        return _look_at_directory(what, place)
    try:
        open_store(place).list("receipts")
    except (ConfigurationError, OSError) as error:
        remedy = "mend the URI, the container or the rights: records stay on the hosts meanwhile"
        return Symptom(what, "error", str(error), remedy)
    return Symptom(what, "ok", str(place))


def _look_at_directory(what: str, directory: Path) -> Symptom:
    """Whether it, or the nearest directory above it, can be written to."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    told = f"{directory}" if there == directory else f"{directory}, which is to be made"
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"\0")
    except OSError as error:
        remedy = f"make room, let this user write there, or name another directory: {there}"
        return Symptom(what, "error", f"{told}: {error.strerror}", remedy)
    free = shutil.disk_usage(there).free
    found = f"{told}, {free / 1e9:,.1f} GB free"
    if free < _LEAST_FREE:
        return Symptom(what, "warning", found, "make room: what cannot be written is told, and not recorded")
    return Symptom(what, "ok", found)


async def _look_at_side(name: str, side: SideAddress, tls: ssl.SSLContext) -> AsyncIterator[Symptom]:
    endpoint = side.endpoint
    context = None if getattr(side.parsed, "emulator", False) else tls
    symptom = await _knock(f"reach {name}", endpoint, context)
    yield symptom
    if symptom.verdict == "ok":
        # Azure has its administration on the port of HTTPS, embedded namespaces on their only one.
        port = 443 if _AZURE in endpoint.host else endpoint.port
        yield await asyncio.to_thread(_compare_clocks, name, endpoint._replace(port=port), context)


async def _knock(what: str, endpoint: Endpoint, context: ssl.SSLContext | None) -> Symptom:
    began = time.monotonic()
    try:
        async with asyncio.timeout(_DEADLINE):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    except TimeoutError:
        return Symptom(what, "error", f"{endpoint}: no answer within {_DEADLINE:g} s", _firewall(endpoint))
    except ssl.SSLCertVerificationError as error:
        remedy = "name the certificate of its issuer as certificate in pairbus.toml"
        return Symptom(what, "error", f"{endpoint}: {error.verify_message}", remedy)
    except OSError as error:
        return Symptom(what, "error", f"{endpoint}: {os_reason(error)}", _firewall(endpoint))
    took = (time.monotonic() - began) * 1000
    writer.transport.abort()
    return Symptom(what, "ok", f"{endpoint}, {'TLS' if context else 'plain'}, in {took:.0f} ms")


def _firewall(endpoint: Endpoint) -> str:
    return f"check the name, and that this machine may open connections to port {endpoint.port}"


def _compare_clocks(name: str, endpoint: Endpoint, context: ssl.SSLContext | None) -> Symptom:
    """By how much this clock is ahead of the one that an answer is dated by."""
    what = f"clock of {name}"
    try:
        date = _ask_for_date(endpoint, context)
        ahead = None if date is None else time.time() - parsedate_to_datetime(date).timestamp()
    except TimeoutError:
        remedy = "the namespace is down behind an address that takes connections, or a firewall is between"
        return Symptom(what, "warning", f"{endpoint}: no answer within {_DEADLINE:g} s", remedy)
    except (OSError, HTTPException, ValueError) as error:
        return Symptom(what, "note", f"it does not tell: {error or type(error).__name__}")
    return Symptom(what, "note", "it does not tell") if ahead is None else judge_clock(what, ahead)


def _ask_for_date(endpoint: Endpoint, context: ssl.SSLContext | None) -> str | None:
    host, port = endpoint
    connection = (
        HTTPConnection(host, port, timeout=_DEADLINE)
        if context is None
        else HTTPSConnection(host, port, timeout=_DEADLINE, context=context)
    )
    with closing(connection):
        connection.request("GET", "/")
        return connection.getresponse().getheader("Date")


def judge_clock(what: str, ahead: float) -> Symptom:
    """What to think of a clock that is so many seconds ahead."""
    # The date is cut to seconds, and the answer was on its way.
    if abs(ahead) <= 1.5:
        return Symptom(what, "ok", "the same as here")
    found = f"this machine is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}"
    if abs(ahead) < _MOST_SKEW:
        return Symptom(what, "ok", found)
    return Symptom(what, "warning", found, "set the clock (NTP): tokens are refused whose time is off")
