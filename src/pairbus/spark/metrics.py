"""A running syphon as Prometheus metrics; they are asked of it when somebody looks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pairbus.errors import UnreachableError

from .syphon import Syphon, SyphonProgress

#: Counters and gauges without labels: the name, the field of the progress, and what it tells.
COUNTERS = (
    ("pairbus_syphon_moved", "moved", "Messages moved to their entities."),
    ("pairbus_syphon_dead_lettered", "dead_lettered", "Messages that were dead-lettered."),
    ("pairbus_syphon_bytes", "bytes", "Bytes of the messages that were moved."),
    ("pairbus_syphon_retries", "retries", "Messages that were refused and are sent again."),
    ("pairbus_syphon_lost_locks", "lost_locks", "Messages in hand whose lock ended."),
)
GAUGES = (
    ("pairbus_syphon_rate", "rate", "Messages a second, of late."),
    ("pairbus_syphon_backlog_at_start", "total", "Messages in the backlog when it began, if that is known."),
    ("pairbus_syphon_seconds_left", "seconds_left", "Seconds until the end at this rate, if that is known."),
    ("pairbus_syphon_pumps", "pumps", "Pumps at work."),
    ("pairbus_syphon_resting_pumps", "resting", "Those of them that are paused and hold nothing."),
)
#: With labels: the name, the labels, and what it tells.
LABELLED = (
    ("pairbus_syphon_waiting", ("path",), "Messages that wait because their entity is down."),
    ("pairbus_syphon_oldest_seconds", ("path",), "Age of the oldest of those."),
    ("pairbus_syphon_has_lease", ("pair",), "1 while this syphon holds the lease of the pair, else 0."),
)


class SyphonCollector(Collector):
    """Asks the syphon how it goes, for each scrape."""

    def __init__(self, syphon: Syphon) -> None:
        self._syphon = syphon

    def collect(self) -> Iterator[Metric]:
        progress = self._syphon.progress()
        for name, field, text in COUNTERS:
            yield CounterMetricFamily(name, text, value=getattr(progress, field))
        for name, field, text in GAUGES:
            value = getattr(progress, field)
            if value is not None:
                yield GaugeMetricFamily(name, text, value=value)
        yield from _labelled(progress)


def _labelled(progress: SyphonProgress) -> Iterator[Metric]:
    waiting, oldest, lease = (GaugeMetricFamily(name, text, labels=labels) for name, labels, text in LABELLED)
    now = time.time()
    for path, one in progress.paths.items():
        waiting.add_metric([path], one.waiting)
        if one.oldest is not None:
            oldest.add_metric([path], max(0.0, now - one.oldest))
    for pair, state in progress.leases.items():
        lease.add_metric([pair], float(state == "held"))
    yield from (waiting, oldest, lease)


@contextmanager
def served_metrics(syphon: Syphon, port: int) -> Iterator[int]:
    """Serve them on the loopback until the block ends; on which port. UnreachableError if it is taken."""
    registry = CollectorRegistry()
    registry.register(SyphonCollector(syphon))
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        why = error.strerror or error
        raise UnreachableError(
            f"cannot listen on 127.0.0.1:{port}: {why}; choose another --metrics-port"
        ) from None
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
