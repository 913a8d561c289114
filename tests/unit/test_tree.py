"""What keeps the package's tree readable: few things at its top, no endless file or function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TUNER = Path(__file__).parents[2] / "tuner"
MOST_AT_THE_TOP = 32
LONGEST_FILE = 800
LONGEST_FUNCTION = 70


def crowded(root: Path) -> Iterator[str]:
    """The top of the package, where it has too many entries."""
    entries = [path.name for path in root.iterdir() if path.name != "__pycache__"]
    if len(entries) > MOST_AT_THE_TOP:
        yield f"{len(entries)} entries at the top: {', '.join(sorted(entries))}"


def long_files(root: Path) -> Iterator[str]:
    for path in modules(root):
        lines = len(path.read_text().splitlines())
        if lines > LONGEST_FILE:
            yield f"{path.relative_to(root)}: {lines} lines"


def long_functions(root: Path) -> Iterator[str]:
    for path in modules(root):
        for node in statements(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > LONGEST_FUNCTION:
                yield f"{path.relative_to(root)}: {node.name}, {lines} lines"


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All of a module, without what is in their expressions: that is most of it."""
    left = [tree]
    while left:
        yield (node := left.pop())
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, field, [])


def modules(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


RULES = (crowded, long_files, long_functions)
Rule = Callable[[Path], Iterator[str]]


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_the_rule(rule: Rule) -> None:
    assert list(rule(TUNER)) == []


def function_of(lines: int) -> str:
    return "\n".join(["async def long():", *["    pass"] * (lines - 1)])


@pytest.mark.parametrize(
    ("rule", "files", "found"),
    [
        (crowded, {f"m{n}.py": "" for n in range(33)}, "33 entries at the top: m0.py, m1.py"),
        (long_files, {"a/x.py": "pass\n" * 801}, "a/x.py: 801 lines"),
        (long_functions, {"a/x.py": function_of(71)}, "a/x.py: long, 71 lines"),
    ],
)
def test_a_tree_that_breaks_a_rule_is_found(
    rule: Rule, files: dict[str, str], found: str, tmp_path: Path
) -> None:
    write(tmp_path, files)
    (said,) = rule(tmp_path)
    assert said.startswith(found)


@pytest.mark.parametrize(
    ("rule", "files"),
    [
        (crowded, {f"m{n}.py": "" for n in range(31)}),
        (long_files, {"a/x.py": "pass\n" * 800}),
        (long_functions, {"a/x.py": function_of(70)}),
    ],
)
def test_a_tree_at_its_limits_is_well(rule: Rule, files: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, files)
    assert list(rule(tmp_path)) == []


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
