"""A test here looks at what one check of a script has seen.

A module names its script as `SCRIPT`. The script runs once for the module, against a durable namespace of
its own, and `test_one_message(seen)` is given what the check "one message" saw.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker import Broker
from pairbus.broker.handle import NamespaceHandle
from tests.node.script import Report, run_script


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker({"contoso": 0}, data_dir=tmp_path_factory.mktemp("node")) as broker:
        yield broker


@pytest.fixture(scope="module")
def namespace(broker: Broker) -> NamespaceHandle:
    return broker["contoso"]


@pytest.fixture(scope="module")
def prepared() -> None:
    """What has to be there before the script runs; a module that needs something redefines this."""


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest, node: Path, broker: Broker, prepared: None) -> Report:
    report = run_script(node, request.module.SCRIPT, broker=broker)
    tests = {name.removeprefix("test_").replace("_", " ") for name in vars(request.module)}
    assert set(report) <= tests, f"checks that no test looks at: {sorted(set(report) - tests)}"
    return report


@pytest.fixture
def seen(request: pytest.FixtureRequest, report: Report) -> Any:
    """What the check with the name of this test has seen."""
    return report[request.node.originalname.removeprefix("test_").replace("_", " ")]
