"""One root for every exception, and each of them survives pickle: Spark ships them between processes."""

import inspect
import pickle
import types
import typing
from collections.abc import Mapping, Sequence, Set
from enum import EnumType
from importlib import import_module
from typing import Any
from uuid import UUID

from pairbus.errors import PairbusError

from .sources import SRC, module_name, python_files

SAMPLES: dict[Any, Any] = {
    str: "a sample",
    int: 7,
    float: 1.5,
    bool: True,
    bytes: b"\x00\x01",
    UUID: UUID(int=7),
    dict: {"key": "value"},
    list: ["item"],
    tuple: ("item",),
    set: {"item"},
    frozenset: frozenset({"item"}),
    Mapping: {"key": "value"},
    Sequence: ("item",),
    Set: frozenset({"item"}),
    Any: "anything",
    BaseException: ValueError("a cause"),
    Exception: ValueError("a cause"),
}


def exceptions_of_pairbus() -> list[type[BaseException]]:
    found = set()
    for path in python_files(SRC / "pairbus"):
        if path.name == "__main__.py":
            continue
        module = import_module(module_name(path))
        for value in vars(module).values():
            if (
                inspect.isclass(value)
                and issubclass(value, BaseException)
                and value.__module__ == module.__name__
            ):
                found.add(value)
    return sorted(found, key=lambda cls: (cls.__module__, cls.__qualname__))


def sample(annotation: Any) -> Any:
    """A value that fits an annotation, never None where something else would do."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return sample(next(part for part in typing.get_args(annotation) if part is not type(None)))
    if origin is typing.Literal:
        return typing.get_args(annotation)[0]
    kind: Any = origin or annotation
    if kind in SAMPLES:
        return SAMPLES[kind]
    if isinstance(kind, EnumType):
        return next(iter(kind))
    bases = getattr(kind, "__mro__", ())
    near = next((base for base in bases if base in SAMPLES), None)
    return construct(kind) if near is None else kind(SAMPLES[near])


def construct(cls: Any) -> Any:
    """An instance with every parameter of the constructor given."""
    if cls.__init__ is Exception.__init__ or cls.__init__ is PairbusError.__init__:
        return cls("a sample")
    hints = typing.get_type_hints(cls.__init__)
    positional, named = [], {}
    for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]:
        value = sample(hints.get(parameter.name, str))
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        elif parameter.kind is not parameter.VAR_KEYWORD:
            positional.append(value)
    return cls(*positional, **named)


def complaint_about(cls: type[BaseException]) -> str | None:
    # A private one is a signal between functions of one module and never reaches a caller.
    if not issubclass(cls, PairbusError) and not cls.__name__.startswith("_"):
        return "is not below PairbusError"
    error = construct(cls)
    if not str(error):
        return "has nothing to say"
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(error, protocol))
        if [type(copy), *tellings(copy)] != [cls, *tellings(error)]:
            return f"comes out of pickle as {copy!r} instead of {error!r}"
    return None


def tellings(error: BaseException) -> list[str]:
    return [str(error), repr(error.args), repr(vars(error))]


def test_exceptions_have_one_root_and_survive_pickle() -> None:
    found = {f"{cls.__module__}.{cls.__qualname__}": complaint_about(cls) for cls in exceptions_of_pairbus()}
    assert len(found) > 40
    assert {name: complaint for name, complaint in found.items() if complaint} == {}


class Keyworded(PairbusError):
    """As awkward as they come: nothing of the constructor is in `args`."""

    def __init__(self, *, path: str, attempts: int) -> None:
        super().__init__(f"{path} failed {attempts} times")
        self.path = path
        self.attempts = attempts


def test_an_exception_with_keyword_only_arguments_survives() -> None:
    error = Keyworded(path="orders", attempts=3)
    error.add_note("seen by a worker")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, Keyworded)
    assert (str(copy), copy.path, copy.attempts) == ("orders failed 3 times", "orders", 3)
    assert copy.__notes__ == ["seen by a worker"]
