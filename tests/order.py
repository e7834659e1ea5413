"""In which order a run with workers begins its tests, and which of them go to one worker together.

A run lasts as long as its processors are busy, and then as long as whatever began too late. So what takes
longest begins first, and what mostly waits comes before what mostly works: beside the tests with Spark, which
keep the processors busy, waiting costs nothing, and at the end of a run everybody would wait for it.
"""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["IN_THIS_ORDER", "LONG", "PARCELS", "began_late", "parcel_of", "parcels_before"]

# Files that go to one worker together. Those with a Spark session share it: another one would be another
# Java, and each takes long over all that it does for the first time. Those with an emulated object store
# share that; they mostly wait. And xdist begins a test when it has the next one for the same worker, which
# for the tutorial, one test of minutes, should be a short one.
PARCELS = {
    f"tests/{room}/test_{file}.py": parcel
    for parcel, room, files in (
        ("Spark", "spark", "kills syphon idle cluster connect connect_loss submit source_streams"),
        ("Spark", "spark", "source_write bill mixture trouble verdict store store_kills source_read"),
        ("Spark", "spark", "source_views page_examples receipt_tables"),
        ("tutorial", "cli", "tutorial"),
        ("tutorial", "suite", "left_out soak"),
        ("objects", "stores", "azurite commit_objects contract status writes"),
        ("objects", "pump", "store_faults"),
        ("objects", "ledger", "retention"),
        ("objects", "client", "shipping"),
        ("objects", "spark", "leash"),
    )
    for file in files.split()
}
# Parcels, files, and directories, which stand for those of their files that are in no parcel and not named
# before. What is not named comes last. Files first by how long they take, most of it waiting; then those that
# work for long.
IN_THIS_ORDER = (
    *dict.fromkeys(PARCELS.values()),
    *(
        "spark/test_hosts",
        "spark/test_executors",
        "drill/test_drill",
        "ordeal/test_ordeals",
        "client/test_fleet",
    ),
    *(
        "dashboard/test_browser",
        "suite/test_azure_trials",
        "crash/test_kill",
        "cli/test_messages_command",
        "lease/test_lease",
    ),
    *("spark/test_local", "cli/test_broker_command", "testing/test_plugin", "simulation/test_side"),
    *("sync/test_processes", "dashboard/test_metrics", "store/test_failed_turn", "client/test_outages"),
    *("spark/test_local_lease", "backlog/test_redrive", "cli/test_wrong_input", "pump/test_contract"),
    *("drill", "crash", "dashboard", "client", "pump", "stores", "lease", "spark", "broker", "faults"),
    *("guards", "simulation", "suite", "bench", "sync", "cli", "ledger", "store", "backlog", "sdk", "node"),
)
# Seconds after which a file that stands in no good place is told.
LONG = 30.0


def parcel_of(nodeid: str) -> str:
    """What goes to one worker as a whole: a file, whose wider fixtures are made once, or several files."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/guards/"):
        return "guards"  # they share what they have read of the sources
    return PARCELS.get(file, file)


def place_of(parcel: str) -> str:
    """The name by which a parcel stands in the order, if it does."""
    path = Path(parcel)
    names = (parcel, f"{path.parent.name}/{path.stem}")
    return next((name for name in names if name in IN_THIS_ORDER), path.parent.name)


def parcels_before(nodeid: str) -> int:
    """How many parcels, files and directories begin before a test in a run with workers."""
    name = place_of(parcel_of(nodeid))
    return (*IN_THIS_ORDER, name).index(name)


def began_late(seconds: Mapping[str, float]) -> list[str]:
    """Those that took long and are known by their directory alone, of parcels by the seconds they took."""
    late = [
        parcel
        for parcel, took in seconds.items()
        if took > LONG and place_of(parcel) == Path(parcel).parent.name
    ]
    return sorted(late, key=lambda parcel: -seconds[parcel])
