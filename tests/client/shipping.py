"""What tests of shipping ask of the place that is shipped to."""

from pathlib import Path

from pairbus.client.state.records import KIND, RedirectRecord
from pairbus.client.state.shipping import RecordShipper
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.segment import parse_lines, read_segment
from pairbus.ledger.store_files import StoreFiles, read_side_by_side
from pairbus.stores.places import StoreUri
from pairbus.stores.store import open_store


def record(number: int) -> RedirectRecord:
    queue = "contoso/x-servicebus-transfer/0"
    return RedirectRecord(message_id=f"m{number}", path="orders", session_id=None, queue=queue, at=1.0)


def shipped(place: StoreUri) -> list[str]:
    files = StoreFiles.list(open_store(place), KIND)
    data = read_side_by_side(files.store, files.fresh)
    return sorted(row["message_id"] for one in data.values() for row in parse_lines(one).rows)


def gaps(place: StoreUri) -> list[str]:
    return StoreFiles.list(open_store(place), KIND).audit(must_succeed=True).gaps


def has_shipped(shipper: RecordShipper) -> bool:
    shipper.ship()
    told = shipper.status()
    return told.last_error is None and not told.waiting


def ids_in(directory: Path) -> list[str]:
    files = RecordFiles.list(directory, KIND)
    return sorted(row["message_id"] for path in files.closed for row in read_segment(path).rows)
