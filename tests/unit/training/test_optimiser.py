"""The optimiser of a training step: torch's, without torch's compiler."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch

from tuner.training.step import AdamW


def trained(kind: type[torch.optim.AdamW]) -> list[torch.Tensor]:
    """A parameter after each of three steps, and its moments after the last."""
    draw = torch.Generator().manual_seed(1)
    parameter = torch.nn.Parameter(torch.randn(5, generator=draw))
    optimizer = kind([parameter], lr=0.1, weight_decay=0.1, fused=True)
    seen = []
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        (parameter * torch.randn(5, generator=draw)).square().sum().backward()
        optimizer.step()
        seen.append(parameter.detach().clone())
    return [*seen, *optimizer.state[parameter].values()]


def test_it_computes_what_torchs_does() -> None:
    for ours, theirs in zip(trained(AdamW), trained(torch.optim.AdamW), strict=True):
        assert not ours.requires_grad
        assert torch.equal(ours, theirs)


def test_it_imports_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrapped in (torch.optim.AdamW.add_param_group, torch.optim.AdamW.zero_grad):
        # What torch remembers of an earlier optimiser of this process.
        monkeypatch.delattr(inspect.unwrap(wrapped), "__dynamo_disable", raising=False)
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    with pytest.raises(ImportError):
        trained(torch.optim.AdamW)
    assert len(trained(AdamW)) == 6
