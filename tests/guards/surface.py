"""The public surface: the packages that a user imports from, and what they offer."""

import pkgutil
from functools import cache
from importlib import import_module
from types import ModuleType

import pairbus
from pairbus.errors import PairbusError

__all__ = ["PUBLIC", "all_errors", "offered", "public_names"]

#: What users import from; all else may change without a word.
PUBLIC = ("pairbus", "pairbus.aio", "pairbus.broker", "pairbus.spark", "pairbus.testing")


def offered(package: str) -> dict[str, object]:
    """The names that a public package offers, and what they stand for."""
    module = import_module(package)
    return {name: getattr(module, name) for name in module.__all__ if not name.startswith("_")}


def public_names() -> dict[str, object]:
    return {name: value for package in PUBLIC for name, value in offered(package).items()}


def _modules() -> list[ModuleType]:
    found = pkgutil.walk_packages(pairbus.__path__, "pairbus.")
    return [import_module(info.name) for info in found if not info.name.endswith("__main__")]


@cache
def all_errors() -> set[type[PairbusError]]:
    """Every error of ours, wherever it is defined."""
    _modules()
    found, pending = set[type[PairbusError]](), [PairbusError]
    while pending:
        error = pending.pop()
        found.add(error)
        pending += error.__subclasses__()
    return {error for error in found if error.__module__.startswith("pairbus.")}
