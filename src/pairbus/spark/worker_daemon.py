"""The process that Python workers of a local session are forked from.

Spark's own imports nothing of ours, so that each worker would import all that a pump is made of for itself:
a quarter of a second of a processor, in every slot. Here it is imported once, before the fork. That is of
Python alone: libraries that start threads when they are imported, such as pyarrow, are left to the workers.
"""

from __future__ import annotations

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import pairbus.spark.task  # noqa: F401

if __name__ == "__main__":
    manager()
