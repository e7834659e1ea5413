"""The data source `servicebus`, by which Spark knows all this."""

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pairbus.errors import ConfigurationError

from .columns import COLUMNS
from .options import SourceSettings

FORMAT = "servicebus"


class ServiceBusSource(DataSource):
    """`spark.read.format("servicebus")`; docs/spark-source.md has the options and columns."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        names = SourceSettings(self.options, "schema").columns
        return ", ".join(f"`{name}` {COLUMNS[name].sql_type}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        from .reader import MessageReader

        return MessageReader(SourceSettings(self.options, "read"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .stream_reader import MessageStreamReader

        return MessageStreamReader(SourceSettings(self.options, "stream"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .writer import MessageWriter

        return MessageWriter(self._write_settings(overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from .writer import MessageStreamWriter

        return MessageStreamWriter(self._write_settings(overwrite), schema)

    def _write_settings(self, overwrite: bool) -> SourceSettings:
        if overwrite:
            raise ConfigurationError('Messages are added and never replaced: write with mode("append")')
        return SourceSettings(self.options, "write")


def register(spark: Any) -> None:
    """Make `servicebus` known to a session, also to one of Spark Connect.

    A session whose Python has Pairbus installed knows it by itself.
    """
    spark.dataSource.register(ServiceBusSource)
