"""The pytest plugin as a user has it: files of their own in a directory of their own, run by pytest."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guards.documents import code_blocks
from tests.guards.sources import ROOT

PAGE = (ROOT / "docs" / "pytest.md").read_text(encoding="utf-8")
DEADLINE = 100.0


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["pairbus.testing"]\n', encoding="utf-8")
    return tmp_path


def test_the_examples_of_the_page_pass(project: Path) -> None:
    for block in code_blocks(PAGE, "python"):
        named = re.match(r"# (\w+\.py)\n", block)
        assert named is not None, block
        (project / named[1]).write_text(block, encoding="utf-8")
    done = run_pytest(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


def test_every_fixture_is_on_the_page(project: Path) -> None:
    listed = run_pytest(project, "--fixtures").stdout
    named = set(re.findall(r"^((?:pairbus|manual)_\w+)", listed, flags=re.MULTILINE))
    assert "pairbus_broker" in named
    assert [name for name in sorted(named) if f"`{name}`" not in PAGE] == []
    assert "pairbus(namespaces=" in run_pytest(project, "--markers").stdout


FAILING = """
import pytest
from azure.servicebus import ServiceBusMessage
from pairbus.testing import assert_messages, messages_in

@pytest.mark.pairbus(queues=["orders"], topics=["events"])
def test_what_is_there_is_shown(pairbus_namespace, pairbus_client):
    pairbus_client.get_queue_sender("orders").send_messages(ServiceBusMessage("pears"))
    assert_messages(pairbus_namespace, "orders", expected=["apples"], within=0.1)

@pytest.mark.pairbus(queue=["orders"])
def test_a_wrong_argument(pairbus_broker): pass

@pytest.mark.pairbus(["orders"])
def test_no_name(pairbus_broker): pass

@pytest.mark.pairbus(namespaces="shop")
def test_no_list(pairbus_broker): pass

@pytest.mark.pairbus(queues={"orders": {"lock_duration": "30"}})
def test_no_duration(pairbus_broker): pass

@pytest.mark.pairbus(queues={"orders": {"lock_duration": 1}})
def test_too_short(pairbus_broker): pass

@pytest.mark.pairbus(topics=["events"])
def test_a_topic(pairbus_namespace):
    messages_in(pairbus_namespace, "events")
"""


def test_mistakes_are_told(project: Path) -> None:
    (project / "test_failing.py").write_text(FAILING, encoding="utf-8")
    done = run_pytest(project)
    assert done.returncode == 1
    assert "orders of contoso has other messages than ['apples']" in done.stdout
    assert "body=b'pears'" in done.stdout
    assert "unexpected keyword argument 'queue'; besides it takes namespaces, queues, topics" in done.stdout
    assert "pairbus takes names: pairbus(queues=['orders'])" in done.stdout
    assert "pairbus takes a list of names: ['shop']" in done.stdout
    assert "lock_duration: '30' is not a duration; write it like 'PT1M'" in done.stdout
    assert "orders: The property value for 'LockDuration' must be between 5 and 300" in done.stdout
    assert "look into one of its subscriptions, events/Subscriptions/NAME" in done.stdout


SCOPES = """
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage

@pytest.fixture(scope="session")
def pairbus_options():
    return {"namespaces": ["shop"], "queues": ["common"], "strictness": "relaxed"}

def test_one(pairbus_session_broker, pairbus_module_namespace, pairbus_namespace):
    assert list(pairbus_session_broker) == ["shop"]
    for namespace in (pairbus_module_namespace, pairbus_namespace):
        assert namespace.message_count("common") == 0
    pairbus_module_namespace.create_queue("kept")
    pairbus_namespace.create_queue("gone")

def test_two(pairbus_session_namespace, pairbus_module_namespace, pairbus_namespace):
    pairbus_session_namespace.create_queue("again")
    assert pairbus_module_namespace.message_count("kept") == 0
    pairbus_namespace.create_queue("gone")

LOCKS = {"one": timedelta(seconds=30), "two": "PT30S", "three": 30}

@pytest.mark.pairbus(queues={name: {"lock_duration": lock} for name, lock in LOCKS.items()})
def test_three(pairbus_client, pairbus_clock):
    for name in LOCKS:
        pairbus_client.get_queue_sender(name).send_messages(ServiceBusMessage(name))
        [message] = pairbus_client.get_queue_receiver(name).receive_messages(max_wait_time=10)
        assert message.locked_until_utc - message.enqueued_time_utc == timedelta(seconds=30)
"""


ADDED_UP = """
import pytest
from azure.servicebus import ServiceBusMessage
from pairbus.testing import assert_messages

pytestmark = pytest.mark.pairbus(
    queues={"In": {"forward_to": "elsewhere"}, "kept": {"requires_session": True}},
    topics={"events": {"audit": {"max_delivery_count": 1}}},
    entities=["first.toml"],
)

@pytest.mark.pairbus(queues={"in": {"forward_to": "events"}}, topics={"events": ["news"]})
@pytest.mark.pairbus(entities=["second.toml", "Config.json"])
def test_all_that_is_marked(pairbus_namespace, pairbus_client):
    pairbus_client.get_queue_sender("in").send_messages(ServiceBusMessage("x"))
    for path in ("events/Subscriptions/audit", "events/Subscriptions/news"):
        assert_messages(pairbus_namespace, path, expected=["x"])
    for path in ("kept", "first", "second", "third"):
        assert_messages(pairbus_namespace, path, expected=0)
"""


def test_what_markers_declare_is_added_up_whatever_forwards_where(project: Path) -> None:
    (project / "test_added_up.py").write_text(ADDED_UP, encoding="utf-8")
    # The markers name the topic for its subscriptions alone.
    topic = "[topics.events]\nrequires_duplicate_detection = true\n"
    for name, text in (("first", topic), ("second", "")):
        (project / f"{name}.toml").write_text(f"{text}[queues.{name}]\n", encoding="utf-8")
    config = {"UserConfig": {"Namespaces": [{"Name": "contoso", "Queues": [{"Name": "third"}], "Newer": 1}]}}
    (project / "Config.json").write_text(json.dumps(config), encoding="utf-8")
    done = run_pytest(project, "--log-cli-level=WARNING")
    assert "1 passed" in done.stdout, done.stdout
    assert done.stdout.count("a key of an entity file is not known") == 1, done.stdout


def test_scopes_and_options(project: Path) -> None:
    (project / "test_scopes.py").write_text(SCOPES, encoding="utf-8")
    done = run_pytest(project)
    assert "3 passed" in done.stdout, done.stdout
