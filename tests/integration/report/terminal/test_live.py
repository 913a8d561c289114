from __future__ import annotations

import contextlib

import pytest
from optuna.trial import TrialState

from tests.support.databases import SQLITE_ALONE
from tuner.record import Recorded
from tuner.report.study_status import duration
from tuner.report.terminal.live import live_view
from tuner.report.terminal.retuning import StageLines
from tuner.storage.database import Database
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy


def finish(study: OpenStudy, result: TrialResult) -> None:
    claim = study.ledger.claim("somebody")
    assert claim is not None
    assert study.ledger.finish(claim, result)


@SQLITE_ALONE
def test_a_pipe_gets_one_line_for_each_trial_that_ends(
    study: OpenStudy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.report.terminal.live.REFRESH_S", 0.0)
    finish(
        study,
        TrialResult(TrialState.COMPLETE, (9.0, 1.0), Recorded(stopped_by="converged", epochs=3)),
    )
    later: list[OpenStudy] = []
    with live_view(lambda: later, stderr=False) as view:
        view.refresh()
        assert capsys.readouterr().out == ""
        later.append(study)  # a study that begins meanwhile joins in
        view.refresh()
        assert (
            capsys.readouterr().out
            == "small 1/10: trial 0 converged: 9.000 s, MQL 1.0000, 3 epochs\n"
        )
        finish(
            study,
            TrialResult(
                TrialState.FAIL, None, Recorded(stopped_by="diverged", failure="[the loss] is nan")
            ),
        )
        view.refresh()
        view.refresh()
        assert capsys.readouterr().out == "small 2/10: trial 1 diverged: [the loss] is nan\n"


@SQLITE_ALONE
@pytest.mark.parametrize("gives_up", [False, True])
def test_a_trial_that_ends_between_two_looks_is_shown_when_the_watching_ends(
    study: OpenStudy,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    gives_up: bool,
) -> None:
    monkeypatch.setattr("tuner.report.terminal.live.REFRESH_S", 3600.0)
    with contextlib.suppress(RuntimeError), live_view([study], stderr=False) as view:
        view.refresh()
        finish(
            study,
            TrialResult(
                TrialState.COMPLETE, (9.0, 1.0), Recorded(stopped_by="converged", epochs=3)
            ),
        )
        view.refresh()  # too soon after the first
        assert capsys.readouterr().out == ""
        if gives_up:
            raise RuntimeError
    assert (
        capsys.readouterr().out == "small 1/10: trial 0 converged: 9.000 s, MQL 1.0000, 3 epochs\n"
    )


def test_a_database_that_goes_away_is_waited_for_in_one_line(
    database: Database,
    study: OpenStudy,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sqlalchemy.exc import OperationalError

    monkeypatch.setattr("tuner.report.terminal.live.REFRESH_S", 0.0)

    def away(_study: OpenStudy) -> None:
        raise OperationalError("SELECT", {}, Exception("gone"))

    with live_view([study], stderr=False) as view:
        monkeypatch.setattr("tuner.report.terminal.live.read_results", away)
        view.refresh()
        view.refresh()
    assert capsys.readouterr().out == "the database is away; waiting\n"


@SQLITE_ALONE
def test_a_pipe_is_told_what_trains_when_nothing_has_ended_for_a_while(
    study: OpenStudy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a first trial, the most that it may take; later, what the whole search takes."""
    monkeypatch.setattr("tuner.report.terminal.live.REFRESH_S", 0.0)
    with live_view([study], stderr=False) as view:
        claim = study.ledger.claim("somebody")
        assert claim is not None
        study.roster.join("somebody", host="h", pid=1, device="CPU core 0", device_uuid="cpu")
        study.roster.report("somebody", trial_number=0, epoch=4, val_loss=0.25)
        most = study.definition.training.max_epochs
        study.epochs.write(0, claim.work_id, [EpochRow(4, 0.5, 0.25, 1e-3, 40.0)])
        view.refresh()
        assert capsys.readouterr().out == "", "it is too soon"
        monkeypatch.setattr("tuner.report.terminal.live.PLAIN_S", -1.0)
        view._meanwhile.said()  # type: ignore[attr-defined]
        view.refresh()
        left = f"at most {duration(10.0 * (most - 4))} left of it"
        words = "CPU core 0: trial 0, epoch 4, loss 0.2500"
        assert capsys.readouterr().out == f"small 0/10: {words}, {left}\n"
        recorded = Recorded(stopped_by="converged", epochs=3, total_s=60.0)
        assert study.ledger.finish(claim, TrialResult(TrialState.COMPLETE, (9.0, 1.0), recorded))
        assert study.ledger.claim("somebody") is not None
        study.roster.report("somebody", trial_number=1, epoch=0, val_loss=None)
        view.refresh()
        told = capsys.readouterr().out.splitlines()
        assert told[1:] == ["small 1/10: CPU core 0: trial 1, epoch 0, about 9 min left"]
        StageLines(_meanwhile=view._meanwhile).trains([study])  # type: ignore[attr-defined]
        assert capsys.readouterr().err == f"{told[1]}\n"
        study.roster.leave("somebody")
