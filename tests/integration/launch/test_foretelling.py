"""What a launch says before it begins, where nothing can be said: it goes on all the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.databases import SQLITE_ALONE
from tests.support.programs import program_definition, write_program
from tests.support.small_study import definition
from tuner.data.task import load_task
from tuner.devices import CpuCores
from tuner.errors import TunerError
from tuner.launch import launcher
from tuner.launch.launcher import LEAST_TRIALS, foretell
from tuner.launch.plan import Aim
from tuner.launch.request import LaunchRequest, Notes, Quiet
from tuner.launch.where import Where
from tuner.storage.database import Database
from tuner.study.open import OpenStudy, create_or_resume

CORE = CpuCores((0,))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was measured here yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def said_of(studies: Sequence[OpenStudy]) -> list[str]:
    notes: list[str] = []
    found = foretell(
        studies,
        LaunchRequest(variants="rmsnorm"),
        Aim(files={}, task=load_task("demo"), where=Where(devices=[CORE])),
        Notes(Quiet(notes.append)),
    )
    assert found == []
    return notes


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The studies whose measuring was begun, each of which fails."""
    tried: list[str] = []

    def fails(opened: OpenStudy, *_: object) -> None:
        tried.append(opened.name)
        raise TunerError("the measuring process ended (SIGKILL)\nafter 3 s")

    monkeypatch.setattr(launcher, "_measured", fails)
    return tried


@SQLITE_ALONE
def test_nothing_is_foretold_of_a_program(
    database: Database, tmp_path: Path, measured: list[str]
) -> None:
    made = program_definition(write_program(tmp_path))
    opened = create_or_resume(database, "program", made, trials=LEAST_TRIALS)
    assert said_of([opened]) == []
    assert measured == []


@SQLITE_ALONE
def test_a_measuring_that_fails_is_said_once_and_not_tried_again(
    database: Database, measured: list[str]
) -> None:
    """Two searches whose epochs cost the same; another network is tried by itself."""
    first, second = (
        create_or_resume(database, name, definition(), trials=LEAST_TRIALS)
        for name in ("first", "second")
    )
    assert said_of([first, second]) == [
        "what first will take is not foretold: the measuring process ended (SIGKILL)"
    ]
    assert measured == ["first"]


@SQLITE_ALONE
def test_a_launch_of_few_trials_measures_nothing(database: Database, measured: list[str]) -> None:
    opened = create_or_resume(database, "few", definition(), trials=LEAST_TRIALS - 1)
    assert said_of([opened]) == []
    assert measured == []
