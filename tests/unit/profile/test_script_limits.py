"""A run of a stranger's script with something changed may hang, or take for ever: it is ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.devices import CpuCores
from tuner.profile import script_profile
from tuner.profile.profile_records import ADVICE, MEMORY, Profile
from tuner.profile.script_profile import Script, profile_script

TRAINS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

net = nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
for epoch in range(100):
    for (x,) in DataLoader(TensorDataset(torch.ones(160, 8)), batch_size=4):
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()
"""


def test_the_profile_goes_on_and_says_what_took_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_profile, "LEAST_S", 0.2)
    monkeypatch.setattr(script_profile, "TIMES", 0.0)
    path = tmp_path / "train.py"
    path.write_text(TRAINS)
    lines: list[str] = []
    device = CpuCores((min(os.sched_getaffinity(0)),))
    script = Script(path=path, arguments=(), steps=30)
    told: list[Profile] = []
    found = profile_script(script, device, advice=True, announce=lines.append, tell=told.append)
    assert isinstance(found, Profile)
    assert found.pace.step_s > 0, "the present run has no limit"
    outcomes = {each.change: each.outcome for each in found.advice}
    late = "took longer than 0.2 s, and was ended"
    for change in ("torch.autocast with bfloat16", "the optimiser with fused=True"):
        assert late in outcomes[change]
    assert late in outcomes["a larger batch"]
    assert [late in each.failure for each in found.memory] == [False, True, True]
    late_lines = [line for line in lines if late in line]
    assert len(late_lines) >= 5
    assert all("\n" not in line for line in late_lines)
    # What there is by then is told each time, for whoever stops it.
    assert told[0].pace == found.pace
    assert [len(each.memory) for each in told[-4:]] == [1, 2, 3, 3]
    assert [each.left for each in (told[0], told[-2], told[-1])] == [
        (ADVICE, MEMORY),
        (MEMORY,),
        (),
    ]
