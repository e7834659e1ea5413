"""An archive of the classes that Spark loads, by which Java starts in half of its time.

Java reads fifteen thousand classes out of some hundred jars at each start of Spark, and checks them. It can
keep them in a file that the next start maps into its memory ("class data sharing").

1. The archive is a file in the user's cache, by the Java and the Spark that it is for. The first run notes
   which classes it loads, which costs nothing, and loads those of SQL even if it needs none: all commands
   share the archive. When it is over, a Java of its own makes it, in the background and with the least
   priority: nobody waits for it.
2. It is published by a rename, so that half an archive is never seen; and Java judges whether an archive
   fits, and goes on without one that does not: a stale one costs nothing.
3. A cache that cannot be written to, and a Java that makes no archive, mean a start without one. What has
   failed once is not tried again for that Java and Spark.
"""

import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .java import find_java

log = logging.getLogger(__name__)
#: A directory for archives, or `off`.
VARIABLE = "PAIRBUS_CLASS_ARCHIVE"
# By then whoever makes one has ended, be it well or not: it takes about half a minute of one core.
_MAKING = 900.0
# Each has 150 MB: that of the Spark before may still be needed beside this one's.
_KEPT = 2
# Kept, since they outlive this process: nobody waits for them.
_makers: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive for one Java, one Spark and one set of options. `directory` exists."""

    java: Path
    directory: Path
    key: str
    options: tuple[str, ...]

    def _path(self, end: str) -> Path:
        return self.directory / f"spark-{self.key}.{end}"

    @property
    def file(self) -> Path:
        return self._path("jsa")

    @property
    def is_there(self) -> bool:
        return self.file.exists()

    @property
    def _classes(self) -> Path:
        return self._path(f"{os.getpid()}.classes")

    @property
    def _listed(self) -> Path:
        return self._classes.with_suffix(".list")

    def java_options(self) -> list[str]:
        """What Java is told: to use the archive, to note what would be in it, or nothing."""
        if self.is_there:
            return [f"-XX:SharedArchiveFile={self.file}"]
        return [f"-XX:DumpLoadedClassList={self._classes}"] if self.is_wanted else []

    @property
    def is_wanted(self) -> bool:
        """Whether the next Java is to note what would be in it."""
        return not (self.is_there or self._path("failed").exists() or self._is_in_making())

    def _is_in_making(self) -> bool:
        begun = [path.stat().st_mtime for path in self.directory.glob(f"spark-{self.key}.*.classes")]
        return any(time.time() - moment < _MAKING for moment in begun)

    def make_later(self, class_path: str) -> None:
        """Have it made of the classes that were noted, if any were. For the end of the process."""
        try:
            # Java, which is still there, may be in the middle of a line, and goes on writing.
            noted, _, _ = self._classes.read_text(encoding="utf-8").rpartition("\n")
            self._listed.write_text(f"{noted}\n", encoding="utf-8")
            self._drop_old()
            maker = subprocess.Popen(
                ["sh", "-c", self._script(class_path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
            _makers.append(maker)
        except OSError as error:
            log.debug("no class archive is made: %s", error)

    def _script(self, class_path: str) -> str:
        fresh = f"{self.file}.{os.getpid()}"
        make = [
            str(self.java),
            "-Xshare:dump",
            f"-XX:SharedClassListFile={self._listed}",
            f"-XX:SharedArchiveFile={fresh}",
            *self.options,
            "-cp",
            class_path,
        ]
        publish, fail = ["mv", fresh, str(self.file)], ["touch", str(self._path("failed"))]
        tidy = ["rm", "-f", fresh, str(self._classes), str(self._listed)]
        nice = "nice -n 19 " if shutil.which("nice") else ""
        return f"{nice}{shlex.join(make)} && {shlex.join(publish)} || {shlex.join(fail)}; {shlex.join(tidy)}"

    def _drop_old(self) -> None:
        found = sorted(self.directory.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime)
        for path in found[: 1 - _KEPT]:
            path.unlink(missing_ok=True)


def find_archive(
    spark_home: Path, options: Sequence[str], environment: Mapping[str, str] = os.environ
) -> ClassArchive | None:
    """The archive, made or to be made; None if it cannot be used. `options` are Java's other options."""
    chosen, java = environment.get(VARIABLE), find_java(environment)
    cache = environment.get("XDG_CACHE_HOME") or f"{Path.home()}/.cache"
    directory = Path(chosen or f"{cache}/pairbus")
    # Spark splits Java's options at spaces.
    if chosen == "off" or java is None or not directory.is_absolute() or len(str(directory).split()) != 1:
        return None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK):
            return None
        paths = [java.resolve(), (spark_home / "jars").resolve()]
        facts = [f"{path} {path.stat().st_mtime_ns}" for path in paths]
    except OSError as error:
        log.debug("no class archive is used: %s", error)
        return None
    key = hashlib.sha256("\n".join([*facts, *options]).encode()).hexdigest()[:16]
    return ClassArchive(java, directory, key, tuple(options))
