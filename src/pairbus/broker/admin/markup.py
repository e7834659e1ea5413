"""XML in and out, for documents of strangers.

A document type declaration is refused before anything of it is read, so that no entity is ever declared or
expanded; nesting and the number of elements are bounded. Names lose their namespace on the way in: each
client chooses its own prefixes, and no two elements of the API differ by namespace alone. On the way out,
names and attributes are written as given, prefixes included, since some clients compare the prefixed text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from .errors import AdminRefused

# The deepest document of the API has 9 levels (the default rule of a subscription with a typed parameter).
MAX_DEPTH = 32
# A rule with a thousand parameters has four thousand elements.
MAX_NODES = 10_000

_SEPARATOR = " "
# What XML 1.0 cannot express, not even as a character reference.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TEXT_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_ATTRIBUTE_ESCAPES = _TEXT_ESCAPES | str.maketrans({'"': "&quot;", "\n": "&#10;", "\t": "&#9;"})


@dataclass(slots=True)
class XmlNode:
    """An element: text or children, hardly ever both."""

    name: str
    text: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: list[XmlNode] = field(default_factory=list)

    def find(self, name: str) -> XmlNode | None:
        """The first child of that name."""
        return next(self.find_all(name), None)

    def find_all(self, name: str) -> Iterator[XmlNode]:
        return (child for child in self.children if child.name == name)

    def text_of(self, name: str) -> str | None:
        """The text of the first child of that name; an empty element counts as absent."""
        child = self.find(name)
        return child.text if child is not None and child.text else None


def leaf(name: str, text: str, attributes: Mapping[str, str] | None = None) -> XmlNode:
    return XmlNode(name, text, attributes or {})


def branch(name: str, children: Sequence[XmlNode], attributes: Mapping[str, str] | None = None) -> XmlNode:
    return XmlNode(name, "", attributes or {}, list(children))


def parse(document: bytes) -> XmlNode:
    """The root of a document; raises `AdminRefused` (400) on anything that is not harmless XML in UTF-8."""
    builder = _Builder()
    parser = expat.ParserCreate("utf-8", _SEPARATOR)
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.add_text
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        raise AdminRefused(400, f"The request body is not well-formed XML: {error}.") from error
    if builder.root is None:
        raise AdminRefused(400, "The request body is empty; send an ATOM entry.")
    return builder.root


def _refuse_doctype(*_: object) -> None:
    raise AdminRefused(400, "A document type declaration is not allowed; send the ATOM entry alone.")


class _Builder:
    """Collects the parser's callbacks into a tree."""

    def __init__(self) -> None:
        self.root: XmlNode | None = None
        self._open: list[XmlNode] = []
        self._count = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= MAX_DEPTH or self._count > MAX_NODES:
            raise AdminRefused(
                400, f"The request body is too large: at most {MAX_DEPTH} levels and {MAX_NODES} elements."
            )
        node = XmlNode(_local(name), "", {_local(key): value for key, value in attributes.items()})
        if self._open:
            self._open[-1].children.append(node)
        else:
            self.root = node
        self._open.append(node)

    def end(self, _: str) -> None:
        self._open.pop()

    def add_text(self, text: str) -> None:
        self._open[-1].text += text


def _local(name: str) -> str:
    return name.rpartition(_SEPARATOR)[2]


def render(root: XmlNode) -> bytes:
    """The document, without declaration, in UTF-8."""
    parts: list[str] = []
    _write(root, parts)
    return "".join(parts).encode()


def _write(node: XmlNode, parts: list[str]) -> None:
    attributes = "".join(
        f' {name}="{_clean(value).translate(_ATTRIBUTE_ESCAPES)}"' for name, value in node.attributes.items()
    )
    if not node.text and not node.children:
        parts.append(f"<{node.name}{attributes} />")
        return
    parts.append(f"<{node.name}{attributes}>{_clean(node.text).translate(_TEXT_ESCAPES)}")
    for child in node.children:
        _write(child, parts)
    parts.append(f"</{node.name}>")


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
