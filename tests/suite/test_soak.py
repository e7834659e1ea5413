"""The long forms all run, whatever becomes of the others, and the table at the end tells of each."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "soak.py"))
FORMS, Form, soak, table = (SCRIPT[name] for name in ("FORMS", "Form", "soak", "table"))


def test_all_run_to_their_end_though_one_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forms = [
        Form("bad", "one", ("-c", "import sys; sys.exit('lost: m7')")),
        Form("good", "two", ("-c", "import os; assert os.environ['SEED'] == '7'"), {"SEED": "{seed}"}),
        Form("dice", "three, twice", ("-c", "import sys; sys.exit(int(sys.argv[1]) - 7)", "{seed}"), times=9),
    ]
    outcomes = list(soak(forms, 7, tmp_path))
    assert [outcome.result for outcome in outcomes] == [
        "FAILED: exit code 1",
        "passed",
        "FAILED: exit code 1",
    ]
    assert [outcome.seeds for outcome in outcomes] == ["", "7", "7 to 8"]
    assert "lost: m7" in capsys.readouterr().out
    head, *rows = table(outcomes).splitlines()
    assert head.split() == ["what", "how", "many", "seconds", "seeds", "result"]
    assert [row.split()[0] for row in rows] == ["bad", "good", "dice"]


def test_the_exit_code_is_that_of_all() -> None:
    """As a command: a form that there is not is told with those that there are."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "soak.py"), "nothing"],
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert done.returncode == 2
    assert all(form.name in done.stderr for form in FORMS)


def test_what_the_forms_run_is_there() -> None:
    """A renamed file or variable would make a long form a short one, or none."""
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    for form in FORMS:
        for argument in form.arguments:
            assert not argument.startswith("tests/") or (ROOT / argument).exists(), argument
        for variable in form.variables:
            assert f'"{variable}"' in sources, variable
