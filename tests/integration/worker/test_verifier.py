"""A verifying worker in this process, with runs that only pretend to train: outages, a full disk,
lost leases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from tests.support.cli_processes import wait_for
from tests.support.databases import SQLITE_ALONE
from tests.support.drawn_verifications import DEVICE, drawn_result
from tests.support.in_process_worker import away, epoch
from tuner.config import StopReason
from tuner.storage import schema
from tuner.storage.queue.roster import Roster
from tuner.storage.queue.verifications import PlannedRun, Verifications
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob
from tuner.verdict.verified import verifications_of
from tuner.worker.loop import Worker
from tuner.worker.paths import WorkerPaths
from tuner.worker.process import ContextLostError
from tuner.worker.trial_source import VerificationSource


@pytest.fixture
def queue(study: OpenStudy) -> Verifications:
    """Two runs of the default configuration, on two seeds."""
    runs = [
        PlannedRun(
            study_id=study.study_id,
            trial_number=0,
            block=0,
            session="s",
            plan={"looks": []},
            seed=seed,
            place=seed,
            params=study.definition.defaults.as_dict(),
        )
        for seed in range(2)
    ]
    verifications_of([study]).add(runs)
    return verifications_of([study])


def verify(
    study: OpenStudy,
    run: Callable[[TrialJob], TrialResult | None] = drawn_result,
    paths: WorkerPaths | None = None,
) -> None:
    verifier(study, run, paths).run()


def verifier(
    study: OpenStudy, run: Callable[[TrialJob], TrialResult | None], paths: WorkerPaths | None
) -> Worker:
    source = VerificationSource
    return Worker([study], DEVICE, run, source=source, name="ann", paths=paths)


def states(queue: Verifications) -> list[str]:
    return [run.state for run in queue.runs()]


def failing_once(what: str) -> Callable[..., object]:
    """In the place of a method of a class: its first call does not reach the database."""
    kind, name = (Roster, what) if hasattr(Roster, what) else (Verifications, what)
    real = getattr(kind, name)
    calls: list[str] = []

    def call(self: object, *given: object, **more: object) -> object:
        calls.append(what)
        if len(calls) == 1:
            raise OperationalError("UPDATE", {}, Exception("server closed the connection"))
        return real(self, *given, **more)

    return call


@SQLITE_ALONE
@pytest.mark.parametrize(
    "what", ["join", "reap", "claim", "counts", "finish", "give_back", "leave"]
)
def test_an_outage_at_any_moment_ends_no_verifier(
    study: OpenStudy, queue: Verifications, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    kind = Roster if hasattr(Roster, what) else Verifications
    monkeypatch.setattr(kind, what, failing_once(what))
    answers: list[TrialResult | None] = []

    def interrupted_once(job: TrialJob) -> TrialResult | None:
        answers.append(drawn_result(job) if answers else None)
        return answers[-1]

    verify(study, interrupted_once)
    assert states(queue) == ["finished", "finished"]
    assert len(answers) == 3


@SQLITE_ALONE
def test_a_full_disk_is_named_and_waited_for(
    study: OpenStudy, queue: Verifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.worker.paths.LOOK_AGAIN_S", 0.0)
    notes: list[str | None] = []
    real = Verifications.finish

    def finish(self: Verifications, *given: object) -> bool:
        (row,) = study.roster.working()
        notes.append(row.note)
        if len(notes) == 1:
            raise OperationalError("UPDATE", {}, Exception("database or disk is full"))
        return real(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Verifications, "finish", finish)
    verify(study)
    assert states(queue) == ["finished", "finished"]
    assert notes[0] is None
    assert notes[1] is not None
    assert "disk full: database or disk is full" in notes[1]
    assert notes[2] is None


def test_a_run_that_another_has_by_now_is_stopped_and_what_others_lost_is_taken_back(
    study: OpenStudy, queue: Verifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the thread that keeps the lease, while this one trains."""
    monkeypatch.setattr("tuner.storage.queue.leased_queue.HEARTBEATS_PER_LEASE", 6000.0)
    monkeypatch.setattr("tuner.storage.queue.leased_queue.CONFIRM_SHARE", 0.0)
    c = schema.work.c
    stopped: list[StopReason | None] = []

    def run(job: TrialJob) -> TrialResult | None:
        if job.seed != 0 or stopped:
            return drawn_result(job)
        assert queue.claim("dead") is not None
        with study.database.engine.begin() as connection:
            connection.execute(
                update(schema.work).where(c.worker == "dead").values(leased_until=0.0)
            )
        wait_for(
            lambda: states(queue) == ["running", "waiting"],
            "the dead worker's run to be taken back",
        )
        queue.reap(worker="ann")
        stopped.append(wait_for(job.should_stop, "the loss of the lease to be noticed"))
        return None

    verify(study, run)
    assert stopped == [StopReason.INTERRUPTED]
    assert states(queue) == ["finished", "finished"]
    assert [run.losses for run in queue.runs()] == [1, 1]


@SQLITE_ALONE
def test_a_lost_context_is_told_with_the_results_before_it(
    study: OpenStudy, queue: Verifications
) -> None:
    """They say that the device works; the failure itself is none of them."""

    def run(job: TrialJob) -> TrialResult:
        if job.seed == 1:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return drawn_result(job)

    with pytest.raises(ContextLostError) as lost:
        verify(study, run)
    assert lost.value.results == 1
    assert states(queue) == ["finished", "finished"]


@SQLITE_ALONE
def test_a_result_outlives_its_verifier_and_the_next_one_delivers_it(
    study: OpenStudy, queue: Verifications, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the training and the database's answer."""
    made: list[int | None] = []

    def run(job: TrialJob) -> TrialResult:
        made.append(job.seed)
        return drawn_result(job)

    with monkeypatch.context() as patch:
        patch.setattr(Verifications, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            verify(study, run, WorkerPaths(tmp_path))
    assert states(queue) == ["running", "waiting"]
    verify(study, run, WorkerPaths(tmp_path))
    assert states(queue) == ["finished", "finished"]
    assert made == [0, 1]
    assert list((tmp_path / "outbox").iterdir()) == []


def killed(*_: object) -> None:
    raise KeyboardInterrupt


@SQLITE_ALONE
def test_a_run_without_a_value_is_a_failure_by_name_and_stops_nobody(
    study: OpenStudy, queue: Verifications
) -> None:
    """As where somebody else wrote it."""
    lacking = {"learning_rate": 1e-3}
    plan = PlannedRun(
        study_id=study.study_id,
        trial_number=0,
        params=lacking,
        seed=2,
        block=2,
        place=-1,
        session="s",
        plan={"looks": []},
    )
    queue.add([plan])
    verify(study)
    assert states(queue) == ["finished"] * 3
    result = queue.runs()[0].result
    assert result is not None
    assert result.recorded.failure == "planned without a value of 'weight_decay'"


@SQLITE_ALONE
def test_who_watches_hears_of_a_runs_epochs_after_an_outage_and_no_curve_is_kept(
    study: OpenStudy, queue: Verifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.worker.work_source.REPORT_S", 0.0)
    seen: list[tuple[int | None, float | None]] = []

    def run(job: TrialJob) -> TrialResult:
        with monkeypatch.context() as outage:
            outage.setattr(Roster, "report", away)
            job.on_epoch(epoch(1), 0)
        job.on_epoch(epoch(2), 0)
        (row,) = study.roster.working()
        seen.append((row.epoch, row.val_loss))
        return drawn_result(job)

    verify(study, run)
    assert seen == [(2, epoch(2).val_loss)] * 2
    assert study.epochs.of_trial(0) == ()
    assert states(queue) == ["finished", "finished"]


@SQLITE_ALONE
def test_who_hands_back_in_its_stead_delivers_what_it_could_not(
    study: OpenStudy, queue: Verifications, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = verifier(study, drawn_result, WorkerPaths(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(Verifications, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            ann.run()
    ann.hand_back()
    assert states(queue) == ["finished", "waiting"]
