"""The callback for Lightning in a plain loop: Lightning's optimisers and loaders are torch's."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tuner.errors import TunerError
from tuner.profile import lightning_profile
from tuner.profile.lightning_profile import LightningProfile
from tuner.training.stage_marks import Stage


def train(network: nn.Module, epochs: int) -> None:
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    for _ in range(epochs):
        for given, target in DataLoader(data, batch_size=8):
            optimizer.zero_grad()
            nn.functional.mse_loss(network(given), target).backward()
            optimizer.step()


@pytest.mark.parametrize("epochs", [4, 12], ids=["shorter", "longer"])
def test_a_training_is_profiled_and_goes_on(epochs: int, tmp_path: Path) -> None:
    """SETTLE and all blocks of 30 steps take 47 of them."""
    network = nn.Linear(4, 1)
    callback = LightningProfile(steps=30, html=tmp_path / "page.html", show=False)
    callback.on_train_start(None, network)
    train(network, epochs)
    callback.on_train_end(None, network)
    assert callback.profile is not None
    assert (callback.profile.pace.batch_size, callback.profile.pace.windows) == (8, 64)
    assert callback.profile.stages.seconds[Stage.BACKWARD] > 0
    assert "<svg" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not network._forward_hooks
    assert torch.Tensor.backward.__module__ == "torch._tensor"
    train(network, 1)


def test_without_lightning_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pytorch_lightning", "lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TunerError, match=r"pip install 'tuner\[lightning\]'"):
        importlib.reload(lightning_profile)
