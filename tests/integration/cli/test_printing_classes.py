"""With `--json` stdout is one document, whatever a class of the user's prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.forked_cli import run
from tests.support.small_study import write_files, write_printing

SMALL = ("--variant", "small.toml", "--task", "tiny.toml", "--cpu")


def told(*words: str, folder: Path) -> Any:
    """The document, of which nothing that the class prints is part."""
    done = run(*words, folder=folder, environment={"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"})
    assert done.code == 0, done.err
    assert "hello from __init__" in done.err
    assert "hello from forward" in done.err
    assert "hello" not in done.out
    return json.loads(done.out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loud")
    write_files(folder)
    write_printing(folder)
    study = (folder / "small.toml").read_text(encoding="utf-8")
    short = study.replace("patience = 100000", "max_epochs = 1")
    (folder / "small.toml").write_text(short, encoding="utf-8")
    done = run("launch", *SMALL, "--trials", "1", "--no-estimate", folder=folder)
    assert done.code == 0, done.err
    return folder


def test_what_is_trained_and_forecast(folder: Path) -> None:
    words = ("--trial", "0", "--output", "loud.safetensors", "--json")
    trained = told("train", *SMALL, *words, folder=folder)
    assert trained["failed_seeds"] == []
    assert [each["seed"] for each in trained["seeds"]] == [0]
    done = run("predict", "loud.safetensors", "tiny.toml", "--trust", "--json", folder=folder)
    assert done.code == 0, done.err
    assert "hello from __init__" in done.err
    assert json.loads(done.out)


def test_what_is_measured(folder: Path) -> None:
    more = ("--backends", "eager", "--against", "none")
    words = ("--task", "tiny.toml", "--variants", "small.toml", "--cpu", "--rounds", "1")
    found = told("bench", *words, "--epochs", "1", *more, "--json", folder=folder)
    assert found["files"]
