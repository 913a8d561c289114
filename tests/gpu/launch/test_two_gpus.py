"""Two GPUs share a study: each trial names its device, and trials take half the time."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.present import present
from tuner.devices.lock import lock_folder, signed_in
from tuner.spec.study_file import studies_folder
from tuner.study.results import TrialRecord

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")

TRIALS = 6
"""So that each of two devices has two at least, though one began a whole trial after the other."""


def fixed_study(folder: Path) -> Path:
    """The original with every range closed on one value: all trials cost the same."""
    text = (studies_folder() / "original.toml").read_text()
    head, _, _ = text.partition("[space.learning_rate]")
    head = head.replace('name = "original"', 'name = "fixed"').replace(
        "batch_size = 256", "batch_size = 64"
    )
    values = {
        "learning_rate": 1e-4,
        "weight_decay": 0.0,
        "dropout": 0.1,
        "hidden_size": 64,
        "batch_size": 64,
    }
    ranges = "".join(
        f"[space.{name}]\nlow = {value}\nhigh = {value}\n" for name, value in values.items()
    )
    path = folder / "fixed.toml"
    path.write_text(f"{head}{ranges}[training]\nmax_epochs = 40\npatience = 1000\n")
    return path


def launch(study: Path, gpus: str, storage: str) -> tuple[TrialRecord, ...]:
    from tuner.api import load_study

    command = [
        sys.executable,
        "-m",
        "tuner",
        "launch",
        "--variant",
        str(study),
        "--task",
        "etth",
        "--gpus",
        gpus,
    ]
    command += ["--backend", "graph"]  # which compiles nothing that the second launch would find
    command += ["--trials", str(TRIALS), "--storage", storage]
    # Other tests may have left a context of this process on the GPUs: it does no work.
    with signed_in(lock_folder()):
        subprocess.run(
            [*command, "--trials", str(TRIALS), "--storage", storage],
            check=True,
            env=os.environ,
            timeout=300,
        )
    return load_study("etth-fixed", storage=storage).records


def by_device(records: tuple[TrialRecord, ...]) -> list[list[TrialRecord]]:
    """The trials of each device, in the order in which they were trained."""
    found: dict[str, list[TrialRecord]] = {}
    for record in sorted(records, key=lambda each: present(each.recorded.timed_from)):
        found.setdefault(present(record.recorded.device_uuid), []).append(record)
    return list(found.values())


def s_per_trial(records: tuple[TrialRecord, ...]) -> float:
    """Seconds from one training's end to the next one's, all between included: the slowest GPU.

    So a worker's beginning does not count. It takes seconds whatever follows (libraries and the
    device's context are loaded in its first set-up), and those of several workers neither end
    together nor become shorter with their number.
    """
    ends = [[present(each.recorded.timed_until) for each in own] for own in by_device(records)]
    assert all(len(each) > 1 for each in ends), (
        f"a device had one trial only: it began too late, {begins(records)}"
    )
    return max((each[-1] - each[0]) / (len(each) - 1) for each in ends)


def begins(records: tuple[TrialRecord, ...]) -> str:
    """For the reader: when each device got its first trial, and when that one's clock began."""
    firsts = [own[0] for own in by_device(records)]
    given = [datetime.datetime.fromisoformat(each.started or "").timestamp() for each in firsts]
    return ", ".join(
        f"given after {start - min(given):.1f} s and training after "
        f"{(each.recorded.timed_from or 0.0) - min(given):.1f} s"
        for start, each in zip(given, firsts, strict=True)
    )


def span_s(records: tuple[TrialRecord, ...]) -> float:
    starts = [datetime.datetime.fromisoformat(record.started or "") for record in records]
    ends = [datetime.datetime.fromisoformat(record.ended or "") for record in records]
    return (max(ends) - min(starts)).total_seconds()


def test_two_gpus_halve_the_time_of_the_same_configurations(tmp_path: Path, etth_dir: Path) -> None:
    os.environ["TUNER_DATA_DIR"] = str(etth_dir)
    study = fixed_study(tmp_path)
    both = launch(study, "0,1", f"sqlite:///{tmp_path}/two.db")
    alone = launch(study, "0", f"sqlite:///{tmp_path}/one.db")
    assert [record.params for record in both] == [record.params for record in alone]
    assert len({record.recorded.device_uuid for record in both}) == 2
    assert len({record.recorded.device_label for record in both}) == 2
    assert len({record.recorded.device_uuid for record in alone}) == 1
    for record in (*both, *alone):
        assert not record.recorded.contaminated
    for gpus, records in (("one GPU", alone), ("two", both)):
        print(
            f"{TRIALS} trials on {gpus}: {span_s(records):.2f} s; first trials: {begins(records)}"
        )
        for record in records:
            kept = ("wall_clock_s", "setup_s", "total_s", "cycle_s")
            seconds = {name: record.recorded.named(name) for name in kept}
            clock = (record.recorded.timed_from, record.recorded.timed_until)
            print(record.number, record.recorded.device_label, record.values, seconds, clock)
    print(
        f"seconds a trial and device: {s_per_trial(alone):.2f} on one GPU, "
        f"{s_per_trial(both):.2f} on two"
    )
    assert s_per_trial(both) / 2 <= s_per_trial(alone) / 1.9
