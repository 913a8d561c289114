"""An interrupted training goes on from its checkpoint on a GPU, whichever engine runs it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tuner.config import (
    Architecture,
    Backend,
    Hyperparameters,
    RunConfig,
    StopReason,
    TrainingSettings,
)
from tuner.data.windows import DeviceData
from tuner.training import FitResult, fit
from tuner.training.checkpoint import CheckpointFiles

pytestmark = pytest.mark.slow
EPOCHS = 5


@pytest.fixture(autouse=True)
def _short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: a stop waits for an epoch's end."""
    monkeypatch.setattr("tuner.training.checkpoint.LONG_EPOCH_S", math.inf)


def _config(model: str, backend: Backend, *, dropout: float = 0.3) -> RunConfig:
    return RunConfig(
        architecture=Architecture(model=model),
        hyperparameters=Hyperparameters(
            learning_rate=1e-3, weight_decay=0.01, dropout=dropout, hidden_size=32, batch_size=128
        ),
        training=TrainingSettings(max_epochs=EPOCHS, backend=backend),
        seed=3,
    )


def _files(folder: Path) -> CheckpointFiles:
    """Of trainings that take less than a second, and leave checkpoints all the same."""
    return CheckpointFiles(
        folder=folder, stem="trial-0", identity={"seed": 3}, every_s=0.0, least_s=0.0
    )


def _losses(result: FitResult) -> list[tuple[float, float | None]]:
    return [(record.train_loss, record.val_loss) for record in result.history]


@pytest.mark.parametrize(
    ("backend", "model"),
    [
        # What is compiled is captured, and has the state of what is captured.
        *((backend, "original") for backend in (Backend.EAGER, Backend.GRAPH, Backend.TRITON)),
        (Backend.EAGER, "batchnorm"),
        (Backend.GRAPH, "batchnorm"),
    ],
)
def test_a_resumed_training_equals_an_uninterrupted_one(
    cuda_data: DeviceData, tmp_path: Path, backend: Backend, model: str
) -> None:
    """Bit for bit: captured steps find their tensors filled in place, replays the right masks.
    batchnorm has buffers too.
    """
    config = _config(model, backend)
    whole = fit(config, cuda_data)
    steps = math.ceil(len(cuda_data.train) / 128)
    asked = iter(range(10**6))
    first = fit(
        config,
        cuda_data,
        checkpoints=_files(tmp_path),
        should_stop=lambda: StopReason.INTERRUPTED if next(asked) == 2 * steps + 1 else None,
    )
    assert (first.stopped_by, first.epochs) == (StopReason.INTERRUPTED, 3)
    torch.cuda.manual_seed(99)  # whatever else the process did meanwhile
    resumed = fit(config, cuda_data, checkpoints=_files(tmp_path))
    assert resumed.resumed_from == 3
    assert _losses(resumed) == _losses(whole)
    assert whole.model is not None
    assert resumed.model is not None
    states = zip(
        whole.model.state_dict().values(), resumed.model.state_dict().values(), strict=True
    )
    assert all(torch.equal(p, q) for p, q in states)
    assert resumed.history[:3] == first.history
    assert resumed.wall_clock_s > first.history[-1].elapsed_s


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Backend.EAGER, Backend.GRAPH),
        (Backend.GRAPH, Backend.TRITON),
        (Backend.TRITON, Backend.EAGER),
    ],
)
def test_a_training_goes_on_on_any_backend_from_the_state_of_another(
    cuda_data: DeviceData, tmp_path: Path, first: Backend, second: Backend
) -> None:
    """Each writes a state once, and each reads another's.

    Without dropout, whose masks differ: the same losses but for rounding. A wrong step or moment
    would show.
    """
    whole = fit(_config("original", first, dropout=0.0), cuda_data)
    steps = math.ceil(len(cuda_data.train) / 128)
    asked = iter(range(10**6))
    fit(
        _config("original", first, dropout=0.0),
        cuda_data,
        checkpoints=_files(tmp_path),
        should_stop=lambda: StopReason.INTERRUPTED if next(asked) == steps + 1 else None,
    )
    resumed = fit(_config("original", second, dropout=0.0), cuda_data, checkpoints=_files(tmp_path))
    assert (resumed.resumed_from, resumed.backend) == (2, second)
    for ours, theirs in zip(_losses(resumed), _losses(whole), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)
