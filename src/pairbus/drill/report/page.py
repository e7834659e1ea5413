"""A drill as one HTML page that needs nothing else: no network, no script, no other file.

It has two readers. A manager reads the sentence, the figures and the time line; an operator goes on to the
ids, the promises and the bill.
"""

import shlex
from collections.abc import Sequence
from html import escape
from importlib import resources

from pairbus.charts.document import write_document
from pairbus.drill.result import DrillResult
from pairbus.plumbing.wording import counted, write_moment

from .findings import render_bill, render_checks, render_fates, render_options
from .summary import FAILED, SIGNS, judge, key_figures, sum_up, tell_rest
from .timeline import render_timeline
from .wording import write_seconds

# Promises that the verdict names; all are told further down.
_MOST_NAMED = 3
_UNBROKEN = "\N{NO-BREAK SPACE}"
# What must not be concluded from a drill.
_LIMITS = (
    "The two namespaces are embedded ones, on one machine. They speak the protocol of Azure Service Bus to "
    "the official SDK, but have neither its distance, nor its throttling, nor its ways to fail.",
    "Intervals are scaled down, so that a drill takes a minute. In production the failover comes after the "
    "failover interval that you configure, and pings go out once in theirs.",
    "Rates are those of this machine, which ran applications, receivers, namespaces and the syphon at once.",
    "The cost is that of this traffic by a dated price sheet. It is no quote, and has no base charge.",
)
# Hatching, so that what went wrong is told by its texture too.
_PATTERNS = (
    '<svg class="patterns" width="0" height="0" aria-hidden="true" xmlns="http://www.w3.org/2000/svg"><defs>'
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="hatch-ground" width="6" height="6"/><rect class="hatch-line" width="2.4" height="6"/>'
    "</pattern></defs></svg>"
)


def render_drill(result: DrillResult, *, now: float, asked: Sequence[str] = ()) -> str:
    """The whole page, made at `now` (Unix seconds); `asked`: the words of the command beside the seed."""
    style = resources.files(__package__).joinpath("drill.css").read_text(encoding="utf-8")
    sections = [
        _head(result, asked or (result.scenario,)),
        render_timeline(result),
        render_fates(result),
        render_checks(result),
        render_bill(result.cost),
        _notes(result),
        _foot(result, now),
    ]
    title = f"{result.title}: drill {judge(result)}"
    body = "\n".join([f"{_PATTERNS}<main>", *filter(None, sections), "</main>"])
    return write_document(title, style=style, body=body)


def _head(result: DrillResult, asked: Sequence[str]) -> str:
    word = judge(result)
    sign, style = SIGNS.get(word, FAILED)
    cards = "".join(
        f"<div><dt>{escape(figure.name)}</dt><dd><b>{escape(figure.value)}</b>"
        f'<span class="dim">{escape(figure.note)}</span></dd></div>'
        for figure in key_figures(result)
    )
    figures = f'<dl class="figures">{cards}</dl>' if cards else ""
    # A line breaks between sentences, and never between a number and its unit.
    sentences = " ".join(
        f"<span>{escape(sentence.replace(' s outage', f'{_UNBROKEN}s outage'))}</span>"
        for sentence in sum_up(result)
    )
    command = shlex.join(["pairbus", "drill", *asked, "--seed", str(result.seed)])
    rest = f'<p class="rest">{escape(tell_rest(result))}</p>' if tell_rest(result) else ""
    return (
        f'<header><p class="eyebrow">Outage drill · {escape(result.scenario)}</p>'
        f'<h1>{escape(result.title)}</h1><p class="story">{escape(result.story)}</p>'
        f'<div class="verdict {style}"><b class="mark">{sign} {word.capitalize()}</b>'
        f"<p>{sentences}</p>{rest}{_broken_promises(result)}</div>"
        f'{figures}<p class="again">Seed {result.seed}. Run it again: '
        f"<code>{escape(command)}</code></p></header>"
    )


def _broken_promises(result: DrillResult) -> str:
    told = ""
    for word, how in (
        ("failed", "not kept"),
        ("inconclusive", "not to be judged, since the machine was late"),
    ):
        broken = [check.name for check in result.checks if check.word == word]
        names = "; ".join(broken[:_MOST_NAMED])
        more = f"; and {len(broken) - _MOST_NAMED:,} more" if len(broken) > _MOST_NAMED else ""
        of = f"{len(broken):,} of {counted(len(result.checks), 'promise', 'promises')}"
        told += f'<p class="why"><b>{of} {how}:</b> {escape(names)}{more}.</p>' if broken else ""
    return told


def _notes(result: DrillResult) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    told = f'<section aria-labelledby="notes"><h2 id="notes">Notes</h2><ul>{notes}</ul></section>'
    limits = "".join(f"<li>{text}</li>" for text in _LIMITS)
    return (
        f'{told if notes else ""}<section aria-labelledby="limits">'
        f'<h2 id="limits">What this drill does not show</h2><ul class="limits">{limits}</ul></section>'
    )


def _foot(result: DrillResult, now: float) -> str:
    return (
        f'<footer class="dim">{render_options(result)}<p>Run {write_moment(result.began)} UTC for '
        f"{write_seconds(result.seconds)}, seed {result.seed}, Pairbus {escape(result.version)}. Page made "
        f"{write_moment(now)} UTC.</p></footer>"
    )
