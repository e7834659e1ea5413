"""What a drill found in tables: every message by its fate, the checks, the bill, the options."""

from collections import Counter
from collections.abc import Iterable
from html import escape

from pairbus.charts.document import draw_legend, draw_table
from pairbus.charts.time_axis import frame
from pairbus.drill.result import Cost, CostLine, DrillResult, EntityResult, MessageFate
from pairbus.plumbing.wording import counted, write_money

from .summary import FAILED, SIGNS, fates_of
from .wording import write_seconds

# Shown at once; more are folded.
_MOST_SHOWN = 8
# More than these are in the JSON, and make the page slow.
_MOST_IDS = 500
_STYLES = {
    "arrived": "primary",
    "arrived more than once": "twice",
    "waiting": "backlog",
    "dead-lettered": "spool",
    "refused": "refused",
    "unknown": "unknown",
    "lost": "lost",
}
# The worst first.
_FATES: tuple[MessageFate, ...] = ("lost", "unknown", "refused", "dead-lettered", "waiting", "delivered")


def render_fates(result: DrillResult) -> str:
    """The verdict: in one bar, by entity, and by the ids that did not simply arrive."""
    late = counted(result.verdict.out_of_order, "message", "messages")
    order = f'<p class="dim">{late} came out of order.</p>' if result.verdict.out_of_order else ""
    return (
        '<section aria-labelledby="fates"><h2 id="fates">What became of every message</h2>'
        f"{_fate_bar(result)}{order}{_entities(result)}{_unaccounted(result)}</section>"
    )


def _fate_bar(result: DrillResult) -> str:
    fates = [(name, number) for name, number in fates_of(result) if number > 0]
    total = sum(number for _, number in fates)
    if not total:
        return '<p class="dim">No messages were sent.</p>'
    # What is rare is what one looks for: it gets a width that is seen.
    widths = [max(100 * number / total, 0.8) for _, number in fates]
    x, bars = 0.0, []
    for (name, number), share in zip(fates, widths, strict=True):
        width = 100 * share / sum(widths)
        bars.append(
            f'<rect class="{_STYLES[name]}" x="{x:.2f}%" width="{width:.2f}%" height="22">'
            f"<title>{name}: {number:,}</title></rect>"
        )
        x += width
    told = ", ".join(f"{number:,} {name}" for name, number in fates)
    legend = draw_legend((_STYLES[name], name, f"{number:,}") for name, number in fates)
    return f'<div class="fates">{frame("".join(bars), 22, told)}</div>{legend}'


def _entities(result: DrillResult) -> str:
    if not result.entities:
        return ""
    verdict = result.verdict
    found = Counter((one.path, one.fate) for one in verdict.unaccounted)
    named = Counter(one.fate for one in verdict.unaccounted)
    counted: dict[MessageFate, int] = {
        "waiting": verdict.waiting,
        "dead-lettered": verdict.dead_lettered,
        "unknown": verdict.unknown,
    }
    # A column for a fate that no message met would take room from those that matter, and one of which not
    # every message is named would show too few.
    fates = [fate for fate, number in counted.items() if number and named[fate] == number]
    head = ["entity", "sent", "arrived", "twice", "lost", "refused", *fates, "to primary", "to backlog",
            "to spool", "failovers", "pings", "longest send"]  # fmt: skip
    rows = [_entity_row(one, [found.get((one.path, fate), 0) for fate in fates]) for one in result.entities]
    return draw_table(head, rows, caption="Messages by entity")


def _entity_row(entity: EntityResult, fates: Iterable[int]) -> list[str]:
    arrived = (entity.sent, entity.delivered, entity.duplicated, entity.missing, entity.refused)
    ways = (entity.to_primary, entity.to_backlog, entity.to_spool, entity.failovers, entity.pings)
    numbers = [f"{number:,}" for number in (*arrived, *fates, *ways)]
    return [entity.path, *numbers, write_seconds(entity.longest_send) if entity.longest_send else "–"]


def _unaccounted(result: DrillResult) -> str:
    ids = sorted(result.verdict.unaccounted, key=lambda one: (_FATES.index(one.fate), one.path))
    if not ids:
        verdict = result.verdict
        simply = verdict.sent == verdict.delivered > 0 and not verdict.duplicated
        return '<p class="dim">Every message simply arrived, once, where it belongs.</p>' if simply else ""
    caption = "Messages that did not simply arrive, by id"
    head = ("message id", "entity", "fate", "note")
    rows = [
        (one.message_id, one.path, "arrived" if one.fate == "delivered" else one.fate, one.note)
        for one in ids[:_MOST_IDS]
    ]
    drawn = draw_table(head, rows[:_MOST_SHOWN], caption=caption, style="words")
    rest = rows[_MOST_SHOWN:]
    if rest:
        more = draw_table(head, rest, caption="The others", style="words")
        drawn += f"<details><summary>{counted(len(rest), 'more id', 'more ids')}</summary>{more}</details>"
    verdict = result.verdict
    total = verdict.sent - verdict.delivered + verdict.duplicated
    left = max(total, len(ids)) - len(rows)
    return drawn + (f'<p class="dim">And {left:,} more, see the JSON of the drill.</p>' if left > 0 else "")


def render_checks(result: DrillResult) -> str:
    """What was promised, and whether it came true."""
    if not result.checks:
        return ""
    items = "".join(
        f'<li class="{style}"><b class="mark">{sign} {check.word}</b><span><b>{escape(check.name)}</b> '
        f'<span class="dim">{escape(check.detail)}</span></span></li>'
        for check in sorted(result.checks, key=lambda check: check.passed)
        for sign, style in [SIGNS.get(check.word, FAILED)]
    )
    kept = sum(check.passed for check in result.checks)
    return (
        '<section aria-labelledby="checks"><h2 id="checks">What was promised</h2>'
        f'<p class="dim">{kept:,} of {counted(len(result.checks), "promise", "promises")} kept.</p>'
        f'<ul class="checks">{items}</ul></section>'
    )


def render_bill(cost: Cost | None) -> str:
    """What the traffic of the drill would cost, by stage."""
    if cost is None:
        return ""
    # Of so little traffic most stages cost nothing yet; what they would cost grows with their operations.
    most = max((line.operations for line in cost.stages), default=0)
    body = "".join(_bill_row(line, most) for line in cost.stages)
    derived = any(line.derived for line in cost.stages)
    notes = [
        f"Prices of {cost.prices_as_of}. In outages: {write_money(cost.in_outages)} {cost.currency}.",
        "Derived: not counted but reckoned from what the primary took." if derived else "",
        f"{cost.note[:1].upper()}{cost.note[1:].removesuffix('.')}." if cost.note else "",
    ]
    told = "".join(f'<p class="dim">{escape(note)}</p>' for note in notes if note)
    return (
        '<section aria-labelledby="bill"><h2 id="bill">What it cost</h2><div class="wide">'
        '<table class="bill"><caption>The bill by stage</caption><thead><tr><th scope="col">stage</th>'
        f'<th scope="col">operations</th><th scope="col">{escape(cost.currency)}</th>'
        f'<th scope="col" class="bars">operations, drawn</th></tr></thead><tbody>{body}</tbody><tfoot><tr>'
        f'<th scope="row">in all</th><td>{cost.operations:,}</td><td>{escape(write_money(cost.total))}</td>'
        f"<td></td></tr></tfoot></table></div>{told}</section>"
    )


def _bill_row(line: CostLine, most: int) -> str:
    share = 100 * line.operations / most if most > 0 else 0.0
    style = "derived" if line.derived else "backlog" if "backlog" in line.name else "primary"
    name = f"{line.name} (derived)" if line.derived else line.name
    amount = write_money(line.cost)
    told = f"<title>{escape(name)}: {line.operations:,} operations, {escape(amount)}</title>"
    bar = frame(f'<rect class="{style}" width="{share:.1f}%" height="14" rx="2">{told}</rect>', 14, "")
    return (
        f'<tr><th scope="row">{escape(name)}</th><td>{line.operations:,}</td><td>{escape(amount)}</td>'
        f'<td class="bars">{bar}</td></tr>'
    )


def render_options(result: DrillResult) -> str:
    """What the drill was run with."""
    if not result.options:
        return ""
    rows = [(str(name), str(value)) for name, value in result.options.items()]
    table = draw_table(("option", "value"), rows, caption="Options of the drill", style="words")
    return f"<details><summary>Options of this drill</summary>{table}</details>"
