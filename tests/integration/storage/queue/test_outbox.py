"""What waits on local disk reaches the database once, and counts only under its claim's token."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from optuna.trial import TrialState
from sqlalchemy import event, insert
from sqlalchemy.exc import DataError, OperationalError

from tests.support.claims import while_locked
from tests.support.databases import SQLITE_ALONE
from tests.support.small_study import definition
from tuner.record import Recorded
from tuner.storage import schema
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.verifications import PlannedRun, VerificationRun
from tuner.storage.records import Claim, TrialResult
from tuner.study.open import OpenStudy, create_or_resume
from tuner.worker.paths import Outbox

RESULT = TrialResult(TrialState.COMPLETE, (1.5, 0.25), Recorded(converged=True, epochs=7))
NORMAL, FULL = 1, 2
ROWS = [EpochRow(epoch, 0.5, 0.4, 1e-3, 0.1 * epoch, repeat=1) for epoch in (1, 2, 3)]


def start(study: OpenStudy) -> Claim:
    claim = study.ledger.claim("ann")
    assert claim is not None
    assert study.ask(claim) is not None
    return claim


@pytest.fixture
def outbox(study: OpenStudy, tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "outbox", study.key())


def deliver(study: OpenStudy, outbox: Outbox) -> int:
    return outbox.deliver(study)


def left(outbox: Outbox) -> list[str]:
    return sorted(path.name.split("-")[0] for path in outbox.folder.iterdir())


def test_a_result_and_epochs_are_delivered_and_taken_away(study: OpenStudy, outbox: Outbox) -> None:
    claim = start(study)
    outbox.put_epochs(claim, ROWS[:2])
    outbox.put_epochs(claim, ROWS[2:])
    outbox.put_result(claim, RESULT)
    assert left(outbox) == ["epochs", "epochs", "result"]
    assert deliver(study, outbox) == 3
    assert left(outbox) == []
    assert study.ledger.counts().finished == 1
    assert study.optuna.trials[0].values == [1.5, 0.25]
    assert study.epochs.of_trial(0) == tuple(ROWS)
    assert deliver(study, outbox) == 0


@SQLITE_ALONE
def test_a_result_whose_lease_was_lost_does_not_count(study: OpenStudy, outbox: Outbox) -> None:
    claim = start(study)
    outbox.put_result(claim, RESULT)
    study.ledger.reap(worker="ann")
    assert deliver(study, outbox) == 1
    assert left(outbox) == []
    assert study.ledger.counts().finished == 0
    assert study.optuna.trials[0].state is TrialState.WAITING


@SQLITE_ALONE
def test_another_studys_entries_stay(study: OpenStudy, outbox: Outbox) -> None:
    other = create_or_resume(study.database, "other", definition(), trials=3)
    assert other.key() != study.key()
    outbox.put_result(start(study), RESULT)
    assert deliver(other, Outbox(outbox.folder, other.key())) == 0
    assert left(outbox) == ["result"]


@SQLITE_ALONE
def test_what_cannot_be_read_stays_with_a_notice_and_stops_nothing(
    study: OpenStudy, outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    outbox.put_result(start(study), RESULT)
    for name, text in {
        "a": "",
        "b": "[]",
        "c": '{"study": 1',
        "d": f'{{"study": "{outbox.study_key}"}}',
    }.items():
        (outbox.folder / f"epochs-{name}.json").write_text(text)
    (outbox.folder / "epochs-e.json").mkdir()
    assert deliver(study, outbox) == 1
    assert len(left(outbox)) == 5
    assert caplog.text.count("holds nothing that could be delivered") == 5


def planned_run(study: OpenStudy) -> VerificationRun:
    params = study.definition.defaults.as_dict()
    plan = PlannedRun(
        study_id=study.study_id,
        trial_number=0,
        params=params,
        seed=7,
        block=0,
        place=0,
        session="s",
        plan={},
    )
    study.verifications.add([plan])
    run = study.verifications.claim("ann")
    assert run is not None
    return run


def test_a_verification_runs_result_waits_here_too(study: OpenStudy, outbox: Outbox) -> None:
    run = planned_run(study)
    outbox.put_result(run.ticket, RESULT)
    assert deliver(study, outbox) == 1
    assert left(outbox) == []
    (finished,) = study.verifications.runs()
    assert (finished.state, finished.worker, finished.result) == ("finished", "ann", RESULT)
    outbox.put_result(run.ticket, RESULT)  # again, as after a crash
    assert deliver(study, outbox) == 1
    assert study.verifications.counts().finished == 1


@SQLITE_ALONE
def test_what_cannot_be_taken_away_is_delivered_again_and_stops_nothing(
    study: OpenStudy, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is shared, or a disk that can only be read by now."""

    def refused(path: Path, *, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    outbox.put_result(start(study), RESULT)
    monkeypatch.setattr(Path, "unlink", refused)
    assert (deliver(study, outbox), deliver(study, outbox)) == (1, 1)
    assert study.ledger.counts().finished == 1


def test_epochs_that_another_delivers_at_this_moment_are_delivered_all_the_same(
    study: OpenStudy,
) -> None:
    """A worker that starts, one that has them, and a supervisor: after an outage all three come at
    once."""
    claim = start(study)
    fixed = {"study_id": study.study_id, "trial_number": 0, "work_id": claim.work_id}
    same = insert(schema.epochs).values([fixed | asdict(row) for row in ROWS])
    while_locked(study.database, same, lambda: study.epochs.write(0, claim.work_id, ROWS))
    assert study.epochs.of_trial(0) == tuple(ROWS)


@SQLITE_ALONE
def test_what_the_database_refuses_stays_with_a_notice_and_stops_nothing(
    study: OpenStudy,
    outbox: Outbox,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else no worker would start here again."""

    def refused(*_: object) -> None:
        raise DataError("INSERT", {}, Exception("integer out of range"))

    claim = start(study)
    outbox.put_epochs(claim, ROWS)
    outbox.put_result(claim, RESULT)
    monkeypatch.setattr(type(study.epochs), "write", refused)
    assert deliver(study, outbox) == 1
    assert left(outbox) == ["epochs"]
    assert "integer out of range" in caplog.text
    assert study.ledger.counts().finished == 1


@SQLITE_ALONE
def test_an_outage_in_the_middle_is_told_and_leaves_the_rest(
    study: OpenStudy, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("UPDATE", {}, Exception("server closed the connection"))

    claim = start(study)
    outbox.put_epochs(claim, ROWS)
    outbox.put_result(claim, RESULT)
    monkeypatch.setattr(type(study.ledger), "finish", away)
    with pytest.raises(OperationalError):
        deliver(study, outbox)
    assert left(outbox) == ["result"]


@SQLITE_ALONE
def test_what_leaves_the_outbox_is_on_the_databases_disk(study: OpenStudy) -> None:
    """SQLite hands a commit to the system, which may lose it with the power. A renewal need not
    wait for the disk. Other databases write every commit to disk."""
    levels: list[int] = []
    event.listen(
        study.database.engine,
        "commit",
        lambda c: levels.append(c.exec_driver_sql("PRAGMA synchronous").scalar_one()),
    )
    claim, run = start(study), planned_run(study)
    levels.clear()
    assert study.ledger.renew(claim)
    assert study.verifications.renew(run)
    assert levels == [NORMAL, NORMAL]
    levels.clear()
    assert study.verifications.finish(run, RESULT)
    assert study.ledger.finish(claim, RESULT)
    assert levels[:2] == [FULL, FULL]
