"""The libraries get our windows and our values, and a network of the same size."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from darts.utils.data.torch_datasets.training_dataset import SequentialTorchTrainingDataset
from pytorch_lightning import Callback

from tuner.bench.contender import Contender, Job
from tuner.bench.darts_model import _fit_arguments
from tuner.bench.entrants import make_plan
from tuner.bench.lightning import seeded_lightning
from tuner.bench.neuralforecast_model import NeuralForecast, panel
from tuner.config import Precision
from tuner.data.prepare import PreparedData, PreparedSplit, prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.training.clock import arithmetic


def contenders(job: Job, data: DeviceData, against: str) -> list[Contender]:
    plan = make_plan(
        job,
        data,
        variants="original",
        backends="eager",
        against=against,
        hidden=[16],
        batch=[64],
    )
    return list(plan.contenders)


def darts_windows(prepared: PreparedData, split: PreparedSplit) -> SequentialTorchTrainingDataset:
    task = prepared.task
    return SequentialTorchTrainingDataset(
        **_fit_arguments(prepared, split),
        input_chunk_length=task.input_size,
        output_chunk_length=task.horizon,
    )


def in_order(rows: list[np.ndarray]) -> np.ndarray:
    stacked = np.stack(rows)
    return stacked[np.lexsort(stacked.T[::-1])]


@pytest.mark.parametrize("name", ["train", "val"])
def test_darts_has_the_same_windows_with_the_same_values(
    job: Job, data: DeviceData, name: str
) -> None:
    split, ours = getattr(job.prepared, name), getattr(data, name)
    theirs = darts_windows(job.prepared, split)
    batch = ours.gather(torch.arange(len(ours)))
    parts = (batch.past.flatten(1), batch.future.flatten(1), batch.static, batch.target.flatten(1))
    expected = in_order(list(torch.cat(parts, dim=1).numpy()))

    rows = []
    for number in range(len(theirs)):
        s = theirs[number]
        past = np.hstack([s.past_target, s.historic_future_covariates])
        parts = (
            past.ravel(),
            s.future_covariates.ravel(),
            s.static_covariates.ravel(),
            s.future_target.ravel(),
        )
        rows.append(np.concatenate(parts))
    np.testing.assert_array_equal(in_order(rows), expected)


def test_on_the_reference_job_darts_has_the_protocols_numbers_of_windows(
    etth_dir: Path, tmp_path: Path
) -> None:
    prepared = prepare(load_task("etth"), data_dir=etth_dir, cache_dir=tmp_path)
    assert len(darts_windows(prepared, prepared.train)) == 20_522
    assert -(-20_522 // 256) == 81
    assert len(darts_windows(prepared, prepared.val)) == 6_586


def test_darts_trains_a_network_of_the_same_size_in_as_many_steps(
    job: Job, data: DeviceData
) -> None:
    theirs, ours = (contender.run(1) for contender in contenders(job, data, "darts"))
    assert theirs.n_parameters == ours.n_parameters
    assert (theirs.n_windows, theirs.n_steps) == (ours.n_windows, ours.n_steps)
    assert len(theirs.epochs) == 1
    assert all(0 < epoch.step_s * theirs.n_steps < epoch.seconds for epoch in theirs.epochs)
    assert theirs.setup_s > 0


def test_neuralforecast_draws_from_all_windows_of_the_first_series(
    job: Job, data: DeviceData
) -> None:
    theirs = contenders(job, data, "neuralforecast")[0]
    assert isinstance(theirs, NeuralForecast)
    dataset = panel(job.prepared)
    items = [dataset[number] for number in range(len(dataset))]
    batch = {
        "temporal": torch.stack([item["temporal"] for item in items]),
        "temporal_cols": dataset.temporal_cols,
    }
    with seeded_lightning(job.precision, job.seed, job.device):
        model = theirs._model(callback=Callback(), max_steps=1)
        model.val_size = model.test_size = 0
        windows, *_, usable, _, _ = model._create_windows(batch, step="train")
    first = (data.train.series_index == 0).nonzero().squeeze(1)
    assert len(usable) == len(first)
    ours = data.train.gather(first)
    theirs_past = windows[usable][:, : job.prepared.task.input_size, 0]
    torch.testing.assert_close(theirs_past, ours.past[..., : data.shapes.n_targets], rtol=0, atol=0)


def test_neuralforecast_is_timed_in_steps(job: Job, data: DeviceData) -> None:
    turn = contenders(job, data, "neuralforecast")[0].run(2)
    assert len(turn.epochs) == 2
    assert all(epoch.seconds == pytest.approx(epoch.step_s * turn.n_steps) for epoch in turn.epochs)


@pytest.mark.parametrize("precision", Precision)
def test_every_precision_reaches_the_libraries(
    job: Job, data: DeviceData, precision: Precision
) -> None:
    with arithmetic(Precision.TF32):
        pass  # what our engines do before
    other = dataclasses.replace(job, precision=precision)
    for contender in contenders(other, data, "darts,neuralforecast"):
        assert contender.run(1).epochs[0].seconds > 0
    assert torch.get_float32_matmul_precision() == "highest"


def test_ctrl_c_within_lightning_stays_an_interruption(job: Job) -> None:

    from tuner.bench.darts_model import Darts

    class Interrupting(Callback):
        def on_train_batch_start(self, *_: object) -> None:
            raise KeyboardInterrupt

    darts = contenders(job, to_device(job.prepared, "cpu"), "darts")[0]
    assert isinstance(darts, Darts)
    with (
        pytest.raises(KeyboardInterrupt),
        seeded_lightning(job.precision, job.seed, job.device),
    ):
        darts._model(Interrupting()).fit(**darts._train, epochs=1)
    import signal

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
