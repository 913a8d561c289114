"""What the benchmarks take from the package is there: most need a GPU or an hour, and no type checker reads them."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SCRIPTS = sorted(str(path.relative_to(BENCHMARKS)) for path in BENCHMARKS.rglob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_name_that_a_benchmark_imports_from_the_package_exists(script: str) -> None:
    tree = ast.parse((BENCHMARKS / script).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] != "tuner" or node.level:
            continue
        module = importlib.import_module(str(node.module))
        missing = [
            alias.name for alias in node.names if not hasattr(module, alias.name) and not _is_module(node, alias)
        ]
        assert not missing, f"{script}: {node.module} has no {', '.join(missing)}"


def _is_module(node: ast.ImportFrom, alias: ast.alias) -> bool:
    try:
        importlib.import_module(f"{node.module}.{alias.name}")
    except ModuleNotFoundError:
        return False
    return True
