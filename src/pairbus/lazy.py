"""Names that a package offers and imports with their first use, so that importing the package stays cheap.

A package says in one mapping which of its names live in which module, repeats them below `TYPE_CHECKING` for
type checkers, and hands the mapping over:

    __getattr__, __dir__ = on_first_use(__name__, {"pairbus.options": ("EntityState", "StateChange")})
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_first_use(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose names live in other modules."""
    home_of = {name: module for module, names in homes.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return __getattr__, __dir__
