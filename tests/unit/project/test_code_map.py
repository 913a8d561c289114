"""The map of the code in docs/how-it-works.md is what docs/code_map.py makes of the packages."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "how-it-works.md"


@pytest.fixture(scope="module")
def code_map() -> ModuleType:
    spec = importlib.util.spec_from_file_location("code_map", REPOSITORY / "docs" / "code_map.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_map_is_current(code_map: ModuleType) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert code_map.with_map(text) == text, "run python docs/code_map.py"


def test_the_map_has_every_folder_in_the_order_of_imports() -> None:
    found = re.findall(r"^\| `(\w+)/` \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    names = [name for name, _ in found]
    assert set(names) == {path.parent.name for path in (REPOSITORY / "tuner").glob("*/__init__.py")}
    assert names[-1] == "cli"
    assert names.index("training") < names.index("search") < names.index("launch")
    assert dict(found)["cli"] == "The command line: parse, call, print."


def test_a_page_without_markers_is_refused(code_map: ModuleType) -> None:
    with pytest.raises(SystemExit, match="code map"):
        code_map.with_map("no markers")


def test_a_folder_without_a_docstring_is_refused(code_map: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("import os\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="has no docstring"):
        code_map.sentence(tmp_path)


def test_a_folder_in_no_layer_is_refused(
    code_map: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "__init__.py").touch()
    monkeypatch.setattr(code_map, "TUNER", tmp_path)
    with pytest.raises(SystemExit, match=r"in no layer of pyproject\.toml: strange"):
        list(code_map.folders())
