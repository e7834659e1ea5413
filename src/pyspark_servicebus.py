"""Spark registers what it finds in top-level modules named `pyspark_*`: with this, `servicebus` is known."""

from pairbus.spark.source.source import ServiceBusSource as DefaultSource

__all__ = ["DefaultSource"]
