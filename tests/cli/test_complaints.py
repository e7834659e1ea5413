"""Wrong input, met by hand: one line that says how to mend it, the right exit code, and no traceback."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pairbus.cli.complaints import EXTRAS, complain_of, distribution_of
from pairbus.plumbing.wording import SIGN_IN
from pairbus.wire.errors import CONNECTION_LOST, NO_TOKEN, UNANSWERED, TransportError

from .process import PATIENCE, call

ROOT = Path(__file__).resolve().parents[2]
KEY = "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
# Nothing listens on port 1.
NOBODY = {"P": f"Endpoint=sb://127.0.0.1:1;{KEY}", "S": f"Endpoint=sb://localhost:2;{KEY}"}
_UP = "; is the namespace up, and its connection string right?"
NAMED = ["--primary-env", "P", "--secondary-env", "S"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["check", "--outage", "soon", *NAMED],
            2,
            "'soon' is not a number above 0 and at most 1,000,000,000.",
        ),
        (["check", "--rate", "0", *NAMED], 2, "'0' is not a number above 0 and"),
        (["provision", "--count", "1.5", *NAMED], 2, "'1.5' is not a whole number from 1 to 1,000,000,000."),
        (
            ["check", "--primary-env", "ODD", "--secondary-env", "S"],
            2,
            "The environment variable ODD: Field 1",
        ),
        (["broker", "--namespace", "control=0"], 2, "control address below this name; choose another"),
        (["broker", "--namespace", "a=0", "--data", "/dev/null/x"], 2, "a directory that you may write to"),
        (["broker", "--namespace", "a=0", "--host", "192.0.2.1"], 3, "Is it an address of this machine?"),
        (["fault", "list", "--ready-file", "none.json"], 2, "first: pairbus broker --ready-file none.json"),
        (["redrive", *NAMED], 3, "cannot reach localhost:2"),
        (["syphon", "plan", *NAMED], 3, _UP),
        (["completion"], 2, "Missing argument '{bash|zsh|fish}'"),
        (["status", "--config", os.devnull], 2, "/dev/null: there is no pair; add [pairs.NAME]"),
        (
            ["cost", "estimate", "--prices", os.devnull],
            2,
            "/dev/null: currency is missing; /dev/null: as_of is",
        ),
    ],
)
def test_wrong_input_is_told(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    done = call(*arguments, variables={**NOBODY, "ODD": "c2VjcmV0", "XDG_STATE_HOME": str(tmp_path)})
    assert done.returncode == code
    assert said in done.stderr
    assert "c2VjcmV0" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["broker", "--memory", "--namespace", "a=0", "--ready-file"],
        ["messages", "export", "orders", "--primary-env", "P", "--force", "--file"],
        ["dashboard", "--state", ".", "--address-file"],
    ],
)
def test_what_is_no_file_is_left_where_it_is(tmp_path: Path, arguments: list[str]) -> None:
    """`/dev/null`, say, which root may remove."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = call(*arguments, str(pipe), variables=NOBODY)
    assert (done.returncode, "it is no file" in done.stderr) == (2, True)
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("library", "arguments", "extra"),
    [
        ("pyspark", ["cost", "report", "--records", "."], "spark"),
        ("h11", ["broker", "--namespace", "a=0"], "broker"),
        ("azure.identity", ["check", "--pair", "entra"], "identity"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, library: str, arguments: list[str], extra: str
) -> None:
    hosts = 'primary_host = "a.example"\nsecondary_host = "b.example"\n'
    (tmp_path / "pairbus.toml").write_text(f"[pairs.entra]\n{hosts}", encoding="utf-8")
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        f"from pairbus.cli.main import main; sys.exit(main({arguments!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=tmp_path,
        env={**os.environ, **NOBODY},
    )
    wanted = f"pairbus: {library} is needed and not installed: pip install 'pairbus[{extra}]'\n"
    assert (done.returncode, done.stderr) == (2, wanted)


def test_every_library_of_an_extra_is_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    brought = {distribution_of(library).lower(): extra for library, extra in EXTRAS.items()}
    for extra, requirements in project["optional-dependencies"].items():
        for name in (re.split("[<>=]", requirement)[0].lower() for requirement in requirements):
            # What has brackets brings others, by an extra of its own.
            known = brought.get(name) == extra or extra == "dev" or "[" in name
            assert known, f"say in EXTRAS that {extra} brings {name}"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TransportError(CONNECTION_LOST, "cannot reach a:1: gone"), f"cannot reach a:1: gone{_UP}"),
        (
            TransportError(CONNECTION_LOST, "the peer hung up"),
            f"the connection was lost: the peer hung up{_UP}",
        ),
        (TransportError(UNANSWERED, "a:1"), "no answer in time: a:1; is it up?"),
        (TransportError("amqp:not-found", "no such queue"), "amqp:not-found: no such queue"),
        (
            TransportError("com.microsoft:auth-failed", f"{NO_TOKEN}: LookupError: none."),
            f"{NO_TOKEN}: LookupError: none; {SIGN_IN}",
        ),
        (
            TransportError("com.microsoft:auth-failed", "401: no such key."),
            "401: no such key; is the key right,",
        ),
    ],
)
def test_conditions_of_the_pump_become_sentences(error: Exception, told: str) -> None:
    complaint = complain_of(error)
    assert complaint is not None
    assert complaint.code == 3
    assert complaint.text.startswith(told)


def spark_error(text: str) -> Exception:
    class PythonException(Exception):
        __module__ = "pyspark.errors.exceptions.captured"

    return PythonException(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            '  File "x.py", line 3, in peek\nOSError: [Errno 111] refused\n\nDuring handling:\n'
            "pairbus.wire.errors.TransportError: pairbus:connection-lost: cannot reach a:1: refused\n",
            f"a Spark task failed: cannot reach a:1: refused{_UP}",
        ),
        ("Traceback:\nValueError: odd", "a Spark task failed: ValueError: odd"),
        ("[TABLE] there is none\nJVM stacktrace:", "Spark: [TABLE] there is none"),
    ],
)
def test_a_failed_spark_task_is_told_by_its_last_error(text: str, told: str) -> None:
    assert complain_of(spark_error(text)) == (told, 3)


def test_a_library_that_no_extra_brings_is_a_bug() -> None:
    assert complain_of(ModuleNotFoundError("no", name="pairbus.nonsense")) is None
    assert complain_of(ValueError("a bug")) is None


def test_a_file_that_cannot_be_had_is_named_without_its_number() -> None:
    assert complain_of(PermissionError(13, "Permission denied", "state/x")) == (
        "state/x: Permission denied",
        3,
    )
    assert complain_of(OSError("something else")) == ("something else", 3)


def test_a_report_that_cannot_be_written_is_told_before_the_drill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pairbus.cli.places.os.access", lambda place, mode: False
    )  # whoever runs the tests may
    done = call("drill", "--no-spark", "--report", str(tmp_path / "drill.html"))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"nothing may be written in {tmp_path}" in done.stderr
