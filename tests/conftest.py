"""Tests that need a tool beyond Python, and what happens where the tool is missing.

A test asks for the tool by its fixture (`node`, `java`, `chromium`, `promtool_program`, `proton`, `connect`).
Where it is not installed the test is left out at collection and listed at the end of the run, so that a
machine with Python alone still checks all it can and nothing goes missing silently. With
PAIRBUS_REQUIRE_ALL=1, as in CI, a
missing tool is an error. The rights of root (`hosts`, `lines`, `small_disk`) nobody can install: without them
tests are left out and listed in either case; but for root their programs have to be there.

Under pytest-xdist the tests run in workers, and the process that reports has collected nothing: what a
worker has to add to the summary it sends at its end.
"""

import fcntl
import gc
import hashlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.strategies import text

from pairbus.broker.access.certificate import ensure_certificate
from tests.examples import SHARE
from tests.order import began_late, parcel_of, parcels_before
from tests.surroundings import Surroundings
from tests.waiting import PATIENCE, wait_until

pytest_plugins = ["pairbus.testing", "tests.jitter"]
# The archive of classes that `make test` has made. Without it, Java would make one beside the tests.
ARCHIVE = Path(sys.prefix) / "classes"
os.environ.setdefault("PAIRBUS_CLASS_ARCHIVE", str(ARCHIVE) if any(ARCHIVE.glob("*.jsa")) else "off")
# A query of a test is asked once, of a few rows: Spark takes longer to compile it than to interpret it. In
# CI, and where the caller says otherwise, as `make soak` does, it compiles them as it does for everybody.
IS_CI = os.environ.get("PAIRBUS_REQUIRE_ALL") == "1"
INTERPRET = "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN"
if not IS_CI:
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"{INTERPRET} pyspark-shell")

# How fast examples come says how busy the machine is, and nothing about the code. A run tries the same ones
# as the run before, or nobody could tell a change that broke something from bad luck; `make soak` rolls dice.
BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dice", BUSY)
settings.register_profile("steady", BUSY, derandomize=True, max_examples=BUSY.max_examples // SHARE)
settings.load_profile("steady")

# The directories whose Node packages a fixture needs.
NODE_PROJECTS = {
    "node": Path(__file__).parent / "node",
    "azurite_command": Path(__file__).parent / "azurite",
}
# A cold cache has to fetch some hundred small packages.
NPM_TIMEOUT = 300.0
TRIAL_TIMEOUT = 20.0
# Where Debian puts the modules of its own packages, such as qpid-proton, which no index has built for all.
SYSTEM_PYTHON = "/usr/bin/python3"
AZURITE_STARTS = 60.0
# Bytes of a disk that is going to be full.
SMALL_DISK = 16 << 20


@dataclass(frozen=True)
class Tool:
    """Something that has to be installed, and the programs and modules that show that it is."""

    name: str
    programs: tuple[str, ...]
    modules: tuple[str, ...] = ()
    # Where a program is not enough: a command that shows that it may do its work.
    trial: tuple[str, ...] = ()

    def lacks_programs(self) -> bool:
        return any(shutil.which(program) is None for program in self.programs)

    def is_missing(self) -> bool:
        return (
            self.lacks_programs()
            or any(find_spec(module) is None for module in self.modules)
            or (bool(self.trial) and not succeeds(self.trial))
        )


@cache
def succeeds(command: tuple[str, ...]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=TRIAL_TIMEOUT).returncode == 0
    except subprocess.TimeoutExpired:
        return False


ROOT_RIGHTS = Tool(
    "the rights of root",
    ("ip", "mount", "tc", "umount", "unshare"),
    trial=("unshare", "--net", "--mount", "true"),
)
# By the fixture that a test asks for.
TOOLS = {
    "node": Tool("Node", ("node", "npm")),
    "azurite_command": Tool("Node", ("node", "npm")),
    "java": Tool("Java", ("java",)),
    "chromium": Tool("Chromium", ("chromium",)),
    "promtool_program": Tool("Prometheus", ("promtool",)),
    "proton": Tool("qpid-proton", (SYSTEM_PYTHON,), trial=(SYSTEM_PYTHON, "-c", "import proton")),
    "connect": Tool("Spark Connect", ("java",), ("grpc",)),
    "hosts": ROOT_RIGHTS,
    "lines": ROOT_RIGHTS,
    "small_disk": ROOT_RIGHTS,
}

# What is said at the end of the run: the lines of each section.
SECTIONS = pytest.StashKey[dict[str, list[str]]]()
NPM_FAILURE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background job ignores Ctrl-C, and so would every program that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[SECTIONS] = {}
    wanted = {tool for tool in TOOLS.values() if tool is not ROOT_RIGHTS or os.geteuid() == 0}
    missing = sorted(
        tool.name
        for tool in wanted
        if (tool is not ROOT_RIGHTS and tool.is_missing()) or tool.lacks_programs()
    )
    if missing and IS_CI:
        raise pytest.UsageError(f"PAIRBUS_REQUIRE_ALL=1, but not installed: {', '.join(missing)}")


def tool_missing_for(item: pytest.Item) -> Tool | None:
    wanted = (TOOLS[name] for name in getattr(item, "fixturenames", ()) if name in TOOLS)
    return next((tool for tool in wanted if tool.is_missing()), None)


def count_names(tools: Iterable[Tool]) -> dict[str, int]:
    return dict(Counter(tool.name for tool in tools))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = {item: tool for item in items if (tool := tool_missing_for(item))}
    if missing:
        config.stash[SECTIONS]["tests left out"] = [
            f"left out for want of {tool}: {count}"
            for tool, count in sorted(count_names(missing.values()).items())
        ]
        config.hook.pytest_deselected(items=list(missing))
        items[:] = [item for item in items if item not in missing]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: parcels_before(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    config.option.loadscopereorder = False  # by the number of tests; here a few tests take longest
    scheduler = import_module("xdist.scheduler").LoadScopeScheduling(config, log)
    scheduler._split_scope = parcel_of  # the way that xdist's manual shows, without the class around it
    return scheduler


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Tests stay until the end: the collector of garbage would walk over all of them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install the Node packages before the first test, outside any test's timeout."""
    if session.config.option.collectonly:
        text().validate()  # leaves a table of all characters in a file, which each worker would else make
        return
    wanted = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    for project in [NODE_PROJECTS[name] for name in sorted(wanted & set(NODE_PROJECTS))]:
        try:
            install_node_packages(project)
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", None) or ""
            session.config.stash[NPM_FAILURE] = f"npm ci failed: {error}\n{output}"


def install_all_node_packages() -> None:
    """What `make test` does beforehand, beside other things. If it fails, the tests tell what is wrong."""
    if not TOOLS["node"].is_missing():
        for project in NODE_PROJECTS.values():
            with suppress(OSError, subprocess.SubprocessError):
                install_node_packages(project)


def install_node_packages(project: Path) -> None:
    """Run `npm ci` unless what is installed came from the same lock, or nothing has to be installed."""
    lock_file = project / "package-lock.json"
    if not lock_file.exists():
        return
    lock = hashlib.sha256(lock_file.read_bytes()).hexdigest()
    stamp = project / "node_modules" / ".lock-sha256"
    with lock_file.open("rb") as turnstile:
        fcntl.flock(turnstile, fcntl.LOCK_EX)  # one worker installs, the others find it done
        if stamp.exists() and stamp.read_text(encoding="ascii") == lock:
            return
        subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=project,
            check=True,
            capture_output=True,
            text=True,
            timeout=NPM_TIMEOUT,
        )
        stamp.write_text(lock, encoding="ascii")


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have one authority of the world known here and in programs that are started, in place of all of them.

    The SDK reads those that it trusts for each connection, also one without TLS, and aiohttp when it is
    imported, which takes 30 ms each time. None of them has signed a certificate of the tests.
    """
    known = Path(import_module("certifi").where()).read_text(encoding="utf-8")
    end = "-----END CERTIFICATE-----\n"
    file = tmp_path_factory.mktemp("authority") / "one.pem"
    file.write_text(known[: known.index(end)] + end, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("certifi.where", lambda: str(file))
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Set up before any other fixture of a test, so ended after them: what they leave is told here."""
    before = Surroundings()
    yield
    left = before.restore()
    assert left == [], "a test ends what it starts, and sets back what it sets, whatever becomes of it"


@pytest.fixture(autouse=True)
def usual_logs(nothing_left_behind: None) -> Iterator[None]:
    """What a command sets for its process ends with the test that runs it in ours."""
    root, ours = logging.getLogger(), logging.getLogger("pairbus")
    levels, handlers = {root: root.level, ours: ours.level}, root.handlers[:]
    yield
    for logger, level in levels.items():
        if logger.level != level:  # to set one forgets what all loggers know of theirs
            logger.setLevel(level)
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)


@pytest.fixture(scope="session")
def node(pytestconfig: pytest.Config) -> Path:
    """The Node binary; the packages of tests/node are installed."""
    return find_node(pytestconfig)


def find_node(config: pytest.Config) -> Path:
    failure = config.stash.get(NPM_FAILURE, None)
    if failure is not None:
        pytest.fail(failure, pytrace=False)
    found = shutil.which("node")
    assert found is not None
    return Path(found)


@pytest.fixture(scope="session")
def azurite_command(pytestconfig: pytest.Config) -> list[str]:
    """What starts an emulator of Azure's Blob Storage that keeps all in memory; its port may follow."""
    project = NODE_PROJECTS["azurite_command"]
    server = project / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    options = ["--loose", "--skipApiVersionCheck", "--inMemoryPersistence", "--disableTelemetry"]
    return [str(find_node(pytestconfig)), "--require", str(project / "continue.js"), str(server), *options]


@pytest.fixture(scope="session")
def azurite(
    azurite_command: list[str], hold_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """HOST:PORT of an emulator of Azure's Blob Storage."""
    port = hold_port()
    with subprocess.Popen(
        [*azurite_command, "--blobPort", str(port), "--silent"],
        cwd=tmp_path_factory.mktemp("azurite"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_until(
                lambda: listens(port) or process.poll() is not None, what="Azurite", within=AZURITE_STARTS
            )
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(PATIENCE)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path], None]]:
    """Puts a directory on a disk of its own."""
    mounted: list[Path] = []

    def mount(path: Path) -> None:
        path.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(path)],
            check=True,
            timeout=PATIENCE,
        )
        mounted.append(path)

    yield mount
    for path in mounted:
        subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=PATIENCE)


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """HOST:PORT of an emulator of S3, which keeps all in memory."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield ":".join(map(str, server.get_host_and_port()))
    finally:
        server.stop()


@pytest.fixture(scope="session")
def java() -> Path:
    """The Java binary, without which Spark does not run."""
    found = shutil.which("java")
    assert found is not None
    return Path(found)


@pytest.fixture(scope="session")
def proton() -> Path:
    """The interpreter that has qpid-proton."""
    return Path(SYSTEM_PYTHON)


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The Chromium binary, in which pages are looked at."""
    found = shutil.which("chromium")
    assert found is not None
    return Path(found)


@pytest.fixture(scope="session")
def promtool_program() -> Path:
    """Prometheus' own checker of rules."""
    found = shutil.which("promtool")
    assert found is not None
    return Path(found)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Certificate and key of this machine, one pair for all brokers of a run."""
    made = ensure_certificate(tmp_path_factory.mktemp("certificate"), now=time.time())
    return made.cert_path, made.key_path


@pytest.fixture(scope="session")
def hold_port() -> Iterator[Callable[[], int]]:
    """Gives a port for a server that a test starts later, or never.

    It is bound until the run ends, so nobody else is given it, and not listened on, so whoever names it may.
    """
    with ExitStack() as held:

        def hold() -> int:
            holder = held.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            return int(holder.getsockname()[1])

        yield hold


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["sections"] = session.config.stash[SECTIONS]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a worker has to say; what several say in the same words is said once."""
    for title, lines in getattr(node, "workeroutput", {}).get("sections", {}).items():
        said = node.config.stash[SECTIONS].setdefault(title, [])
        said += [line for line in lines if line not in said]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for title, lines in config.stash[SECTIONS].items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.line(line)
    if config.getoption("numprocesses", None):
        tell_who_began_late(terminalreporter)


def tell_who_began_late(terminalreporter: pytest.TerminalReporter) -> None:
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[parcel_of(report.nodeid)] += report.duration
    if late := began_late(seconds):
        terminalreporter.section("long, and without a place of their own in tests/order.py")
        for parcel in late:
            terminalreporter.line(f"{seconds[parcel]:.0f} s {parcel}")
