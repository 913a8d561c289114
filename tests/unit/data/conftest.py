"""Fixtures that write the small CSV and prepare it; and a task of many files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.simulated_runs import small_runs
from tests.support.small_csv import TASK
from tuner.data.prepare import PreparedData, prepare
from tuner.data.task import Task, load_task
from tuner.errors import DataError


@pytest.fixture
def task_file(tmp_path: Path) -> Callable[..., Task]:
    """Writes small.csv and small.toml and loads the task."""

    def write(lines: list[str] | bytes, toml: str = TASK) -> Task:
        content = lines if isinstance(lines, bytes) else ("\n".join(lines) + "\n").encode()
        (tmp_path / "small.csv").write_bytes(content)
        (tmp_path / "small.toml").write_text(toml, encoding="utf-8")
        return load_task(str(tmp_path / "small.toml"))

    return write


@pytest.fixture
def prepare_small(task_file: Callable[..., Task], tmp_path: Path) -> Callable[..., PreparedData]:
    """The same, prepared."""

    def run(lines: list[str] | bytes, toml: str = TASK) -> PreparedData:
        return prepare(task_file(lines, toml), cache_dir=tmp_path / "cache")

    return run


@pytest.fixture
def problem(prepare_small: Callable[..., PreparedData], tmp_path: Path) -> Callable[..., str]:
    """The one line said about a CSV, without the folder's name; the cache stays empty."""

    def run(lines: list[str] | bytes, toml: str = TASK) -> str:
        with pytest.raises(DataError) as caught:
            prepare_small(lines, toml)
        message = str(caught.value)
        assert caught.value.exit_code == 1
        assert "\n" not in message
        assert not (tmp_path / "cache").exists()
        return message.replace(f"{tmp_path}/", "")

    return run


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_runs(tmp_path_factory.mktemp("simulated") / "data")


@pytest.fixture
def task_of_runs(simulated: Path, tmp_path: Path) -> Path:
    """A task of many files: a copy of its own, to be spoiled."""
    return Path(shutil.copytree(simulated.parent, tmp_path / "data")) / simulated.name
