"""Looks at the wheel and the sdist, then uses the wheel as its first user would, in an empty environment."""

import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "dev.txt"
RUN_TIMEOUT = 60.0

# An outage of the primary, from the first send to the backlog, with the installed package alone.
SMOKE = """
from azure.servicebus import ServiceBusMessage
from pairbus import PairedServiceBusClient, SendAvailabilityOptions
from pairbus.broker import Broker

options = SendAvailabilityOptions(failover_interval=0, backlog_queue_count=2)
with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
    primary, secondary = broker["contoso"], broker["contoso-dr"]
    primary.create_queue("orders")
    strings = primary.connection_string, secondary.connection_string
    with PairedServiceBusClient.from_connection_strings(*strings, options=options) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("one"))
        primary.faults.set("refuse")
        sender.send_messages(ServiceBusMessage("two"))
    assert primary.message_count("orders") == 1
    backlog = [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]
    assert sum(secondary.message_count(queue) for queue in backlog) == 1
"""


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_TIMEOUT,
    )
    return listed.stdout.splitlines()


def packaged() -> set[str]:
    """What the package holds, modules and all else; each is wanted in the wheel."""
    return {name.removeprefix("src/") for name in tracked() if name.startswith("src/")}


def faults_of_wheel(path: Path, version: str) -> list[str]:
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        information = f"pairbus-{version}.dist-info"
        metadata = wheel.read(f"{information}/METADATA").decode()
    faults = [f"{name} is not in the wheel" for name in sorted(packaged() - names)]
    others = [name for name in sorted(names - packaged()) if not name.startswith(("pairbus/", information))]
    faults += [f"{name} is in the wheel" for name in others]
    if f"{information}/licenses/LICENSE" not in names:
        faults.append("LICENSE is not in the wheel")
    for line in (f"Version: {version}", "Requires-Python: >=3.11", "License-Expression: MIT"):
        if line not in metadata.splitlines():
            faults.append(f"the metadata do not say '{line}'")
    return faults


def faults_of_sdist(path: Path, version: str) -> list[str]:
    with tarfile.open(path) as sdist:
        names = set(sdist.getnames())
    # The tests look at the whole tree, so all of it is wanted.
    return [f"{name} is not in the sdist" for name in tracked() if f"pairbus-{version}/{name}" not in names]


def pins() -> str:
    """The lock without its hashes: a wheel that was just built has none, and pip wants all or nothing."""
    return "\n".join(re.findall(r"^[\w.-]+==[^\s;\\]+", LOCK.read_text(encoding="utf-8"), flags=re.MULTILINE))


def try_wheel(wheel: Path, version: str, place: Path) -> None:
    """Install it with the embedded broker into an empty environment, and send through an outage."""
    venv.create(place / "env", with_pip=True)
    python = place / "env" / "bin" / "python"
    (place / "pins.txt").write_text(pins(), encoding="utf-8")
    pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", place / "pins.txt", f"{wheel.resolve()}[broker]"], check=True)

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=place, check=True, stdout=subprocess.PIPE, text=True, timeout=RUN_TIMEOUT
        )
        return done.stdout

    command = python.with_name("pairbus")
    assert version in run(command, "--version")
    assert "broker" in run(command, "--help")
    run(python, "-c", SMOKE)


def main(directory: Path) -> int:
    (wheel,), (sdist,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    version = wheel.name.split("-")[1]
    faults = faults_of_wheel(wheel, version) + faults_of_sdist(sdist, version)
    for fault in faults:
        print(f"release: {fault}", file=sys.stderr)
    if faults:
        return 1
    with tempfile.TemporaryDirectory() as place:
        try_wheel(wheel, version, Path(place))
    print(f"release: {wheel.name} and {sdist.name} are whole, and the wheel sends through an outage")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
