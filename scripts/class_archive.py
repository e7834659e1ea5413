"""Makes what Spark's processes start faster with in the tests.

The archive of Spark's classes, by which each Java starts in half of its time, goes into the directory that is
named, which `tests/conftest.py` knows. Where there is no Java, or it makes no archive, there is none, and the
tests do without.

Processes that Spark starts for Python import it from archives of modules, its own and those of Py4J, in which
nothing is compiled. What was compiled when they were installed is put there, too.
"""

import os
import shutil
import subprocess
import sys
import time
import zipfile
from importlib.util import MAGIC_NUMBER, cache_from_source, find_spec
from pathlib import Path

# Of a quiet machine it takes a minute; one that is too busy to make it begins without.
LOADING_TIMEOUT = 300.0
MAKING_TIMEOUT = 120.0
# Loads what the tests are going to: rows from Python and through it, shuffles, files, a stream.
LOADING = """
import tempfile
from pairbus.spark import open_session

spark = open_session()
columns = "name string, at double"
rows = spark.createDataFrame([("a", 1.0), ("b", 2.0)], columns)
with tempfile.TemporaryDirectory() as place:
    rows.groupBy("name").count().join(rows, "name", "left").orderBy("at").write.parquet(f"{place}/table")
    rows.write.json(f"{place}/lines")
    lines = spark.read.schema(columns).json(f"{place}/lines")
    spark.read.parquet(f"{place}/table").unionByName(lines, allowMissingColumns=True).distinct().collect()
    lines.mapInArrow(lambda batches: batches, columns).toArrow()
    stream = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda batch, number: None)
    stream.trigger(availableNow=True).option("checkpointLocation", f"{place}/kept").start().awaitTermination()
spark.stop()
"""


# What is valid whatever its source says: PEP 552.
UNCHECKED = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
HEADER = 16
# Parts of Spark that no test imports.
UNUSED = ("ml", "mllib", "pandas", "tests")


def compile_modules(archive: Path, installed: Path) -> None:
    """Add to an archive of modules what Python has compiled of those that are installed."""
    fresh = archive.with_suffix(f".{os.getpid()}")
    shutil.copyfile(archive, fresh)
    with zipfile.ZipFile(fresh, "a") as modules:
        there = set(modules.namelist())
        for name in sorted(there):
            compiled = Path(cache_from_source(str(installed / name)))
            if not name.endswith(".py") or f"{name}c" in there or name.split("/")[1] in UNUSED:
                continue
            if compiled.exists():
                modules.writestr(f"{name}c", UNCHECKED + compiled.read_bytes()[HEADER:])
    fresh.replace(archive)


def main(directory: Path) -> int:
    spark = find_spec("pyspark")
    if spark is not None and spark.origin is not None:
        home = Path(spark.origin).parent
        for archive in (home / "python" / "lib").glob("*.zip"):
            compile_modules(archive, home.parent)
    if shutil.which("java") is None:
        return 0
    environment = {**os.environ, "PAIRBUS_CLASS_ARCHIVE": str(directory)}
    try:
        subprocess.run(
            [sys.executable, "-c", LOADING], env=environment, timeout=LOADING_TIMEOUT, capture_output=True
        )
    except subprocess.TimeoutExpired:
        return 0
    # It is made in the background, of a list that is removed at the end.
    deadline = time.monotonic() + MAKING_TIMEOUT
    while any(directory.glob("*.list")) and time.monotonic() < deadline:
        time.sleep(0.1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).absolute()))
