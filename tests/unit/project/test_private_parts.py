"""Optuna's private parts are touched in one module, which is looked after at its updates; typer's
nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.fork_server import IMPORTED
from tests.support.paths import REPOSITORY

TUNER = REPOSITORY / "tuner"
ALLOWED = TUNER / "storage" / "optuna" / "private.py"
PRIVATE = {"_study_id", "_trial_id", "_storage", "_contains"}
"""Attributes of Optuna's objects that tuner has used; of `self` they are the class's own."""


def test_only_one_module_imports_private_modules_of_optuna() -> None:
    found = [f"{path.relative_to(TUNER)}: {name}" for path, name in imports() if is_private(name)]
    assert not found


def test_only_one_module_reads_private_attributes_of_optunas_objects() -> None:
    found = []
    for path in outside(*PRIVATE):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute) or node.attr not in PRIVATE:
                continue
            if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                found.append(f"{path.relative_to(TUNER)}, line {node.lineno}: {node.attr}")
    assert not found


def test_the_suite_begins_with_any_typer() -> None:
    """Each of these is imported before the first test: what one version has would end the suite."""
    assert not [name for name in IMPORTED if name.startswith("typer._")]


def outside(*words: str) -> Iterator[Path]:
    """All other modules in which one of these words stands."""
    for path in sorted(TUNER.rglob("*.py")):
        if path != ALLOWED and any(word in path.read_text() for word in words):
            yield path


def imports() -> Iterator[tuple[Path, str]]:
    for path in outside("optuna"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield path, alias.name
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    yield path, f"{node.module}.{alias.name}"


def is_private(name: str) -> bool:
    first, *rest = name.split(".")
    return first == "optuna" and any(part.startswith("_") for part in rest)
