"""A study that another program deletes while it runs: one line for everyone, workers that end,
nothing lost."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest

from tests.support.cli_processes import STUDY, Bench, finished
from tests.support.databases import SQLITE_ALONE
from tuner.cli.main import main
from tuner.errors import StudyGoneError
from tuner.study.open import OpenStudy, create_or_resume
from tuner.study.results import read_results
from tuner.verdict.verified import verifications_of

EPOCHS = 200
SAID = (
    f"tuner: error: study {STUDY!r} is in the database no more: another program deleted it; "
    "'tuner db check' says"
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")


def test_a_launch_ends_with_one_line_when_its_study_is_deleted(bench: Bench) -> None:
    bench.slowed()
    with bench.launched(9, epochs=EPOCHS) as launch:
        bench.wait_until_training(launch)
        with bench.database() as database:
            optuna.delete_study(study_name=STUDY, storage=database.optuna)
        done = finished(launch)
    assert done.code == 1
    assert SAID in done.err
    assert "Traceback" not in done.err + bench.log_text()
    check = bench.run("db", "check")
    assert (
        "studies that were deleted by other means than tuner: 1 (study 1 (small on tiny): 0 "
        "results)" in check.out
    )
    repaired = bench.run("db", "check", "--repair")
    assert repaired.code == 0
    assert "all of it saved to " in repaired.out
    assert repaired.out.endswith("everything agrees\n")


@SQLITE_ALONE
def test_who_watches_is_told_once(
    study: OpenStudy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = study.database.address.full()

    def delete(_: float) -> None:
        optuna.delete_study(study_name=study.name, storage=study.database.optuna)

    monkeypatch.setattr("tuner.cli.status.time", SimpleNamespace(sleep=delete))
    monkeypatch.setattr("tuner.report.terminal.live.REFRESH_S", 0.0)
    with pytest.raises(SystemExit) as ended:
        main(["status", "--watch", "--study", study.name, "--storage", url])
    assert ended.value.code == 1
    told = capsys.readouterr()
    said = told.err.splitlines()
    assert told.out.startswith("Studies"), "first where it stands: no terminal draws it here"
    assert [line for line in said if "tuner: error" in line] == [said[-1]]
    assert "study 'small' is in the database no more: another program deleted it" in said[-1]


def test_every_part_of_a_deleted_study_says_so(study: OpenStudy) -> None:
    runs = verifications_of([study])
    claim = study.ledger.claim("ann")
    assert claim is not None
    optuna.delete_study(study_name=study.name, storage=study.database.optuna)
    for part in (
        study.ledger.counts,
        lambda: study.ledger.claim("bob"),
        lambda: study.ask(claim),
        lambda: read_results(study),
        runs.counts,
        lambda: runs.claim("ann"),
    ):
        with pytest.raises(StudyGoneError, match="study 'small' is in the database no more"):
            part()
    again = create_or_resume(study.database, study.name, study.definition, trials=3)
    assert again.ledger.counts().finished == 0
