"""How far a stream goes, as the driver finds it out, without Spark."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql.types import LongType, StructField, StructType

from pairbus.broker.handle import NamespaceHandle
from pairbus.errors import ConfigurationError
from pairbus.spark.source.options import SourceSettings
from pairbus.spark.source.stream_reader import MessageStreamReader

from .test_source_messages import VARIABLE, client, namespace, send

__all__ = ["client", "namespace"]
SCHEMA = StructType([StructField("sequence_number", LongType())])


@contextmanager
def reading(**options: str) -> Iterator[MessageStreamReader]:
    given = {"connectionStringEnv": VARIABLE, "columns": "sequence_number", "pollInterval": "0.001"}
    reader = MessageStreamReader(SourceSettings({**given, **options}, "stream"), SCHEMA)
    try:
        yield reader
    finally:  # else the end of its process does it
        if reader._transport is not None and reader._runner is not None:
            reader._run(reader._transport.close())
            reader._runner.close()


@pytest.mark.parametrize("mode", ["peek", "consume"])
def test_an_entity_that_was_created_again_and_is_ahead_is_noticed(
    namespace: NamespaceHandle, client: ServiceBusClient, mode: str
) -> None:
    """What it has below the offset would be passed over, and removed unread."""
    queue = send(namespace, client, [ServiceBusMessage("old")] * 3)
    with reading(entity=queue, mode=mode) as reader:
        read = reader.latestOffset()
        assert reader.latestOffset(read) == read
        namespace.delete_queue(queue)
        namespace.create_queue(queue)
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([ServiceBusMessage("new")] * 5)
        with pytest.raises(ConfigurationError, match="was created again"):
            reader.latestOffset(read)
