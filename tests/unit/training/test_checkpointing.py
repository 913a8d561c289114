"""What is held of a training between two epochs: exact copies, made in few operations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from tuner.training.batching import Shuffles
from tuner.training.checkpoint import Checkpointer, CheckpointFiles, Progress
from tuner.training.engines.eager import Engine
from tuner.training.model_state import Snapshot, copy_together


class _Files:
    """Keeps what it is given, as it was then."""

    def __init__(self) -> None:
        self.saved: dict[str, Tensor] = {}

    def worth(self, elapsed_s: float) -> bool:
        return elapsed_s > 0

    def save(self, _progress: object, tensors: dict[str, Tensor]) -> None:
        self.saved = {name: tensor.clone() for name, tensor in tensors.items()}


class _Training:
    """Stands in for an engine: weights, a counter, and moments that appear with the first step."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.moments: dict[str, Tensor] = {}

    def step(self) -> None:
        with torch.no_grad():
            for tensor in (*self.model.parameters(), *self.model.buffers()):
                tensor.add_(1)
        self.moments["optimizer/0/exp_avg"] = torch.full((2,), float(len(self.moments)))

    def state(self) -> dict[str, Tensor]:
        weights = (*self.model.parameters(), *self.model.buffers())
        return {f"model/{n}": tensor for n, tensor in enumerate(weights)} | self.moments


@pytest.fixture
def training() -> _Training:
    return _Training()


def kept(training: _Training) -> tuple[Checkpointer, _Files]:
    files = _Files()
    device = torch.device("cpu")
    checkpointer = Checkpointer(
        cast("CheckpointFiles", files),
        cast("Engine", training),
        Snapshot(training.model),
        Shuffles(torch.Generator(), 5, device),
        device,
    )
    return checkpointer, files


def test_what_is_held_is_the_latest_state_also_of_what_appeared_later(training: _Training) -> None:
    checkpointer, files = kept(training)
    for _ in range(3):
        checkpointer.hold(cast("Progress", SimpleNamespace(elapsed_s=5.0)))
        checkpointer.write()
        for name, tensor in training.state().items():
            assert torch.equal(files.saved[name], tensor), name
        training.step()
    assert "optimizer/0/exp_avg" in files.saved
    assert not torch.equal(files.saved["model/0"], training.state()["model/0"]), (
        "a copy, not the tensor itself"
    )


def test_a_type_is_copied_at_once_however_many_tensors_it_has(
    training: _Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []
    copy = torch._foreach_copy_

    def counted(targets: list[Tensor], sources: list[Tensor]) -> None:
        together.append(len(targets))
        copy(targets, sources)

    checkpointer, _ = kept(training)
    training.step()
    checkpointer.hold(cast("Progress", None))
    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    monkeypatch.setattr(Tensor, "copy_", None)
    checkpointer.hold(cast("Progress", None))
    # The network and its best weights: four parameters and two means; one moment; batches seen.
    assert together == [2 * 6 + 1, 2]


def test_tensors_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        copy_together([torch.zeros(1)], [])
