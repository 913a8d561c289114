"""A network that is too large is refused before its memory is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tuner.config import Architecture, Hyperparameters, ModelShapes
from tuner.devices.host import free_memory_bytes
from tuner.models.registry import build_model
from tuner.training.inspection.enough_memory import COPIES, TooLargeError, needed_bytes, within

SHAPES = ModelShapes(
    input_size=8, horizon=3, n_targets=2, n_past=0, n_future=2, n_static=1, n_quantiles=3
)
SIZES = Hyperparameters(
    learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=8, batch_size=16
)


def test_a_tensor_larger_than_what_is_free_is_not_made() -> None:
    with within(4_000), pytest.raises(TooLargeError):
        torch.randn(1001)
    with within(4_004):
        assert torch.randn(1001).shape == (1001,)


def test_parameters_count_with_their_gradients_and_moments() -> None:
    needed = COPIES * 4 * (10 * 10 + 10)
    with within(needed):
        nn.Linear(10, 10)
    with within(needed - 1), pytest.raises(TooLargeError):
        nn.Linear(10, 10)


def test_a_parameter_of_two_modules_counts_once() -> None:
    with within(COPIES * 4 * 100):
        first = nn.Linear(10, 10, bias=False)
        assert isinstance(first.weight, nn.Parameter)
        nn.Module().register_parameter("weight", first.weight)


def test_nothing_is_watched_afterwards() -> None:
    with within(1):
        pass
    nn.Linear(10, 10)


def test_what_is_needed_is_known_without_the_memory() -> None:
    needed, all_of_it = needed_bytes(Architecture(model="original"), SHAPES, SIZES)
    model = build_model(Architecture(model="original"), SHAPES, SIZES)
    assert all_of_it
    assert needed == COPIES * 4 * sum(p.numel() for p in model.parameters())


def group(folder: Path, limit: str, used: int, cached: int) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n")
    return folder


def test_a_containers_limit_counts_and_what_files_take_of_it_is_free(tmp_path: Path) -> None:
    assert free_memory_bytes(group(tmp_path, "1000", 900, 50)) == 150
    assert free_memory_bytes(group(tmp_path, "max", 900, 50)) > 1000
    assert free_memory_bytes(tmp_path / "nothing") > 1000
