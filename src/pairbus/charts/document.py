"""What pages are made of besides charts: the frame of a page that needs nothing else, tables, legends."""

from collections.abc import Iterable, Sequence
from html import escape


def write_document(title: str, *, style: str, body: str) -> str:
    """One HTML file: no network, no script, no other file; light and dark, at a desk and on a phone."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>\n{style}</style></head>\n<body>{body}</body></html>\n"
    )


def draw_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str, style: str = "") -> str:
    """A table that scrolls by itself where it is too wide."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="{style or "numbers"}"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def draw_legend(entries: Iterable[tuple[str, str, str]]) -> str:
    """What colours mean: the class of each, its name, and what there was of it in all, or nothing."""
    items = "".join(
        f'<li><i class="key {style}"></i>{escape(name)}{f" <b>{value}</b>" if value else ""}</li>'
        for style, name, value in entries
    )
    return f'<ul class="legend">{items}</ul>'
