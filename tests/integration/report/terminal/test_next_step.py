"""What a launch proposes next: commands that will work, quoted as a shell needs it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.support.recorded_studies import RecordedDatabase
from tests.support.small_study import definition
from tuner.record import Recorded
from tuner.report.terminal.tables import next_steps
from tuner.storage.database import Database, open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume, open_study
from tuner.study.snapshot import snapshot

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


def proposed(*studies: OpenStudy, ended: str = "filled") -> list[list[str]]:
    """As the words of a shell."""
    address = studies[0].database.address
    found = next_steps([snapshot(each) for each in studies], address, LAUNCH, ended=ended)
    return [shlex.split(each) for each in found]


def test_an_interrupted_launch_without_a_result_is_to_be_launched_again(database: Database) -> None:
    where = ["--storage", str(database.address)]
    found = proposed(study(database, "a"), ended="interrupted")
    assert found == [LAUNCH, ["tuner", "dashboard", *where]]


def test_what_can_be_done_with_a_result_is_proposed_in_the_order_in_which_one_does_it(
    database: Database,
) -> None:
    nothing, finished = study(database, "a"), study(database, "it's; $(b)")
    end_one(finished, TrialState.COMPLETE)
    where = ["--storage", str(database.address)]
    which = ["--study", "it's; $(b)", "--pick", "knee", *where]
    for ended in ("filled", "interrupted"):
        best, train, predict, dashboard = proposed(nothing, finished, ended=ended)
        assert best == ["tuner", "best", *which]
        assert train == ["tuner", "train", *which, "--output", "model.safetensors"]
        assert predict == ["tuner", "predict", "model.safetensors", "recent.csv"]
        assert dashboard == ["tuner", "dashboard", *where]


def test_of_a_built_in_task_the_last_rows_are_there_to_forecast_from(
    recorded_database: RecordedDatabase,
) -> None:
    database = open_database(parse_url(recorded_database.url), create=False)
    found = proposed(open_study(database, "demo-rmsnorm"))
    database.close()
    assert found[0][:6] == ["tuner", "best", "--variant", "rmsnorm", "--task", "demo"]
    assert found[2] == ["tuner", "predict", "model.safetensors", "demo"]


def test_where_every_trial_failed_one_of_them_says_why(database: Database) -> None:
    failed = study(database, "-a")
    end_one(failed, TrialState.FAIL)
    trial, _ = proposed(failed)
    assert trial == ["tuner", "trial", "0", "--study=-a", "--storage", str(database.address)]
