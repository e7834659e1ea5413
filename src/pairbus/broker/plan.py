"""A scripted plan of faults: what goes wrong when, the same again for the same seed.

seed = 7

[[fault]]
at = 2.0                    # seconds after the start; [low, high] picks a moment in between
namespace = "contoso"
kind = "refuse"
for = [5.0, 10.0]           # leave it out to keep the fault
entity = "orders"           # leave it out for the whole namespace; also: seconds, condition, every, up,
down

[[fault]]
at = 30
namespace = "contoso"
kind = "clear"
"""

import random
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairbus.broker.faults import FaultBoard, FaultKind
from pairbus.errors import ConfigurationError

__all__ = ["FaultPlan", "Step"]

CLEAR = "clear"
_STEP_FIELDS = {"at", "namespace", "kind", "for", "entity", "seconds", "condition", "every", "up", "down"}
_ARGUMENTS = ("seconds", "condition", "every", "up", "down")


@dataclass(frozen=True, slots=True)
class Step:
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
            faults.set(self.kind, now=now, entity=self.entity, duration=self.duration, **self.arguments)


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Steps in the order in which they happen."""

    steps: tuple[Step, ...]

    @classmethod
    def load(cls, path: Path, *, seed: int | None = None) -> "FaultPlan":
        """Read a plan from a TOML file; `seed` takes the place of the file's own."""
        try:
            return cls.parse(path.read_text(encoding="utf-8"), seed=seed)
        except OSError as error:
            raise ConfigurationError(f"cannot read the fault plan {path}: {error.strerror}") from error
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @classmethod
    def parse(cls, text: str, *, seed: int | None = None) -> "FaultPlan":
        """Read a plan from TOML text."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"the fault plan is not valid TOML: {error}") from None
        unknown = document.keys() - {"seed", "fault"}
        if unknown:
            wrong = ", ".join(sorted(unknown))
            raise ConfigurationError(f"a fault plan has 'seed' and [[fault]] tables, not {wrong}")
        chance = random.Random(document.get("seed", 0) if seed is None else seed)
        tables = enumerate(document.get("fault", []), start=1)
        steps = [_step(table, number, chance) for number, table in tables]
        return cls(tuple(sorted(steps, key=lambda step: step.at)))


def _step(table: dict[str, Any], number: int, chance: random.Random) -> Step:
    where = f"fault {number} of the plan"
    unknown = table.keys() - _STEP_FIELDS
    if unknown:
        wrong, right = ", ".join(sorted(unknown)), ", ".join(sorted(_STEP_FIELDS))
        raise ConfigurationError(f"{where} does not know {wrong}; it takes {right}")
    missing = {"at", "namespace", "kind"} - table.keys()
    if missing:
        raise ConfigurationError(f"{where} needs {', '.join(sorted(missing))}")
    step = Step(
        at=_pick(table["at"], f"'at' of {where}", chance),
        namespace=str(table["namespace"]),
        kind=str(table["kind"]),
        entity=table.get("entity"),
        duration=_pick(table["for"], f"'for' of {where}", chance) if "for" in table else None,
        arguments={name: table[name] for name in _ARGUMENTS if name in table},
    )
    _check(step, where)
    return step


def _check(step: Step, where: str) -> None:
    if step.kind != CLEAR and step.kind not in set(FaultKind):
        kinds = ", ".join(FaultKind)
        raise ConfigurationError(
            f"{where}: there is no fault {step.kind!r}; choose {CLEAR} or one of {kinds}"
        )
    try:
        step.apply(FaultBoard(), 0.0)  # a rehearsal: bad arguments show now, not in the middle of the night
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _pick(value: Any, what: str, chance: random.Random) -> float:
    bounds = value if isinstance(value, list) else [value, value]
    if len(bounds) != 2 or not all(isinstance(bound, int | float) and bound >= 0 for bound in bounds):
        raise ConfigurationError(f"{what} is a number of seconds, or two of them to pick a moment in between")
    low, high = sorted(float(bound) for bound in bounds)
    return low if low == high else chance.uniform(low, high)
