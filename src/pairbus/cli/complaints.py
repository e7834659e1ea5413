"""What went wrong, in one line that says how to mend it, and the exit code that it deserves.

1. The caller's mistake is 2, and so is a library that has to be installed: trying again does not help.
2. What cannot be reached is 3: trying again may.
3. What nobody expected is a bug. It is raised again, and ends in a traceback.
"""

import re
from typing import NamedTuple

from pairbus.errors import ConfigurationError, PairbusError

from .exit_codes import UNREACHABLE, USAGE

#: The extra that brings a library.
EXTRAS = {
    "azure.identity": "identity",
    "cryptography": "broker",
    "grpc": "connect",
    "h11": "broker",
    "jwt": "broker",
    "opentelemetry": "tracing",
    "pandas": "spark",
    "prometheus_client": "metrics",
    "py4j": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "rich": "drill",
    "starlette": "dashboard",
    "uvicorn": "dashboard",
    "wsproto": "broker",
}
# The distributions that are called otherwise than what they bring.
_DISTRIBUTIONS = {"grpc": "grpcio", "jwt": "PyJWT", "opentelemetry": "opentelemetry-api"}
# How the traceback of a worker ends: with the error itself.
_WORKER_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)


class Complaint(NamedTuple):
    """A line for standard error, and the exit code."""

    text: str
    code: int


def complain_of(error: Exception) -> Complaint | None:
    """What to tell of an error, or None if it is nothing that a user can mend."""
    if isinstance(error, ModuleNotFoundError):
        return _missing_library(error)
    if isinstance(error, ConfigurationError):
        return Complaint(str(error), USAGE)
    if isinstance(error, PairbusError):
        return Complaint(in_words(str(error)), UNREACHABLE)
    if isinstance(error, OSError):
        is_about_a_file = error.filename is not None and error.strerror is not None
        return Complaint(
            f"{error.filename}: {error.strerror}" if is_about_a_file else str(error), UNREACHABLE
        )
    if type(error).__module__.partition(".")[0] in ("pyspark", "py4j"):  # only `spark` may import these
        return Complaint(_told_by_spark(str(error)), UNREACHABLE)
    return None


def distribution_of(library: str) -> str:
    """The name by which a library is installed."""
    return _DISTRIBUTIONS.get(library, re.sub("[._]", "-", library))


def in_a_line(text: str) -> str:
    """A text of several lines, such as the mistakes of a file; what is no sentence ends with a semicolon."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join([line if line[-1] in ".,:;?!" else f"{line};" for line in lines[:-1]] + lines[-1:])


def _missing_library(error: ModuleNotFoundError) -> Complaint | None:
    name = error.name or ""
    library = name if name in EXTRAS else name.partition(".")[0]
    extra = EXTRAS.get(library)
    if extra is None:
        return None
    return Complaint(f"{library} is needed and not installed: pip install 'pairbus[{extra}]'", USAGE)


def in_words(text: str) -> str:
    """The text of an error; the conditions that the pump has for lines that are down become sentences."""
    from pairbus.conditions import AUTH_FAILED, UNAUTHORIZED
    from pairbus.plumbing.wording import SIGN_IN
    from pairbus.wire.errors import CONNECTION_LOST, NO_TOKEN, UNANSWERED  # late: only where something failed

    condition, _, told = text.partition(": ")
    if condition == CONNECTION_LOST:
        lost = "" if told.startswith("cannot reach") else "the connection was lost: "
        return f"{lost}{told}; is the namespace up, and its connection string right?"
    if condition in (AUTH_FAILED, UNAUTHORIZED):
        if told.startswith(NO_TOKEN):
            return f"{told.rstrip('.')}; {SIGN_IN}"
        return f"{told.rstrip('.')}; is the key right, and has its policy the claim for this?"
    return f"no answer in time: {told}; is it up?" if condition == UNANSWERED else text


def _told_by_spark(text: str) -> str:
    """The error at the end of a worker's traceback; without one, the first line."""
    found = _WORKER_ERROR.findall(text)
    if found:
        name, told = found[-1]
        return f"a Spark task failed: {in_words(told) if name.startswith('pairbus.') else f'{name}: {told}'}"
    return f"Spark: {(text.strip().splitlines() or ['no word'])[0]}"
