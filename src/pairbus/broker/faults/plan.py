"""A scripted plan of faults: what goes wrong when, the same again for the same seed.

docs/faults.md has an example of the form; the arguments of a kind are those of `pairbus.fault_kinds`.
"""

import random
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairbus.errors import ConfigurationError
from pairbus.fault_kinds import ARGUMENTS, FaultKind
from pairbus.plumbing.toml_tables import TomlTable, parse_toml, read_text

from .board import FaultBoard

CLEAR = "clear"


@dataclass(frozen=True, slots=True)
class FaultStep:
    """One thing that a plan does, `at` seconds after its start."""

    at: float
    namespace: str
    kind: str
    entity: str | None = None
    duration: float | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    def apply(self, faults: FaultBoard, now: float) -> None:
        """Do it to the faults of the step's namespace."""
        if self.kind == CLEAR:
            faults.clear(self.entity)
        else:
            faults.set(
                self.kind, now=now, entity=self.entity, duration=self.duration, arguments=self.arguments
            )

    def describe(self) -> dict[str, Any]:
        """The step as plain values, for the log."""
        shown = {"kind": self.kind, "entity": self.entity, "for": self.duration, **self.arguments}
        return {name: value for name, value in shown.items() if value is not None}


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Steps in the order in which they happen."""

    steps: tuple[FaultStep, ...]

    @classmethod
    def load(cls, path: Path, *, seed: int | None = None) -> "FaultPlan":
        """Read a plan from a TOML file; `seed` takes the place of the file's own."""
        return cls.parse(read_text(path), seed=seed, where=str(path))

    @classmethod
    def parse(cls, text: str, *, seed: int | None = None, where: str = "the fault plan") -> "FaultPlan":
        """Read a plan from TOML text."""
        top = parse_toml(text, where=where)
        own_seed = top.take("seed", 0, _is_whole, "a whole number")
        plan = cls.of(top, seed=own_seed if seed is None else seed)
        top.refuse()
        return plan

    @classmethod
    def of(cls, top: TomlTable, *, seed: int) -> "FaultPlan":
        """The plan of the `[[fault]]` tables of a larger file, which has to refuse what is noted."""
        chance = random.Random(seed)
        steps = (_step(table, chance) for table in top.rows("fault"))
        return cls(tuple(sorted((step for step in steps if step is not None), key=lambda step: step.at)))

    def check_namespaces(self, known: Collection[str]) -> None:
        """Raise ConfigurationError if a step names a namespace that is not known."""
        for step in self.steps:
            if step.namespace not in known:
                raise ConfigurationError(
                    f"the fault plan names the namespace {step.namespace!r}; there are {', '.join(known)}"
                )


def _step(table: TomlTable, chance: random.Random) -> FaultStep | None:
    """A step, if it can be made and would work."""
    table.need("at", "namespace", "kind")
    kind = table.choice("kind", (CLEAR, *FaultKind), None)
    step = FaultStep(
        at=_pick(table, "at", chance) or 0.0,
        namespace=table.text("namespace", ""),
        kind=kind or "",
        entity=table.take(
            "entity", None, lambda value: isinstance(value, str), "the path of a queue or topic"
        ),
        duration=None if kind == CLEAR else _pick(table, "for", chance),
        # What they may be depends on the kind; the rehearsal knows.
        arguments={} if kind == CLEAR else table.checked(ARGUMENTS, lambda name, value: None),
    )
    return None if kind is None else _rehearse(step, table)


def _rehearse(step: FaultStep, table: TomlTable) -> FaultStep | None:
    """Do the step to an empty board: bad arguments show now, not in the middle of the night."""
    try:
        step.apply(FaultBoard(), 0.0)
    except ConfigurationError as error:
        table.note(str(error))
        return None
    return step


def _pick(table: TomlTable, key: str, chance: random.Random) -> float | None:
    allowed = "a number of seconds, or two of them to pick a moment in between"
    value = table.take(key, None, _is_time_or_two, allowed)
    if value is None:
        return None
    low, high = sorted(float(bound) for bound in (value if isinstance(value, list) else [value, value]))
    return low if low == high else chance.uniform(low, high)


def _is_time_or_two(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) == 2 and all(map(_is_time, value))
    return _is_time(value)


def _is_time(value: Any) -> bool:
    return (_is_whole(value) or isinstance(value, float)) and 0 <= value <= sys.float_info.max


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
