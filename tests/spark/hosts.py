"""Hosts that share nothing but a network: each has its own network, its own name, and its own disk.

1. A host is a network namespace with one line to a switch, which is in a namespace too. A line can be cut.
2. What runs on a host has a mount namespace of its own. All that there is can be read, which is how programs
   come to a host, and nothing of it be written. One directory is the host's own disk, empty at first; it has
   the same name on all hosts, so that a path which one tells another leads to something else there.
3. One program runs on a host at a time, with what it starts; a host that is killed ends with all of that.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .processes import kill_tree

__all__ = ["Hosts", "quick_java"]

LIMIT = 20.0
# Of networks for documentation: nothing that is anywhere.
_PREFIX = "198.51.100"
# Mounts that are not the kernel's own are for reading, all but the last one.
_ENTER = """
set -e
mount --make-rprivate /
mount --bind {names} /etc/hosts
mount -t tmpfs tmpfs {disk}
for place in $(awk '$2 !~ "^/(proc|sys|dev)" && $2 != "{disk}" {{print $2}}' /proc/self/mounts | sort -u); do
    mount -o remount,bind,ro "$place" 2>/dev/null || true
done
if touch {outside}/written 2>/dev/null; then echo "a host can write outside of its disk" >&2; exit 99; fi
hostname {host}
mkdir -p {disk}/tmp {disk}/home
cd {disk}
exec "$@"
"""


def quick_java() -> list[str]:
    """Options for a Java that does not live for long, also where Pairbus does not start it."""
    archives = Path(os.environ["PAIRBUS_CLASS_ARCHIVE"]).glob("*.jsa")
    return [
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *list(map("-XX:SharedArchiveFile={}".format, archives))[:1],
    ]


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT)


class Hosts:
    """Some hosts, by their names."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self._directory = directory
        self._here = f"pairbus-{os.getpid()}"
        self._numbers = {name: number for number, name in enumerate(names, 2)}
        #: What each host has for itself.
        self.disk = directory / "disk"
        self._processes: list[subprocess.Popen[bytes]] = []

    def address(self, host: str) -> str:
        return f"{_PREFIX}.{self._numbers[host]}"

    def _space(self, host: str) -> str:
        return f"{self._here}-{host}"

    @contextmanager
    def laid(self) -> Iterator[Hosts]:
        self.disk.mkdir()
        told = [f"{self.address(host)} {host}" for host in self._numbers]
        (self._directory / "names").write_text("\n".join(["127.0.0.1 localhost", *told, ""]))
        made: list[str] = []
        try:
            for host in ("switch", *self._numbers):
                run("ip", "netns", "add", self._space(host))
                made.append(self._space(host))
                run("ip", "-n", self._space(host), "link", "set", "lo", "up")
            run("ip", "-n", self._space("switch"), "link", "add", "switch", "type", "bridge")
            run("ip", "-n", self._space("switch"), "link", "set", "switch", "up")
            for host in self._numbers:
                self._lay(host)
            yield self
        finally:
            for process in self._processes:
                kill_tree(process)
            for space in made:
                run("ip", "netns", "del", space)

    def _lay(self, host: str) -> None:
        switch, there = self._space("switch"), self._space(host)
        ends = ("type", "veth", "peer", "name", "line", "netns", there)
        run("ip", "-n", switch, "link", "add", f"to-{host}", *ends)
        run("ip", "-n", switch, "link", "set", f"to-{host}", "master", "switch")
        run("ip", "-n", switch, "link", "set", f"to-{host}", "up")
        run("ip", "-n", there, "address", "add", f"{self.address(host)}/24", "dev", "line")
        run("ip", "-n", there, "link", "set", "line", "up")

    def start(
        self, host: str, *command: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Run a program on a host; what it says goes to `log_of(host)`."""
        script = _ENTER.format(
            names=shlex.quote(str(self._directory / "names")),
            disk=shlex.quote(str(self.disk)),
            outside=shlex.quote(str(self._directory)),
            host=host,
        )
        java = [*quick_java(), f"-Djava.io.tmpdir={self.disk}/tmp"]
        enter = ["ip", "netns", "exec", self._space(host), "unshare", "--mount", "--uts"]
        given = {
            **os.environ,
            "HOME": f"{self.disk}/home",
            "TMPDIR": f"{self.disk}/tmp",
            "XDG_STATE_HOME": f"{self.disk}/home",
            "SPARK_LOCAL_IP": self.address(host),
            "JAVA_TOOL_OPTIONS": " ".join(java),
            "PYTHONDONTWRITEBYTECODE": "1",
            **(environment or {}),
        }
        with self._log(host).open("ab") as output:
            process = subprocess.Popen(
                [*enter, "sh", "-c", script, "host", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=given,
            )
        self._processes.append(process)
        return process

    def run(self, host: str, *command: str, environment: Mapping[str, str], within: float) -> int:
        """Run a program to its end; its exit code."""
        return self.start(host, *command, environment=environment).wait(within)

    def _log(self, host: str) -> Path:
        return self._directory / f"{host}.log"

    def log_of(self, host: str) -> str:
        path = self._log(host)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def kill(self, host: str) -> None:
        """End all that runs on a host, as when its power goes."""
        asked = ["ip", "netns", "pids", self._space(host)]
        for pid in map(int, subprocess.check_output(asked, timeout=LIMIT).split()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    @contextmanager
    def cut(self, host: str) -> Iterator[None]:
        """Nothing gets through to a host or from it, and nobody is told."""
        run("ip", "-n", self._space("switch"), "link", "set", f"to-{host}", "down")
        yield
        run("ip", "-n", self._space("switch"), "link", "set", f"to-{host}", "up")
