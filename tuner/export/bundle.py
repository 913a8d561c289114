"""Parts of this package as one text that runs without it: definitions with all they need, cut out
of its own modules.

A script that trains the very network that was tuned must not be a second network written by hand.
So it is made of the first one's source: from a few names, everything they refer to inside the
package is followed and copied, imports from elsewhere are collected. Modules are read, never
imported.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "tuner"
_ROOT = Path(__file__).parent.parent
_FOR_OUR_TOOLS = re.compile(r"\s*# (?:noqa|type: ignore|fmt:).*$", re.MULTILINE)

_NOTHING: Mapping[str, str] = {}

Name = tuple[str, str]
"""A module of this package and a name at its top level."""


@dataclass(slots=True)
class _Module:
    """What is at the top level of a module: its definitions, and what its imports bind."""

    lines: list[str]
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    ours: dict[str, Name] = field(default_factory=dict)
    others: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name -> (module, name in it; empty for a plain import)."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Definitions in an order in which they can be executed, and the imports they need."""

    imports: str
    aliases: str
    """Names of this package that only annotations use."""
    definitions: str


@dataclass(slots=True)
class _Found:
    """What was met on the way from the roots."""

    instead: Mapping[str, str]
    wanted: dict[Name, ast.stmt] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    takes_from: dict[str, dict[str, None]] = field(default_factory=dict)
    annotated: set[str] = field(default_factory=set)


def bundle(
    roots: Iterable[Name], *, first: str | None = None, instead: Mapping[str, str] = _NOTHING
) -> Bundle:
    """The definitions of `roots` and of all that they refer to.

    Args:
        roots: what is wanted.
        first: the module to begin the text with, for a reader's sake; it may only refer to the
            others from inside functions or annotations.
        instead: module -> another whose definitions are taken where both have the name.

    Raises:
        ValueError: two different definitions of one name.
    """
    found = _Found(instead)
    for root in roots:
        _follow(root, found)
    order = _providers_first(found.takes_from)
    if first is not None:
        order = [first, *(name for name in order if name != first)]
    texts: dict[str, str] = {}
    for module in order:
        wanted = [(name, node) for (home, name), node in found.wanted.items() if home == module]
        for name, node in sorted(wanted, key=lambda each: each[1].lineno):
            text = _text(module, node)
            if texts.setdefault(name, text) != text:
                raise ValueError(
                    f"{module}.{name} is another definition of the name {name!r}; rename one of "
                    "the two"
                )
    # A protocol that only annotations name would be read and never used.
    only_named = sorted(found.annotated - texts.keys())
    aliases = f"{' = '.join(only_named)} = Any  # named in annotations only" if only_named else ""
    if only_named:
        found.imports["Any"] = ("typing", "Any")
    return Bundle(_import_lines(found.imports), aliases, _joined(texts.values()))


def names_in(module: str, expression: str) -> list[Name]:
    """The top-level names of `module` that an expression refers to, as roots."""
    names, read = _names(ast.parse(expression)), _read(module)
    own = [(module, name) for name in names if name in read.definitions]
    return own + [read.ours[name] for name in names if name in read.ours]


def entry_text(module: str, table: str, key: str) -> str:
    """The source of the value of `key` in a dictionary at the top level of a module."""
    node = _read(module).definitions[table]
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    assert isinstance(node.value, ast.Dict)
    for found, value in zip(node.value.keys, node.value.values, strict=True):
        if isinstance(found, ast.Constant) and found.value == key:
            return ast.unparse(value)
    raise KeyError(key)


def _follow(name: Name, found: _Found) -> Name:
    """Adds a definition and all that it refers to; the name again, where it is defined."""
    name = _defined(name)
    other_home = found.instead.get(name[0])
    if other_home is not None and name[1] in _read(other_home).definitions:
        name = other_home, name[1]
    if name in found.wanted:
        return name
    module = _read(name[0])
    node = module.definitions[name[1]]
    found.wanted[name] = node
    providers = found.takes_from.setdefault(name[0], {})
    annotations = _annotations(node)
    in_annotations = {other for annotation in annotations for other in _names(annotation)}
    used = _names(node, without=annotations)
    for other in [*used, *sorted(in_annotations - set(used))]:
        if other in module.others:
            found.imports[other] = module.others[other]
        elif other in module.definitions or other in module.ours:
            if other not in used:
                found.annotated.add(other)
                continue
            origin = _follow(module.ours.get(other, (name[0], other)), found)
            providers.setdefault(origin[0])
    return name


def _defined(name: Name) -> Name:
    """Where a name is defined: a package's front may only hand it on."""
    module = _read(name[0])
    if name[1] not in module.definitions and name[1] in module.ours:
        return _defined(module.ours[name[1]])
    return name


def _providers_first(takes_from: Mapping[str, Iterable[str]]) -> list[str]:
    order: dict[str, None] = {}

    def visit(module: str) -> None:
        for other in takes_from[module]:
            if other not in (module, *order):
                visit(other)
        order.setdefault(module)

    for module in takes_from:
        visit(module)
    return list(order)


@functools.cache
def _read(name: str) -> _Module:
    path = _ROOT.joinpath(*name.split(".")[1:])
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(
        encoding="utf-8"
    )
    module = _Module(source.splitlines())
    for node in _top_level(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            for alias in node.names:
                bound = alias.asname or alias.name
                if node.module.partition(".")[0] == PACKAGE:
                    assert bound == alias.name, f"{name} renames {alias.name} on import"
                    module.ours[bound] = (node.module, alias.name)
                else:
                    module.others[bound] = (node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                module.others[alias.asname or alias.name.partition(".")[0]] = (alias.name, "")
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            module.definitions[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            module.definitions[node.targets[0].id] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            module.definitions[node.target.id] = node
    return module


def _top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements, also those that only a type checker sees."""
    for node in tree.body:
        if (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        ):
            yield from node.body
        else:
            yield node


def _names(node: ast.AST, without: Sequence[ast.AST] = ()) -> list[str]:
    if node in without:
        return []
    own = [node.id] if isinstance(node, ast.Name) else []
    return own + [name for child in ast.iter_child_nodes(node) for name in _names(child, without)]


def _annotations(node: ast.AST) -> list[ast.AST]:
    """What stands after colons and arrows: with deferred evaluation, it need not exist."""
    found: list[ast.AST | None] = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.arg | ast.AnnAssign):
            found.append(inner.annotation)
        elif isinstance(inner, ast.FunctionDef):
            found.append(inner.returns)
    return [each for each in found if each is not None]


def _text(module: str, node: ast.stmt) -> str:
    """A definition as it stands in its file, each docstring cut to its first paragraph, notes to
    our tools left out.
    """
    decorators = getattr(node, "decorator_list", [])
    start = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    assert node.end_lineno is not None
    lines: list[str | None] = list(_read(module).lines[start - 1 : node.end_lineno])
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.FunctionDef | ast.ClassDef)
            and ast.get_docstring(inner) is not None
        ):
            _shorten(lines, inner.body[0], start)
    return _FOR_OUR_TOOLS.sub("", "\n".join(line for line in lines if line is not None))


def _shorten(lines: list[str | None], docstring: ast.stmt, start: int) -> None:
    assert docstring.end_lineno is not None
    first, last = docstring.lineno - start, docstring.end_lineno - start
    blank = next((i for i in range(first, last) if not (lines[i] or "").strip()), None)
    if blank is not None:
        lines[blank - 1] = f'{lines[blank - 1]}"""'
        lines[blank : last + 1] = [None] * (last + 1 - blank)


def _import_lines(imports: dict[str, tuple[str, str]]) -> str:
    plain: list[str] = []
    named: dict[str, list[str]] = {}
    for bound, (module, name) in imports.items():
        if name:
            words = name if bound == name else f"{name} as {bound}"
            named.setdefault(module, []).append(words)
        else:
            renamed = bound != module.partition(".")[0]
            plain.append(f"import {module} as {bound}" if renamed else f"import {module}")
    lines = [f"from {module} import {', '.join(sorted(named[module]))}" for module in sorted(named)]
    return "\n".join(sorted(plain) + lines)


def _joined(texts: Iterable[str]) -> str:
    """Two blank lines around functions and classes, none between constants."""
    joined, before_block = "", True
    for text in texts:
        block = text.startswith(("def ", "class ", "@"))
        joined += text if not joined else ("\n\n\n" if block or before_block else "\n") + text
        before_block = block
    return joined
