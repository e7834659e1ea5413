"""TLS: with the certificate of the namespaces, and a clear word if it is another one."""

from pathlib import Path

import pytest

from pairbus.broker.access.certificate import ensure_certificate
from pairbus.errors import ConfigurationError
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair, Side
from pairbus.pump.pump import Pump

from .bench import Bench, envelope

OPTIONS = PumpOptions(drain=True, drain_wait=0.1, first_back_off=0.05, longest_back_off=0.1)


def secured(text: str) -> str:
    """A connection string without the field that stands for a plain line."""
    return ";".join(
        field for field in text.split(";") if not field.lower().startswith("usedevelopmentemulator")
    )


def pair(bench: Bench, *, primary: Path, secondary: Path) -> PumpPair:
    return PumpPair(
        primary=Side(connection_string=secured(bench.primary.connection_string), ca_file=str(primary)),
        secondary=Side(connection_string=secured(bench.secondary.connection_string), ca_file=str(secondary)),
        name="contoso",
    )


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A certificate of somebody else."""
    return ensure_certificate(tmp_path, now=1.8e9).cert_path


@pytest.mark.parametrize("transport", ["amqp", "sdk"])
async def test_the_certificate_of_the_namespaces_is_believed(bench: Bench, transport: str) -> None:
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", f"{number:03}") for number in range(100)])
    own = bench.broker.certificate
    options = PumpOptions(drain=True, drain_wait=0.1, transport=transport)  # type: ignore[arg-type]
    chosen = pair(bench, primary=own, secondary=own)
    assert chosen.primary.resolve().place().tls is not None
    summary = await Pump(chosen, [queue], options=options).run()
    assert (summary.moved, summary.queue_errors) == (100, {})
    assert bench.ids("orders") == [f"{number:03}" for number in range(100)]


async def test_another_certificate_of_the_secondary_is_told(bench: Bench, stranger: Path) -> None:
    (queue,) = bench.create("orders")
    chosen = pair(bench, primary=bench.broker.certificate, secondary=stranger)
    summary = await Pump(chosen, [queue], options=OPTIONS).run()
    assert "CERTIFICATE_VERIFY_FAILED" in summary.queue_errors[queue]
    assert "ca_file" in summary.queue_errors[queue], "it says how to mend it"


async def test_another_certificate_of_the_primary_leaves_everything_in_the_backlog(
    bench: Bench, stranger: Path
) -> None:
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", f"{number:03}") for number in range(30)])
    chosen = pair(bench, primary=stranger, secondary=bench.broker.certificate)
    summary = await Pump(chosen, [queue], options=OPTIONS).run()
    assert (summary.moved, summary.waiting, summary.dead_lettered) == (0, 30, 0)
    assert "CERTIFICATE_VERIFY_FAILED" in (summary.paths["orders"].trouble or "")
    assert len(bench.ids(queue, on=bench.secondary)) == 30


def test_a_file_without_a_certificate_is_a_mistake(bench: Bench, tmp_path: Path) -> None:
    text = secured(bench.primary.connection_string)
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    for path in (tmp_path / "missing.pem", empty):
        with pytest.raises(ConfigurationError, match="PEM"):
            Side(connection_string=text, ca_file=str(path)).resolve().place()
