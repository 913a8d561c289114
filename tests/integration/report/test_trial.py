from __future__ import annotations

import json
from pathlib import Path

from optuna.trial import TrialState

from tests.support.forked_cli import run
from tests.support.present import present
from tests.support.recorded_studies import RecordedDatabase
from tuner.record import Recorded
from tuner.storage.database import Database
from tuner.storage.queue.claims import stints
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy


def test_a_trial_is_shown_with_values_parameters_curve_and_attempts(
    recorded_database: RecordedDatabase, tmp_path: Path
) -> None:
    best = recorded_database.results("demo-rmsnorm").front[-1]
    assert best.values is not None
    arguments = (
        "trial",
        str(best.number),
        "--study",
        "demo-rmsnorm",
        "--storage",
        recorded_database.url,
    )
    done = run(*arguments, folder=tmp_path, environment={"COLUMNS": "60"})
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"demo-rmsnorm, trial {best.number} (")
    assert "on the front" in done.out
    assert f"{best.values[0]:.3f} s" in done.out
    assert f"{best.values[1]:.4f}" in done.out
    assert f"hidden_size   {best.params['hidden_size']}" in done.out
    assert "finished, recorder, from 20" in done.out
    assert (
        done.out.count(f"{best.values[1]:.4f}"[:6]) == 2
    )  # as the objective and as its series, not once more below
    assert max(len(line) for line in done.out.splitlines()) <= 60

    document = json.loads(run(*arguments, "--json", folder=tmp_path).out)
    assert (document["study"], document["trial"], document["state"]) == (
        "demo-rmsnorm",
        best.number,
        "complete",
    )
    assert document["params"] == best.params
    assert document["on_front"] is True
    assert [each["state"] for each in document["attempts"]] == ["finished"]
    curve = document["curve"]
    assert len(curve["rows"]) == curve["epochs"] == best.recorded.epochs
    assert curve["best_epoch"] == best.recorded.best_epoch


def test_a_failed_trial_says_why(recorded_database: RecordedDatabase, tmp_path: Path) -> None:
    failed = next(
        r for r in recorded_database.results("demo-rmsnorm").records if r.state is TrialState.FAIL
    )
    done = run(
        "trial",
        str(failed.number),
        "--study",
        "demo-rmsnorm",
        "--storage",
        recorded_database.url,
        folder=tmp_path,
    )
    assert "diverged: the loss became nan in epoch 2" in done.out


def test_a_trial_that_is_not_there_is_one_line_that_says_which_are(
    recorded_database: RecordedDatabase, tmp_path: Path
) -> None:
    done = run(
        "trial",
        "99",
        "--study",
        "demo-rmsnorm",
        "--storage",
        recorded_database.url,
        folder=tmp_path,
    )
    assert (done.code, done.out) == (2, "")
    assert "no trial 99; its trials are 0 to 11" in done.err
    done = run("trial", "0", "--storage", recorded_database.url, folder=tmp_path)
    assert done.code == 2
    assert "name it by --study; there are: demo-rmsnorm, demo-original" in done.err


def test_every_attempt_at_a_trial_is_remembered_on_both_databases(
    database: Database, study: OpenStudy
) -> None:
    """One worker is lost, one is interrupted, one runs: the same trial each time."""
    for worker, state in (("w-lost", "lost"), ("w-returned", "returned"), ("w-now", None)):
        claim = study.ledger.claim(worker)
        assert claim is not None
        if state:
            study.ledger.reap(worker=worker, state=state)
    history = stints(database.engine, study.study_id)
    assert [(each.trial_number, each.worker, each.state) for each in history] == [
        (0, "w-lost", "lost"),
        (0, "w-returned", "returned"),
        (0, "w-now", "running"),
    ]
    assert all(each.began <= each.ended for each in history)
    assert stints(database.engine, study.study_id, trial_number=1) == ()
    ended = {"stopped_by": "converged", "converged": True}
    assert study.ledger.finish(
        present(claim), TrialResult(TrialState.COMPLETE, (2.0, 1.0), Recorded.from_flat(ended))
    )
    (*_, last) = stints(database.engine, study.study_id)
    assert (last.state, last.stopped_by) == ("finished", "converged")
    (*_, attempt) = study.ledger.attempts(0)
    assert (last.began, last.ended) == (attempt.claimed_at, attempt.ended_at)


def test_the_curves_of_several_trials_are_those_of_their_latest_attempts(study: OpenStudy) -> None:
    for trial, claim, loss in ((0, 1, 9.0), (0, 2, 0.5), (1, 3, 0.7)):
        study.epochs.write(
            trial, claim, [EpochRow(epoch, 1.0, loss, 1e-3, 0.1 * epoch) for epoch in (1, 2)]
        )
    found = study.epochs.of_trials([0, 1, 5])
    assert {number: [row.val_loss for row in rows] for number, rows in found.items()} == {
        0: [0.5, 0.5],
        1: [0.7, 0.7],
    }
    assert found[0] == study.epochs.of_trial(0)
