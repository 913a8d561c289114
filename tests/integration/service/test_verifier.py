"""A verifying worker in this process, with runs that only pretend to train: outages, a full disk, lost leases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command import wait_for
from sqlalchemy import update
from sqlalchemy.exc import OperationalError
from verifying import DEVICE, drawn_result

from tuner.config import StopReason
from tuner.job import TrialJob
from tuner.storage import PlannedRun, TrialResult, Verifications, schema
from tuner.storage.roster import Roster
from tuner.study import OpenStudy
from tuner.study.verification import verifications_of
from tuner.verifier import Verifier
from tuner.worker import ContextLostError, Places


@pytest.fixture
def queue(study: OpenStudy) -> Verifications:
    """Two runs of the default configuration, on two seeds."""
    plan = {"study_id": study.study_id, "trial_number": 0, "block": 0, "session": "s", "plan": {"looks": []}}
    params = study.definition.defaults.as_dict()
    verifications_of([study]).add([PlannedRun(seed=seed, place=seed, params=params, **plan) for seed in range(2)])
    return verifications_of([study])


def verify(
    study: OpenStudy, run: Callable[[TrialJob], TrialResult | None] = drawn_result, places: Places | None = None
) -> None:
    Verifier([study], DEVICE, run, name="ann", places=places).run()


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


@pytest.mark.parametrize("what", ["join", "reap", "claim", "counts", "finish", "give_back", "leave"])
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


def test_a_full_disk_is_named_and_waited_for(
    study: OpenStudy, queue: Verifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.worker.patience.LOOK_AGAIN_S", 0.0)
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
    monkeypatch.setattr("tuner.storage.leases.HEARTBEATS_PER_LEASE", 6000.0)
    monkeypatch.setattr("tuner.storage.leases.CONFIRM_SHARE", 0.0)
    c = schema.verifications.c
    stopped: list[StopReason | None] = []

    def run(job: TrialJob) -> TrialResult | None:
        if job.seed != 0 or stopped:
            return drawn_result(job)
        assert queue.claim("dead") is not None
        with study.database.engine.begin() as connection:
            connection.execute(update(schema.verifications).where(c.worker == "dead").values(leased_until=0.0))
        wait_for(lambda: states(queue) == ["running", "waiting"], "the dead worker's run to be taken back")
        queue.reap(worker="ann")
        stopped.append(wait_for(job.should_stop, "the loss of the lease to be noticed"))
        return None

    verify(study, run)
    assert stopped == [StopReason.INTERRUPTED]
    assert states(queue) == ["finished", "finished"]
    assert [run.losses for run in queue.runs()] == [1, 1]


def test_a_lost_context_is_told_with_the_results_before_it(study: OpenStudy, queue: Verifications) -> None:
    """They say that the device works; the failure itself is none of them."""

    def run(job: TrialJob) -> TrialResult:
        if job.seed == 1:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return drawn_result(job)

    with pytest.raises(ContextLostError) as lost:
        verify(study, run)
    assert lost.value.results == 1
    assert states(queue) == ["finished", "finished"]


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
            verify(study, run, Places(tmp_path))
    assert states(queue) == ["running", "waiting"]
    verify(study, run, Places(tmp_path))
    assert states(queue) == ["finished", "finished"]
    assert made == [0, 1]
    assert list((tmp_path / "outbox").iterdir()) == []


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_who_hands_back_in_its_stead_delivers_what_it_could_not(
    study: OpenStudy, queue: Verifications, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = Verifier([study], DEVICE, drawn_result, name="ann", places=Places(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(Verifications, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            verifier.run()
    verifier.hand_back()
    assert states(queue) == ["finished", "waiting"]
