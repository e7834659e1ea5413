"""What the documents tell a reader to type."""

import re
from collections.abc import Iterator

from .sources import ROOT

__all__ = ["code_blocks", "make_targets", "mentioned_commands", "mentioned_targets"]


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def _typed(text: str) -> Iterator[str]:
    """Each line of a shell block, and each piece of code inside a sentence."""
    for block in code_blocks(text, "(?:sh|console|bash)"):
        yield from (line.strip().removeprefix("$ ") for line in block.splitlines())
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`([^`\n]+)`", prose)


def mentioned_targets(text: str) -> set[str]:
    return {found.group(1) for line in _typed(text) if (found := re.match(r"make ([a-z][a-z-]*)", line))}


def mentioned_commands(text: str) -> set[str]:
    """`pairbus fault set contoso refuse` -> `pairbus fault set`: the words before the arguments."""
    found = set()
    for line in _typed(text):
        words = re.match(r"pairbus((?: [a-z]+)*)", line)
        if words and not line.startswith(("pairbus.", "pairbus[")):
            names = words.group(1).split()
            depth = 2 if names[:1] == ["fault"] else 1
            found.add(" ".join(["pairbus", *names[:depth]]))
    return found
