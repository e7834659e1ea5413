"""qpid-proton, a client that knows nothing of Service Bus: its main paths on an embedded namespace."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus.broker import Broker, QueueSettings
from pairbus.pairing.names import parse_connection_string
from tests.node.script import Report

CHECKS = Path(__file__).parent / "checks.py"
# The checks take a few seconds; they are given up before the test that waits for them is.
DEADLINE = 100.0
ANNOTATIONS = ["x-opt-enqueued-time", "x-opt-locked-until", "x-opt-sequence-number"]


# Messages that the checks have left.
counts: dict[str, int] = {}


@pytest.fixture(scope="module")
def report(proton: Path) -> Iterator[Report]:
    with Broker({"contoso": 0}) as broker:
        contoso = broker["contoso"]
        for name in ("orders", "settled", "many", "from", "to"):
            contoso.create_queue(name)
        contoso.create_queue("sessions", QueueSettings(requires_session=True))
        root = parse_connection_string(contoso.connection_string)
        assert root.key_name is not None
        assert root.key is not None
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {
            "PAIRBUS_PORT": str(contoso.port),
            "PAIRBUS_KEY_NAME": root.key_name,
            "PAIRBUS_KEY": root.key,
            "PAIRBUS_CERT": str(broker.certificate),
        }
        done = subprocess.run(
            [str(proton), str(CHECKS)], env=environment, capture_output=True, text=True, timeout=DEADLINE
        )
        counts["from"], counts["to"] = contoso.message_count("from"), contoso.message_count("to")
        yield Report(done.stdout.splitlines(), f"exit code {done.returncode}: {done.stderr}")


@pytest.mark.parametrize("scheme", ["plain", "tls"])
def test_a_message_goes_and_comes(report: Report, scheme: str) -> None:
    properties = {"n": 3, "t": "x", "b": True}
    assert report[scheme] == ["m-1", "hi", {"a": [1, "two"]}, properties, ANNOTATIONS]


def test_deliveries_are_counted_and_rejected_ones_are_dead_letters(report: Report) -> None:
    assert report["settlements"] == [["released", 0], ["released", 1], ["rejected"], ["rejected"]]


def test_a_session_is_chosen_by_its_filter(report: Report) -> None:
    assert report["sessions"] == ["one", "one"]


def test_a_token_is_put_by_claims_based_security(report: Report) -> None:
    assert report["claims based security"] == [202, "by token"]


def test_refusals_are_understood(report: Report) -> None:
    assert report["refusals"] == ["amqp:not-found", "SendException", True]


def test_many_messages_keep_their_order(report: Report) -> None:
    assert report["many"] is True


def test_transactions_move_messages_or_leave_them(report: Report) -> None:
    committed = ["committed", "aborted", "committed", "aborted"]
    assert report["transactions"] == [committed, ["moved 0", "moved 2"]]
    assert counts == {"from": 2, "to": 0}
