"""What the benchmarks import from the package and from one another is there: no type checker reads
them."""

from __future__ import annotations

import ast
import functools

from tests.support.paths import BENCHMARKS, REPOSITORY

OURS = ("tuner", "benchmarks", "tests")


def test_every_name_that_a_benchmark_imports_from_the_package_or_another_exists() -> None:
    seen = 0
    for script in sorted(BENCHMARKS.rglob("*.py")):
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.ImportFrom)
                and not node.level
                and (node.module or "").partition(".")[0] in OURS
            ):
                seen += 1
                missing = {alias.name for alias in node.names} - names_in(str(node.module))
                assert not missing, f"{script}: {node.module} has no {', '.join(sorted(missing))}"
    assert seen > 100


@functools.cache
def names_in(module: str) -> set[str]:
    """What a module defines or imports, and its submodules; read, not run: some of them take
    seconds to import."""
    folder = REPOSITORY.joinpath(*module.split("."))
    source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    found = {path.stem for path in folder.glob("*")} if folder.is_dir() else set()
    body = ast.parse(source.read_text(encoding="utf-8")).body
    for node in body:
        if isinstance(node, ast.If):  # TYPE_CHECKING: names that are imported when they are used
            body += node.body
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {
                    each.id
                    for target in targets
                    for each in ast.walk(target)
                    if isinstance(each, ast.Name)
                }
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {alias.asname or alias.name for alias in names}
    return found
