"""Charts of amounts over time: areas piled on each other, lines before them, shades behind them.

What a stretch of time holds is its title, which browsers show where the pointer rests.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from .time_axis import TimeAxis, frame, stretch

# Room above the highest mark, for the number of the topmost grid line.
_HEAD = 14
# A chart of this height has room for four grid lines.
_TALL = 200
# What is shorter is still seen.
_LEAST_SHADE = 0.3
# What a scale may end with, times a power of ten.
_ROUND = (1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
WriteValue = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Slots:
    """Stretches of time of one length; the last may end after the axis does."""

    length: float
    count: int
    first: float = 0.0

    def begins(self, number: float) -> float:
        return self.first + number * self.length


@dataclass(frozen=True, slots=True)
class Shade:
    """A stretch of time behind a chart."""

    begins: float
    ends: float
    style: str
    name: str


@dataclass(frozen=True, slots=True)
class Layer:
    """One series: its name, the class of its colour, and a value for each slot."""

    name: str
    style: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class _Ground:
    """Where a chart puts a slot and a value."""

    axis: TimeAxis
    slots: Slots
    height: int
    top: float

    def x(self, number: float) -> str:
        """A slot's edge in thousandths of the width."""
        return f"{self.axis.place(self.slots.begins(number)) * 10:.1f}".removesuffix(".0")

    @property
    def lines(self) -> list[float]:
        """The values that have a grid line."""
        parts = 4 if self.height >= _TALL and self.top % 4 == 0 else 2
        return [self.top * part / parts for part in range(1, parts + 1)]

    def y(self, value: float) -> str:
        return f"{self.height - (self.height - _HEAD) * value / self.top:.1f}".removesuffix(".0")


def draw_areas(
    axis: TimeAxis,
    slots: Slots,
    *,
    areas: Sequence[Layer],
    lines: Sequence[Layer],
    height: int,
    title: str,
    write: WriteValue,
    write_moment: WriteValue = lambda at: f"{at:g} s",
    shades: Sequence[Shade] = (),
) -> str:
    """One chart. `write` says how a value is written."""
    piles = [sum(values) for values in zip(*(layer.values for layer in areas), strict=True)]
    highest = max([*piles, *(value for line in lines for value in line.values)], default=0.0)
    ground = _Ground(axis, slots, height, round_up(highest))
    paths = "".join(_pile(areas, ground)) + "".join(_line(line, ground) for line in lines)
    content = (
        _grid(ground)
        + "".join(_shade(shade, ground) for shade in shades)
        + stretch(paths, height)
        + _numbers(ground, write)
        + "".join(_slots([*areas, *lines], ground, write, write_moment))
    )
    return frame(content, height, title)


def round_up(number: float) -> float:
    """A round number that is not below, and whose half is round too."""
    if number <= 10:
        return next(step for step in (2.0, 4.0, 6.0, 8.0, 10.0) if step >= number)
    size = 10.0 ** (len(str(int(number))) - 1)
    return next(step * size for step in _ROUND if step * size >= number)


def _pile(areas: Sequence[Layer], ground: _Ground) -> Iterator[str]:
    below = [0.0] * ground.slots.count
    for layer in areas:
        above = [low + value for low, value in zip(below, layer.values, strict=True)]
        if any(layer.values):
            path = f"M0,{ground.y(below[0])}{_forth(above, ground)}{_back(below, ground)}Z"
            yield f'<path class="{layer.style}" d="{path}"/>'
        below = above


def _forth(values: Sequence[float], ground: _Ground) -> str:
    """Stairs from left to right; steps of one height are one step."""
    parts = []
    for number, value in enumerate(values):
        if number == 0 or ground.y(value) != ground.y(values[number - 1]):
            parts.append(f"{f'H{ground.x(number)}' if number else ''}V{ground.y(value)}")
    return "".join(parts) + f"H{ground.x(len(values))}"


def _back(values: Sequence[float], ground: _Ground) -> str:
    parts = []
    for number in range(len(values) - 1, -1, -1):
        is_last = number == len(values) - 1
        if is_last or ground.y(values[number]) != ground.y(values[number + 1]):
            parts.append(f"{'' if is_last else f'H{ground.x(number + 1)}'}V{ground.y(values[number])}")
    return "".join(parts) + "H0"


def _line(line: Layer, ground: _Ground) -> str:
    if not any(line.values):
        return ""
    # Before the first of them there is nothing to follow.
    first = max(next(number for number, value in enumerate(line.values) if value) - 1, 0)
    points = " ".join(
        f"{ground.x(number + 0.5)},{ground.y(line.values[number])}"
        for number in range(first, len(line.values))
    )
    return f'<polyline class="line {line.style}" points="{points}"/>'


def _grid(ground: _Ground) -> str:
    heights = (ground.y(value) for value in ground.lines)
    return "".join(f'<line class="grid" x2="100%" y1="{y}" y2="{y}"/>' for y in heights)


def _shade(shade: Shade, ground: _Ground) -> str:
    axis = ground.axis
    if shade.ends < axis.begins or shade.begins >= axis.ends:
        return ""
    x = axis.place(shade.begins)
    width = max(axis.place(shade.ends) - x, _LEAST_SHADE)
    return (
        f'<rect class="{shade.style}" x="{x:.2f}%" width="{width:.2f}%" height="{ground.height}">'
        f"<title>{escape(shade.name)}</title></rect>"
    )


def _numbers(ground: _Ground, write: WriteValue) -> str:
    return "".join(
        f'<text class="dim scale" x="2" y="{float(ground.y(value)) - 3:.1f}">{escape(write(value))}</text>'
        for value in ground.lines
    )


def _slots(
    layers: Sequence[Layer], ground: _Ground, write: WriteValue, write_moment: WriteValue
) -> Iterator[str]:
    """A strip for each slot, which the pointer finds."""
    slots = ground.slots
    for number in range(slots.count):
        told = ", ".join(
            f"{layer.name} {write(layer.values[number])}" for layer in layers if layer.values[number]
        )
        if told:
            x = ground.axis.place(slots.begins(number))
            width = ground.axis.place(slots.begins(number + 1)) - x
            yield (
                f'<rect class="slot" x="{x:.2f}%" width="{width:.2f}%" height="{ground.height}">'
                f"<title>{write_moment(slots.begins(number))}: {escape(told)}</title></rect>"
            )
