"""What a launch proposes next: commands that will work, quoted as a shell needs it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.support.small_study import definition
from tuner.record import Recorded
from tuner.report.terminal.tables import next_steps
from tuner.storage.database import Database, open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume

LAUNCH = ["tuner", "launch", "--variant", "my study.toml", "--cpu"]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    (tmp_path / "it's here").mkdir()
    opened = open_database(parse_url(f"sqlite:///{tmp_path}/it's here/$(touch x).db"))
    yield opened
    opened.close()


def study(database: Database, name: str) -> OpenStudy:
    return create_or_resume(database, name, definition(), trials=9)


def end_one(opened: OpenStudy, state: TrialState) -> None:
    claim = opened.ledger.claim("w")
    assert claim is not None
    assert opened.ask(claim) is not None
    complete = state is TrialState.COMPLETE
    recorded = Recorded(converged=complete, stopped_by="converged" if complete else "diverged")
    assert opened.ledger.finish(
        claim, TrialResult(state, (1.0, 0.5) if complete else None, recorded)
    )


def test_an_interrupted_launch_without_a_result_is_to_be_launched_again(database: Database) -> None:
    first, second = next_steps([study(database, "a")], LAUNCH, ended="interrupted")
    assert first == "tuner launch --variant 'my study.toml' --cpu"
    assert shlex.split(second) == ["tuner", "dashboard", "--storage", str(database.address)]


def test_the_best_is_proposed_of_a_study_that_has_one(database: Database) -> None:
    nothing, finished = study(database, "a"), study(database, "it's; $(b)")
    end_one(finished, TrialState.COMPLETE)
    for ended in ("filled", "interrupted"):
        first, _ = next_steps([nothing, finished], LAUNCH, ended=ended)
        words = [
            "tuner",
            "best",
            "--study",
            "it's; $(b)",
            "--pick",
            "knee",
            "--storage",
            str(database.address),
        ]
        assert shlex.split(first) == words


def test_where_every_trial_failed_one_of_them_says_why(database: Database) -> None:
    failed = study(database, "-a")
    end_one(failed, TrialState.FAIL)
    first, _ = next_steps([failed], LAUNCH, ended="filled")
    assert shlex.split(first) == [
        "tuner",
        "trial",
        "0",
        "--study=-a",
        "--storage",
        str(database.address),
    ]
