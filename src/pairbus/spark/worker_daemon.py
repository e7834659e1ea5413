"""The process that Python workers of a local session are forked from: ready for work sooner than Spark's own.

1. Spark puts an archive of its modules before everything else on the path. Nothing in it is compiled, so that
   each process would compile it anew, which takes a second of a processor. Where the same Spark is installed
   beside it, that is imported.
2. What a pump is made of is imported once, before the fork, not by each worker. That is of Python alone:
   libraries that start threads when they are imported, such as pyarrow, are left to the workers.
"""

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

_ARCHIVES = ("python", "lib")


def leave_archives(path: list[str]) -> list[str]:
    """Rule 1: the path without Spark's archives, if they are those of the Spark that is installed."""
    archives = [one for one in map(Path, path) if one.suffix == ".zip" and one.parts[-3:-1] == _ARCHIVES]
    rest = [one for one in path if Path(one) not in archives]
    installed = PathFinder.find_spec("pyspark", rest)
    if installed is None or installed.origin is None:
        return path
    home = Path(installed.origin).parent.resolve()
    return rest if all(one.parents[2].resolve() == home for one in archives) else path


def main() -> None:
    sys.path[:] = leave_archives(sys.path)
    for name in ("pyspark.worker", "pairbus.spark.task"):
        import_module(name)
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
