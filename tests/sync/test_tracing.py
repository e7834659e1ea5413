"""Spans: one a call, in the caller's trace, with the SDK's below it."""

import inspect
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.settings import settings
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan
from azure.servicebus import ServiceBusMessage
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pairbus.aio import PairedServiceBusClient as AioClient
from pairbus.client.direct import encoding
from pairbus.client.observers import tracing
from pairbus.client.observers.observer import Observer, Undertaking
from pairbus.client.observers.tracing import TracingObserver
from pairbus.pairing.errors import PairFaultedError

from .conftest import FAST, PATIENT, Namespaces

PAGE = Path(__file__).parents[2] / "docs" / "observability.md"


class Spans:
    """The spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("application")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def sdk_tracing(monkeypatch: pytest.MonkeyPatch, spans: Spans) -> Iterator[None]:
    """The SDK's tracing switched on; its plugin knows the global provider only."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", spans.provider)
    # It asks once a second whether the SDK traces, and a test before this one may have just asked.
    encoding._traces.cache_clear()
    settings.tracing_implementation.set_value(OpenTelemetrySpan)
    yield
    settings.tracing_implementation.unset_value()
    encoding._traces.cache_clear()


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return int(context.span_id)


def test_a_send_is_a_span_in_the_trace_of_its_caller(namespaces: Namespaces, spans: Spans) -> None:
    with namespaces.client(observers=[TracingObserver(spans.provider)]) as client:
        sender = client.get_queue_sender("orders")
        with spans.tracer.start_as_current_span("checkout"):
            sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
        sender.schedule_messages(ServiceBusMessage("3"), datetime.now(UTC) + timedelta(hours=1))
    sent, scheduled = spans.one("pairbus.send"), spans.one("pairbus.schedule")
    assert attributes_of(sent) == {
        "messaging.system": "servicebus",
        "messaging.destination.name": "orders",
        "pairbus.pair": "contoso",
        "pairbus.path": "orders",
        "pairbus.messages": 2,
        "pairbus.route": "primary",
        "pairbus.state": "healthy",
    }
    assert parent_of(sent) == id_of(spans.one("checkout"))
    assert parent_of(scheduled) is None


@pytest.mark.usefixtures("sdk_tracing")
def test_spans_of_the_sdk_are_below_ours_and_messages_carry_the_trace(
    namespaces: Namespaces, spans: Spans
) -> None:
    with namespaces.client(observers=[TracingObserver(spans.provider)]) as client:
        sender = client.get_queue_sender("orders")
        with spans.tracer.start_as_current_span("checkout") as checkout:
            sender.send_messages(ServiceBusMessage("1"))
            client.fail_over("orders")
            sender.send_messages(ServiceBusMessage("2"))
        with client.get_queue_receiver("orders", receive_mode="receiveanddelete") as receiver:
            (received,) = receiver.receive_messages(max_wait_time=5)
    ours = spans.named("pairbus.send")
    assert [attributes_of(span)["pairbus.route"] for span in ours] == ["primary", "backlog"]
    assert [parent_of(span) for span in spans.named("ServiceBus.send")] == [id_of(span) for span in ours]
    assert [parent_of(span) for span in spans.named("ServiceBus.message")] == [id_of(span) for span in ours]
    trace_id = f"{checkout.get_span_context().trace_id:032x}"
    properties = received.application_properties or {}
    for name in (b"Diagnostic-Id", b"traceparent"):
        carried = properties[name]
        assert trace_id in (carried.decode() if isinstance(carried, bytes) else str(carried))


def test_an_error_is_that_of_the_span(namespaces: Namespaces, spans: Spans) -> None:
    with namespaces.client(observers=[TracingObserver(spans.provider)]) as client:
        sender = client.get_queue_sender("orders")
        with pytest.raises(ValueError, match="size limit"):
            sender.send_messages([ServiceBusMessage(b"x" * 200_000), ServiceBusMessage(b"x" * 200_000)])
        span = spans.one("pairbus.send")
        assert not span.status.is_ok
        assert [event.name for event in span.events][-1] == "exception"
        client.fault("closed for repairs")
        with pytest.raises(PairFaultedError):
            sender.send_messages(ServiceBusMessage("x"))


def test_a_failover_shows_in_the_span_of_the_send_that_met_it(namespaces: Namespaces, spans: Spans) -> None:
    with namespaces.client(options=FAST, observers=[TracingObserver(spans.provider)]) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("before"))
        namespaces.primary.faults.set("refuse")
        sender.send_messages(ServiceBusMessage("during"))
    span = spans.named("pairbus.send")[-1]
    assert attributes_of(span)["pairbus.route"] == "backlog"
    assert attributes_of(span)["pairbus.state"] == "failed_over"
    attempts = [event for event in span.events if event.name == "pairbus.attempt"]
    assert attempts
    assert {str((event.attributes or {})["pairbus.outcome"]) for event in attempts} <= {"failed", "unknown"}
    assert span.end_time is not None
    assert span.start_time is not None
    assert span.end_time - span.start_time > 0.8e9  # the wait for the failover is part of it


async def test_the_asynchronous_client_has_the_same_spans(namespaces: Namespaces, spans: Spans) -> None:
    client = AioClient.from_connection_strings(
        *namespaces.strings, options=PATIENT, observers=[TracingObserver(spans.provider)]
    )
    async with client:
        with spans.tracer.start_as_current_span("checkout"):
            await client.get_queue_sender("orders").send_messages(ServiceBusMessage("1"))
    assert parent_of(spans.one("pairbus.send")) == id_of(spans.one("checkout"))


class Broken(Observer):
    def around(self, undertaking: Undertaking) -> Any:
        raise LookupError("the collector is away")


def test_a_tracer_that_fails_does_not_stop_a_send(
    namespaces: Namespaces, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    with namespaces.client(observers=[Broken(), TracingObserver(spans.provider)]) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("1"))
    assert namespaces.receive(1) == ["1"]
    assert spans.one("pairbus.send").status.is_ok
    assert "the collector is away" in caplog.text


def test_every_attribute_is_documented() -> None:
    source = inspect.getsource(tracing)
    used = set(re.findall(r'"(pairbus\.\w+|messaging\.[\w.]+)"', source))
    documented = set(re.findall(r"`(pairbus\.(?!client)\w+|messaging\.[\w.]+)`", PAGE.read_text("utf-8")))
    assert used | {"pairbus.send", "pairbus.schedule"} == documented
