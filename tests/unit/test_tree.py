"""What keeps the package's tree readable: few things at its top, telling names, short files."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TUNER = Path(__file__).parents[2] / "tuner"
MOST_AT_THE_TOP = 31
LONGEST_FILE = 300
LONGEST_FUNCTION = 60

SAME_NAME = {
    "__init__": "every folder has one",
    "explain": "the command, and what it says of a study",
    "neuralforecast_model": "of the benchmark, and of an export",
    "retune": "the command, and what it calls",
    "rows": "of the benchmark's table, of a comparison's, and of Optuna's tables",
    "run": "what runs a command, and what runs a trial",
    "series": "the data's, and those that figures draw",
    "tables": "what kernels read, and what a terminal shows",
    "train": "the command, and the training that it asks for",
    "verification": "its launch, and its picture in a terminal",
}
"""Files of one name in several folders, and why."""


def crowded(root: Path) -> Iterator[str]:
    """The top of the package, where it has too many entries."""
    entries = [path.name for path in root.iterdir() if path.name != "__pycache__"]
    if len(entries) > MOST_AT_THE_TOP:
        yield f"{len(entries)} entries at the top: {', '.join(sorted(entries))}"


def same_names(root: Path) -> Iterator[str]:
    """Names of files that occur more than once and are none of `SAME_NAME`."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules(root):
        found[path.stem].append(str(path.relative_to(root)))
    for name, paths in found.items():
        if len(paths) > 1 and name not in SAME_NAME:
            yield f"{name}: {', '.join(paths)}"


def long_files(root: Path) -> Iterator[str]:
    for path in modules(root):
        lines = len(path.read_text().splitlines())
        if lines > LONGEST_FILE:
            yield f"{path.relative_to(root)}: {lines} lines"


def long_functions(root: Path) -> Iterator[str]:
    for path in modules(root):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > LONGEST_FUNCTION:
                yield f"{path.relative_to(root)}: {node.name}, {lines} lines"


def modules(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


RULES = (crowded, same_names, long_files, long_functions)
Rule = Callable[[Path], Iterator[str]]


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_the_rule(rule: Rule) -> None:
    assert list(rule(TUNER)) == []


def test_every_allowed_name_occurs_more_than_once() -> None:
    stems = [path.stem for path in modules(TUNER)]
    assert [name for name in SAME_NAME if stems.count(name) < 2] == []


def function_of(lines: int) -> str:
    return "\n".join(["async def long():", *["    pass"] * (lines - 1)])


@pytest.mark.parametrize(
    ("rule", "files", "found"),
    [
        (crowded, {f"m{n}.py": "" for n in range(32)}, "32 entries at the top: m0.py, m1.py"),
        (same_names, {"a/x.py": "", "b/x.py": "", "b/run.py": "", "run.py": ""}, "x: a/x.py"),
        (long_files, {"a/x.py": "pass\n" * 301}, "a/x.py: 301 lines"),
        (long_functions, {"a/x.py": function_of(61)}, "a/x.py: long, 61 lines"),
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
        (crowded, {f"m{n}.py": "" for n in range(30)}),
        (same_names, {"a/x.py": "", "b/y.py": "", "a/__init__.py": "", "b/__init__.py": ""}),
        (long_files, {"a/x.py": "pass\n" * 300}),
        (long_functions, {"a/x.py": function_of(60)}),
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
