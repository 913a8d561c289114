"""Learning curves and the list of workers, on both databases."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import update

from tests.support.databases import SQLITE_ALONE
from tuner.storage import schema
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.roster import SILENT_AFTER_S
from tuner.study.open import OpenStudy


def row(epoch: int, loss: float | None = 0.5) -> EpochRow:
    return EpochRow(
        epoch,
        train_loss=loss,
        val_loss=loss,
        learning_rate=1e-3 * 0.999**epoch,
        elapsed_s=epoch / 3,
    )


def test_epochs_come_back_in_order_and_bit_for_bit(study: OpenStudy) -> None:
    study.epochs.write(0, 1, [row(2), row(3, None)])
    study.epochs.write(0, 1, [row(1)])
    study.epochs.write(0, 1, [])
    study.epochs.write(1, 2, [row(9)])
    assert study.epochs.of_trial(0) == (row(1), row(2), row(3, None))
    assert study.epochs.of_trial(1) == (row(9),)
    assert study.epochs.of_trial(2) == ()


def test_the_curves_of_several_trials_come_in_one_query_each_as_if_asked_for_alone(
    study: OpenStudy,
) -> None:
    study.epochs.write(0, 1, [row(1), row(2)])
    study.epochs.write(0, 5, [row(1, 0.25), replace(row(1, 0.75), repeat=1)])
    study.epochs.write(1, 2, [row(2), row(1)])
    study.epochs.write(2, 3, [row(9)])
    assert study.epochs.of_trials([0, 1, 7]) == {
        0: study.epochs.of_trial(0),
        1: study.epochs.of_trial(1),
    }
    assert study.epochs.of_trials([]) == {}


def join(study: OpenStudy, worker: str) -> None:
    study.roster.join(worker, host="host", pid=7, device="CPU core 0", device_uuid="cpu-host-0")


def test_a_worker_is_listed_with_what_it_does_until_it_leaves(study: OpenStudy) -> None:
    join(study, "ann")
    join(study, "bob")
    study.roster.report("ann", trial_number=3, epoch=12, val_loss=0.25)
    ann, bob = study.roster.working()
    assert (ann.worker, ann.host, ann.pid, ann.device, ann.device_uuid) == (
        "ann",
        "host",
        7,
        "CPU core 0",
        "cpu-host-0",
    )
    assert (ann.trial_number, ann.epoch, ann.val_loss) == (3, 12, 0.25)
    assert (bob.worker, bob.trial_number, bob.epoch) == ("bob", None, None)
    assert -0.1 <= ann.silent_s < 30
    study.roster.report("ann", note="disk full")
    assert [each.note for each in study.roster.working()] == ["disk full", None]
    study.roster.leave("ann")
    assert [each.worker for each in study.roster.working()] == ["bob"]
    join(study, "ann")
    assert [(each.worker, each.trial_number) for each in study.roster.working()] == [
        ("ann", None),
        ("bob", None),
    ]


@SQLITE_ALONE
def test_a_worker_that_went_silent_is_not_listed(study: OpenStudy) -> None:
    join(study, "ann")
    with study.database.engine.begin() as connection:
        seen_at = schema.workers.c.seen_at
        connection.execute(update(schema.workers).values(seen_at=seen_at - SILENT_AFTER_S - 1))
    assert study.roster.working() == ()
    study.roster.report("ann")
    assert len(study.roster.working()) == 1


def test_epochs_written_again_after_a_lost_answer_are_there_once(study: OpenStudy) -> None:
    rows = [EpochRow(1, 0.5, 0.6, 1e-3, 1.0), EpochRow(2, 0.4, 0.5, 1e-3, 2.0)]
    study.epochs.write(0, 7, rows)
    study.epochs.write(0, 7, [*rows, EpochRow(3, 0.3, 0.4, 1e-3, 3.0)])
    assert [row.epoch for row in study.epochs.of_trial(0)] == [1, 2, 3]
