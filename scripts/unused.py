#!/usr/bin/env python3
"""Finds what nobody uses: functions, classes, methods and constants of the source that nothing refers to.

    scripts/unused.py    looks at this project; tells what it found, one a line, and ends with 1 if anything

Theory
1. Names are compared, not objects: a definition is used if its name is spoken anywhere outside of its own
   body, in the source, the examples, the benchmarks or the code of the documents. Tests do not count. So it
   misses what shares its name with something else, and hardly ever accuses the innocent.
2. An import is no use, nor is a string in `__all__`, except that of a public package: what that exports is
   used, and so are the public methods of the classes among it.
3. What a library calls is used: dunder methods, methods that a base class from outside has too, visitors
   (`visit_…`), and whatever a decorator that is not in `TRANSPARENT` registers somewhere.
4. Strings are use where they stand for a name: in `getattr`, `methodcaller` and their like, as an attribute
   named beside a module (`LazyCommand("pairbus.cli.fault", "fault", …)`), as an annotation in quotes, and in
   the entry points of pyproject.toml.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from pydoc import locate

ROOT = Path(__file__).resolve().parents[1]
#: Packages whose exports are for others.
PUBLIC = ("pairbus", "pairbus.aio", "pairbus.broker", "pairbus.spark", "pairbus.testing")
#: Where else a name may be used.
USERS = ("examples", "bench")
#: Decorators that leave a definition what it is; any other hands it to somebody who calls it.
TRANSPARENT = {
    "abstractmethod", "asynccontextmanager", "cache", "cached_property", "classmethod", "contextmanager",
    "dataclass", "dataclass_transform", "final", "lru_cache", "override", "property", "setter",
    "staticmethod", "total_ordering", "unique", "wraps",
}  # fmt: skip
#: What looks unused and is not: `module:name`, and why.
EXCEPTIONS = {
    "pairbus.testing.fixtures:pytest_configure": "pytest calls it by its name",
}

# An annotation in quotes: `"list[Fault]"`.
_QUOTED = re.compile(r"[\w.]+[\[|][\w.\[\], |]*")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Defined:
    """A definition, and the lines that are its own body."""

    module: str
    name: str
    path: Path
    first: int
    last: int
    owner: str | None = None

    @property
    def key(self) -> str:
        return f"{self.module}:{f'{self.owner}.' if self.owner else ''}{self.name}"


@dataclass
class Source:
    """All that is known of the files: what is defined, where each name is spoken, and what is public."""

    defined: list[Defined] = field(default_factory=list)
    #: Of each class its bases, by their full names as far as they are imported.
    bases: dict[str, list[str]] = field(default_factory=dict)
    spoken: dict[str, list[tuple[Path, int]]] = field(default_factory=lambda: defaultdict(list))
    public: set[str] = field(default_factory=set)

    def is_used(self, one: Defined) -> bool:
        if one.name in self.public or (one.owner in self.public and not one.name.startswith("_")):
            return True
        if one.owner is not None and self.is_inherited(one.owner, one.name):
            return True
        return any(
            path != one.path or not one.first <= line <= one.last for path, line in self.spoken[one.name]
        )

    def is_inherited(self, owner: str, name: str) -> bool:
        """Whether a base class from a library, however far up, has such a method."""
        return any(
            self.is_inherited(base.rpartition(".")[2], name)
            if base.rpartition(".")[2] in self.bases
            else hasattr(locate(base), name)
            for base in self.bases[owner]
        )


def read(root: Path, parse: Callable[[str], ast.Module] = ast.parse) -> Source:
    """Look at a project: the packages below `src`, what uses them, and the documents."""
    source = Source()
    for path in sorted((root / "src").rglob("*.py")):
        module = ".".join(path.relative_to(root / "src").with_suffix("").parts).removesuffix(".__init__")
        tree = parse(path.read_text(encoding="utf-8"))
        source.defined += definitions(tree, module, path)
        origins = imported_names(tree, module, is_package=path.name == "__init__.py")
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                source.bases.setdefault(node.name, []).extend(full_name(base, origins) for base in node.bases)
        if module in PUBLIC:
            source.public.update(exports(tree))
        note_spoken(source, tree, path)
    for path in (path for user in USERS for path in sorted((root / user).rglob("*.py"))):
        note_spoken(source, ast.parse(path.read_text(encoding="utf-8")), path)
    for path in (*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md")), root / "pyproject.toml"):
        if path.exists():
            for word in words_of_code(path.read_text(encoding="utf-8"), path.suffix):
                source.spoken[word].append((path, 0))
    return source


def definitions(tree: ast.Module, module: str, path: Path) -> Iterator[Defined]:
    """Everything at the top of a module that has a name, and the methods of its classes."""
    for node in tree.body:
        if isinstance(node, Definition):
            yield from defined_by(node, module, path)
            for method in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(method, Definition):
                    yield from defined_by(method, module, path, owner=node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (name for target in targets for name in ast.walk(target)):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and not is_dunder(name.id):
                    yield Defined(module, name.id, path, node.lineno, node.end_lineno or 0)


def defined_by(node: Definition, module: str, path: Path, *, owner: str | None = None) -> Iterator[Defined]:
    """A function, class or method, unless rule 3 says that it is used."""
    registered = any(dotted(one).rpartition(".")[2] not in TRANSPARENT for one in node.decorator_list)
    if not (registered or is_dunder(node.name) or node.name.startswith("visit_")):
        yield Defined(module, node.name, path, node.lineno, node.end_lineno or 0, owner)


def imported_names(tree: ast.Module, module: str, *, is_package: bool) -> dict[str, str]:
    """Where the names that a module imports come from."""
    package = module if is_package else module.rpartition(".")[0]
    origins = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    origins[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            origin = ".".join(filter(None, [base if node.level else "", node.module]))
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{origin}.{alias.name}"
    return origins


def full_name(node: ast.expr, origins: dict[str, str]) -> str:
    """`click.Group`, or `Group` imported from `click`, -> `click.Group`"""
    first, _, rest = dotted(node).partition(".")
    return ".".join(filter(None, [origins.get(first, first), rest]))


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def dotted(node: ast.expr) -> str:
    """`pytest.fixture(scope=…)` -> `pytest.fixture`, `Generic[T]` -> `Generic`"""
    match node:
        case ast.Call():
            return dotted(node.func)
        case ast.Subscript():
            return dotted(node.value)
        case ast.Attribute():
            return f"{dotted(node.value)}.{node.attr}"
        case ast.Name():
            return node.id
    return ""


def exports(tree: ast.Module) -> list[str]:
    """What stands in `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and dotted(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def note_spoken(source: Source, tree: ast.Module, path: Path) -> None:
    """Every name that a file speaks, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                source.spoken[name].append((path, node.lineno))
            case ast.alias(name=name, asname=str()):
                source.spoken[name.rpartition(".")[2]].append((path, node.lineno))
            case ast.Call():
                for name in names_in_strings(node):
                    source.spoken[name].append((path, node.lineno))
            case ast.Constant(value=str() as text) if _QUOTED.fullmatch(text):
                for name in re.findall(r"\w+", text):
                    source.spoken[name].append((path, node.lineno))


def names_in_strings(call: ast.Call) -> Iterator[str]:
    """Rule 4."""
    texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if dotted(call.func) in ("getattr", "setattr", "hasattr", "methodcaller", "attrgetter"):
        yield from texts
    elif texts and texts[0].startswith(f"{PUBLIC[0]}."):
        yield from texts[1:]


def words_of_code(text: str, suffix: str) -> Iterator[str]:
    """The names in the code of a document, be it a block or a span; of a settings file, the entry points."""
    if suffix == ".toml":
        yield from re.findall(rf"{PUBLIC[0]}[\w.]*:(\w+)", text)
        return
    for code in re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL):
        yield from re.findall(r"\w+", code)


def unused(
    root: Path, exceptions: dict[str, str], parse: Callable[[str], ast.Module] = ast.parse
) -> list[str]:
    """What nobody uses, and the exceptions that are none any more. `parse` may know the trees already."""
    source = read(root, parse)
    found = {one.key: one for one in source.defined if not source.is_used(one)}
    return [
        f"{one.path.relative_to(root)}:{one.first}: {key.partition(':')[2]}"
        for key, one in found.items()
        if key not in exceptions
    ] + [
        f"scripts/unused.py: {key} is in use: take it out of EXCEPTIONS" for key in exceptions.keys() - found
    ]


if __name__ == "__main__":
    complaints = unused(ROOT, EXCEPTIONS)
    print("\n".join(complaints) or "everything is used")
    sys.exit(bool(complaints))
