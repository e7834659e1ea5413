"""OpenTelemetry spans of paired clients: `observers=[TracingObserver()]`.

Each call gets a span around everything that it takes: waiting for its turn, attempts, the way to the backlog.
The span is current while the SDK sends, so that the SDK's own spans are its children and the messages carry
its trace, if the application has switched the SDK's tracing on (azure-core-tracing-opentelemetry).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from .observer import Observer, Sending, Undertaking

try:
    from opentelemetry import trace
except ImportError as error:
    raise ImportError(
        "spans need opentelemetry-api: pip install 'pairbus[tracing]'", name="opentelemetry"
    ) from error


class TracingObserver(Observer):
    """Gives each call a span, `pairbus.send` or `pairbus.schedule`."""

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        """`tracer_provider`: where the spans go, the global one if none is given."""
        self._tracer = trace.get_tracer("pairbus", tracer_provider=tracer_provider)
        self._pair = ""

    def paired(self, primary_name: str, backlog_queues: int) -> None:
        self._pair = primary_name

    def around(self, undertaking: Undertaking) -> AbstractContextManager[object]:
        return self._span(undertaking)

    @contextmanager
    def _span(self, undertaking: Undertaking) -> Iterator[None]:
        attributes: dict[str, str | int] = {
            "messaging.system": "servicebus",
            "messaging.destination.name": undertaking.path,
            "pairbus.pair": self._pair,
            "pairbus.path": undertaking.path,
            "pairbus.messages": undertaking.messages,
        }
        with self._tracer.start_as_current_span(
            f"pairbus.{undertaking.operation}", attributes=attributes
        ) as span:
            try:
                yield
            finally:
                if undertaking.route is not None:
                    span.set_attribute("pairbus.route", undertaking.route)
                span.set_attribute("pairbus.state", undertaking.state.value)

    def sent(self, sending: Sending) -> None:
        """An attempt that failed is an event of the span that it belongs to."""
        if sending.outcome != "ok":
            trace.get_current_span().add_event(
                "pairbus.attempt",
                {
                    "pairbus.route": sending.route,
                    "pairbus.outcome": sending.outcome,
                    "pairbus.seconds": sending.seconds,
                },
            )
