"""Two GPUs share a study: each trial names its device, and the same configurations take half the time."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tuner.devices.lock import lock_folder
from tuner.devices.neighbours import signed_in
from tuner.study import studies_folder
from tuner.study.results import TrialRecord

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


def fixed_study(folder: Path) -> Path:
    """The original with every range closed on one value: all trials cost the same."""
    text = (studies_folder() / "original.toml").read_text()
    head, _, _ = text.partition("[space.learning_rate]")
    head = head.replace('name = "original"', 'name = "fixed"').replace("batch_size = 256", "batch_size = 64")
    values = {"learning_rate": 1e-4, "weight_decay": 0.0, "dropout": 0.1, "hidden_size": 64, "batch_size": 64}
    ranges = "".join(f"[space.{name}]\nlow = {value}\nhigh = {value}\n" for name, value in values.items())
    path = folder / "fixed.toml"
    path.write_text(f"{head}{ranges}[training]\nmax_epochs = 40\npatience = 1000\n")
    return path


def launch(study: Path, gpus: str, storage: str) -> tuple[TrialRecord, ...]:
    from tuner.api import load_study

    command = [sys.executable, "-m", "tuner", "launch", "--variant", str(study), "--task", "etth", "--gpus", gpus]
    command += ["--backend", "graph"]  # which compiles nothing that the second launch would find
    with signed_in(lock_folder()):  # other tests may have left a context of this process on the GPUs: it does no work
        subprocess.run([*command, "--trials", "4", "--storage", storage], check=True, env=os.environ, timeout=300)
    return load_study("etth-fixed", storage=storage).records


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
    assert len({record.attributes["device_uuid"] for record in both}) == 2
    assert len({record.attributes["device_label"] for record in both}) == 2
    assert len({record.attributes["device_uuid"] for record in alone}) == 1
    for record in (*both, *alone):
        assert not record.attributes["contaminated"]
    print(f"four trials: {span_s(alone):.2f} s on one GPU, {span_s(both):.2f} s on two")
    for record in (*both, *alone):
        print(record.number, record.attributes["device_label"], record.attributes["device_uuid"], record.values)
    assert span_s(both) <= span_s(alone) / 1.9
