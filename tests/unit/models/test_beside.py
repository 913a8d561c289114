"""What a file of the user's own imports from beside it, and that it is found there."""

from __future__ import annotations

import hashlib
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

from tuner.errors import UsageError
from tuner.models.own import load_class
from tuner.models.own_modules import files_beside

NET = "from beside_blocks import Block\n\n\nclass Net(Block):\n    pass\n"
BLOCK = "from torch import nn\n\n\nclass Block(nn.Module):\n    width = {width}\n"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    sys.modules.pop("beside_blocks", None)


def put(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def test_all_that_is_imported_in_turn_is_found_and_nothing_else(tmp_path: Path) -> None:
    put(
        tmp_path, net="import one\nfrom layers.norm import Norm\nfrom layers import wide\nimport os"
    )
    put(tmp_path, one="import two, json\nimport net", two="", other="", wide="")
    put(tmp_path / "layers", __init__="", norm="from . import scale\nfrom .. import two", wide="")
    put(tmp_path / "layers", scale="def broken(:", unused="")
    found = files_beside(tmp_path / "net.py")
    assert list(found) == [
        *("layers/__init__.py", "layers/norm.py", "layers/scale.py", "layers/wide.py"),
        *("one.py", "two.py"),
    ]
    assert found["two.py"] == hashlib.sha256(b"").hexdigest()
    assert files_beside(tmp_path / "nowhere.py") == {}


def test_a_class_finds_what_lies_beside_its_file_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "mine", net=NET, beside_blocks=BLOCK.format(width=3))
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert vars(load_class("mine/net.py:Net").__base__)["width"] == 3
    assert sys.path == before


def test_what_is_installed_hides_a_file_of_its_name(tmp_path: Path) -> None:
    """As ever: it is last in line."""
    text = NET.replace("beside_blocks", "torch.nn").replace("Block", "Module")
    put(tmp_path, net=f"import statistics\n{text}", statistics="mean = None", torch="")
    assert statistics.mean([1.0]) == 1.0, "it is in use"
    assert issubclass(load_class(f"{tmp_path}/net.py:Net"), nn.Module)


def test_another_folders_module_of_the_same_name_is_not_taken_for_it(tmp_path: Path) -> None:
    for n, folder in enumerate(("a", "b")):
        put(tmp_path / folder, net=NET, beside_blocks=BLOCK.format(width=n))
    assert vars(load_class(f"{tmp_path}/a/net.py:Net").__base__)["width"] == 0
    with pytest.raises(UsageError) as met:
        load_class(f"{tmp_path}/b/net.py:Net")
    assert str(met.value) == (
        f"{tmp_path}/b/net.py imports beside_blocks beside it, and another beside_blocks is in use "
        f"already, {tmp_path}/a/beside_blocks.py; give one of them another name"
    )
