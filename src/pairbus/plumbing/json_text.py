"""Text that should be JSON, from files and peers that anybody may have written."""

import json
from types import NoneType
from typing import Any

#: What a value should look like: types; `[shape]`, a list of such; or an object by its names, see `fits`.
Shape = type | tuple[type, ...] | list["Shape"] | dict[str, "Shape"]
NUMBER: Shape = (int, float)
MAYBE_TEXT: Shape = (str, NoneType)
# No count or time is that large, and what it is added to or divided by might not be a number any more.
_TOO_LARGE = 1 << 63
#: The last moment that calendars can tell, as Unix time.
LAST_MOMENT = 253_402_300_799


class _Calendar(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, int | float) and 0 <= value <= LAST_MOMENT


class _Moment(metaclass=_Calendar):
    """A Unix time that calendars can tell: another one ends whoever writes it as a date."""


MOMENT: Shape = _Moment
MAYBE_MOMENT: Shape = (_Moment, NoneType)


def parse_json(text: str | bytes) -> Any:
    """What the text says. ValueError for whatever is no JSON, be it bytes, or nested without end."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def fits(value: Any, shape: Shape) -> bool:
    """Whether a value has a shape: names that end with `?` may be missing or null, `*` stands for all."""
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(_has(value, name, part) for name, part in shape.items())
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(one, shape[0]) for one in value)
    return isinstance(value, shape) and not (isinstance(value, int | float) and not abs(value) < _TOO_LARGE)


def _has(value: dict[str, Any], name: str, shape: Shape) -> bool:
    if name == "*":
        return all(fits(one, shape) for one in value.values())
    if name.endswith("?"):
        found = value.get(name[:-1])
        return found is None or fits(found, shape)
    return name in value and fits(value[name], shape)
