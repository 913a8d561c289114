"""What a training that goes on from a checkpoint knows of the attempts before it: whether its
device was its own, and which epochs are of another attempt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.checkpointed_trainings import files
from tests.support.present import present
from tests.support.tiny_tasks import tiny_task
from tests.support.trial_jobs import job_of
from tuner.config import EpochRecord, StopReason
from tuner.data.prepare import prepare
from tuner.data.windows import DeviceData, to_device
from tuner.devices import Carried, Observation
from tuner.record import Recorded
from tuner.study.throughput import with_fall
from tuner.training import fit
from tuner.trial import run as objective
from tuner.trial.run import run_config, run_trial

CLEAN = Observation(contaminated=False, why="", energy_j=10.0)
SHARED = Observation(contaminated=True, why="others used 40%", energy_j=15.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DeviceData:
    return to_device(prepare(tiny_task(), cache_dir=tmp_path_factory.mktemp("prepared")), "cpu")


class Looks:
    """In place of a watch: each attempt sees its device as it is told here."""

    seen = CLEAN

    def __init__(self, device: object) -> None:
        del device

    def clock_starts(self) -> None:
        """Nothing counts joules."""

    def finish(self) -> Observation:
        return self.seen


def attempt(
    data: DeviceData, folder: Path, patch: pytest.MonkeyPatch, seen: Observation, last: int | None
) -> Recorded | None:
    """What is recorded of an attempt that is interrupted after epoch `last`; None: of the last."""
    patch.setattr(objective, "Watch", Looks)
    patch.setattr(Looks, "seen", seen)
    job = job_of()

    def on_epoch(record: EpochRecord) -> StopReason | None:
        return StopReason.INTERRUPTED if record.epoch == last else None

    result = run_trial(
        replace(job.definition, training=job.definition.training.but(max_epochs=4)),
        job.hyperparameters,
        0,
        data,
        job.device,
        on_epoch=on_epoch,
        should_stop=lambda: None,
        checkpoints=files(folder),
    )
    return None if result is None else result.recorded


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ([CLEAN, CLEAN, CLEAN], ""),
        ([SHARED, CLEAN, CLEAN], "others used 40%"),
        ([CLEAN, SHARED, CLEAN], "others used 40%"),
        ([CLEAN, CLEAN, SHARED], "others used 40%"),
    ],
)
def test_a_device_that_was_shared_in_any_attempt_spoils_the_timing(
    data: DeviceData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seen: list[Observation],
    why: str,
) -> None:
    monkeypatch.setattr("tuner.trial.job.RESOLVED_S", 0.0)
    assert attempt(data, tmp_path, monkeypatch, seen[0], 1) is None
    assert attempt(data, tmp_path, monkeypatch, seen[1], 2) is None
    recorded = present(attempt(data, tmp_path, monkeypatch, seen[2], None))
    assert recorded.resumed_from_epoch == 2
    assert (recorded.contaminated, recorded.contamination) == (bool(why), why)
    assert len(present(recorded.timed_earlier)) == 2
    assert recorded.energy_j == (35.0 if why else 30.0)


@pytest.mark.parametrize(
    "notes", [{}, {"contaminated": None, "energy_j": -1.0}, {"contaminated": "no", "energy_j": "1"}]
)
def test_notes_that_do_not_say_a_device_was_its_own_say_that_it_was_not(
    notes: dict[str, object],
) -> None:
    carried = Carried()
    carried.take(notes)
    merged = carried.merged(CLEAN)
    assert merged.contaminated
    assert merged.why == "nothing is known of the device before the interruption"
    assert merged.energy_j is None


def test_epochs_of_an_attempt_elsewhere_are_no_fall_of_the_throughput(data: DeviceData) -> None:
    """Twenty epochs of a second each, then twenty of two on another machine."""
    job = job_of()
    ended = fit(run_config(job.definition, job.hyperparameters, 0), data)
    history = tuple(
        replace(ended.history[0], epoch=n, elapsed_s=float(n + max(0, n - 20)))
        for n in range(1, 41)
    )

    def slowed(after: int) -> str | None:
        return with_fall(Recorded(), history, windows=100, after=after).slowed

    assert "throughput fell" in str(slowed(0))
    assert slowed(20) == ""
