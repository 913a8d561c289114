"""Fixtures for the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

# Read when torch is imported, which is after this. Two threads that wait for each other crawl as soon as anything else
# runs on their cores, and here something always does: another part of the suite.
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(scope="session", autouse=True)
def _own_user_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The suite neither reads nor fills the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("user-cache")))
        yield


@pytest.fixture(scope="session")
def etth_dir() -> Path:
    """Folder with ETTh1.csv and ETTh2.csv: TUNER_DATA_DIR, else ../shared/data beside the repository."""
    named = os.environ.get("TUNER_DATA_DIR")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not (folder / "ETTh1.csv").is_file() or not (folder / "ETTh2.csv").is_file():
        pytest.skip(f"no ETTh1.csv and ETTh2.csv in {folder}; name their folder with TUNER_DATA_DIR")
    return folder
