"""Exported studies that strangers have changed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import REPOSITORY

EXPORT = REPOSITORY / "notebooks" / "data" / "original.json.gz"
NETWORK = "from pathlib import Path\nPath('ran').touch()\n\nclass Net: ...\n"


def export_with(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    study = json.loads(gzip.decompress(EXPORT.read_bytes()))
    change(study)
    path.write_text(json.dumps(study), encoding="utf-8")
    return path


def of_a_class(study: dict[str, Any]) -> None:
    study["definition"]["architecture"] = {"model": "net.py:Net", "settings": {}}


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an exported study whose class says that it ran."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    export_with(tmp_path / "x.json", of_a_class)
    return tmp_path
