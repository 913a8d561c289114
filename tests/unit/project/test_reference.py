"""What docs/reference.py makes of the code is what the documentation holds."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import tuner
from tests.support.cli_parsing import commands
from tests.support.paths import REPOSITORY
from tuner.config import TrainingSettings
from tuner.settings import flags
from tuner.spec.policy import SearchPolicy, StudySettings


@pytest.fixture(scope="module")
def reference() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location(
        "reference_of_docs", REPOSITORY / "docs" / "reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def made(reference: ModuleType) -> dict[str, str]:
    return {str(path.relative_to(REPOSITORY)): text for path, text in reference.documents().items()}


@pytest.mark.parametrize("name", ["docs/cli.md", "docs/api.md", "docs/start.md"])
def test_a_page_made_from_the_code_is_current(name: str, made: dict[str, str]) -> None:
    there = (REPOSITORY / name).read_text(encoding="utf-8")
    assert there == made[name], f"{name} is out of date; run python docs/reference.py"


def test_the_command_reference_has_every_command(made: dict[str, str]) -> None:
    for name in commands():
        assert f"\n## tuner {name}\n" in made["docs/cli.md"]
        assert f"Usage: tuner {name} " in made["docs/cli.md"]


def test_the_python_reference_has_every_public_name(made: dict[str, str]) -> None:
    for name in tuner.__all__:
        level = "##" if isinstance(getattr(tuner, name), ModuleType) else "###"
        if name != "__version__":
            assert f"\n{level} tuner.{name}\n" in made["docs/api.md"]


def test_the_python_reference_is_the_same_on_every_machine(made: dict[str, str]) -> None:
    assert not re.search(r"0x[0-9a-f]{6}|/home/|/tmp/", made["docs/api.md"])
    assert str(REPOSITORY) not in made["docs/api.md"]


def test_a_docstring_s_sections_become_lists(reference: ModuleType) -> None:
    docstring = (
        "What it does.\n\nArgs:\n    name: of the thing, which\n        goes on.\n\n"
        "Raises:\n    UsageError: none."
    )
    assert reference._prose(docstring).splitlines() == [
        "What it does.",
        "",
        "Args:",
        "",
        "- `name`: of the thing, which",
        "  goes on.",
        "",
        "Raises:",
        "",
        "- `UsageError`: none.",
    ]


def test_a_page_without_markers_is_refused(reference: ModuleType) -> None:
    with pytest.raises(SystemExit, match="<!-- demo -->"):
        reference.with_demo("no markers", ["a line"])


def test_every_setting_that_somebody_can_say_stands_in_the_tables(reference: ModuleType) -> None:
    tables = reference.settings()
    for name in TrainingSettings.model_fields:
        assert f"\n| `{name}` |" in tables
    for model in (StudySettings, SearchPolicy):
        for flag in flags(model).values():
            assert not flag.name or f"`{flag.name}` |" in tables
    assert not re.search(r"\| +\|\n", tables), "a setting without a word on what it means"


def test_the_demo_that_is_documented_is_the_one_that_make_runs() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE)
    assert recipe is not None
    storage = re.search(r"^STORAGE := (.*)$", makefile, flags=re.MULTILINE)
    assert storage is not None
    page = (REPOSITORY / "docs" / "start.md").read_text(encoding="utf-8")
    for line in recipe[1].splitlines():
        command = line.strip().replace("$(BIN)/", "").replace("$(STORAGE)", storage[1])
        assert f"$ {command}\n" in page
