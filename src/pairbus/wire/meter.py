"""Counts what a transport does that its namespace bills, where it happens, as the namespace itself would.

A delivery that crosses on its way with a new grant of credit is taken for one of the new grant here, and for
one of the old grant there. Apart from that the two counts are the same, empty receives included.
"""

from collections.abc import Sequence

from pairbus.ledger.operation_log import OperationSums
from pairbus.metering import UNIT_BYTES, units
from pairbus.pairing.failures import Fate
from pairbus.stages import Region, stages_by_kind


class Meter:
    """The meter of one namespace; without a recorder it counts nothing.

    For whom is recorded tells what an operation is for: a pump sends to the primary and receives from the
    backlog. A client makes requests at both sides: `region` says at which one this is.
    """

    __slots__ = ("_namespace", "_recorder", "_stages", "is_on")

    def __init__(
        self, namespace: str = "", recorder: OperationSums | None = None, *, region: Region | None = None
    ) -> None:
        self._namespace = namespace
        self._recorder = recorder
        self._stages = {} if recorder is None else stages_by_kind(recorder.role, region=region)
        self.is_on = recorder is not None

    def note(self, entity: str, kind: str, *, count: int = 0, unknown: int = 0, size: int = 0) -> None:
        """Operations that carry little; `unknown` ones were not answered, and may have been made."""
        if self._recorder is not None and (count or unknown):
            self._recorder.record(
                self._namespace,
                entity,
                stage=self._stages[kind],
                kind=kind,
                count=count,
                unknown=unknown,
                size=size,
                size_class=units(size) if count + unknown == 1 else 1,
            )

    def note_request(self, entity: str, fate: Fate, size: int) -> None:
        """A request to the management of an entity, and what became of it."""
        self.note(entity, "management", count=int(fate == "taken"), unknown=int(fate == "unknown"), size=size)

    def note_administered(self, entity: str, fate: Fate) -> None:
        """A request to the administration address, which is billed even if it was refused."""
        known = fate in ("taken", "refused")
        self.note(entity, "admin", count=int(known), unknown=int(fate == "unknown"))

    def note_sizes(self, entity: str, kind: str, sizes: Sequence[int], *, known: bool = True) -> None:
        """One operation for each of these sizes."""
        recorder = self._recorder
        if recorder is None or not sizes:
            return
        by_class: dict[int, list[int]] = {1: list(sizes)}
        if max(sizes) > UNIT_BYTES:
            by_class = {}
            for size in sizes:
                by_class.setdefault(units(size), []).append(size)
        for of_size, some in by_class.items():
            recorder.record(
                self._namespace,
                entity,
                stage=self._stages[kind],
                kind=kind,
                count=len(some) if known else 0,
                unknown=0 if known else len(some),
                size=sum(some),
                size_class=of_size,
            )
