"""A stranger's script, run once in a process of its own with all kinds of faults in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tuner.profile import script_profile
from tuner.profile.profile_records import Advice
from tuner.profile.script_changes import Changes, changed, values_remembered
from tuner.profile.script_profile import (
    MOST,
    Ran,
    Script,
    ScriptError,
    ScriptHost,
    _faults,
    _Tried,
    run_script,
)
from tuner.training.stage_marks import Stage

FAULTY = """
import sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 160
    def __getitem__(self, n):
        time.sleep(0.001)
        return torch.ones(8) * n, torch.ones(1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoders = nn.ModuleList(nn.Linear(8, 8) for _ in range(10))
        self.pooling = nn.Linear(8, 8)
        self.head = nn.Linear(8, 1)
    def forward(self, x):
        x = sum(encoder(x) for encoder in self.encoders) + 0 * self.pooling(x)
        return self.head(x)

print("what it prints", sys.argv[1:])
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
for epoch in range(100):
    net.train()
    for x, y in DataLoader(Slow(), batch_size=16):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        print(loss.item()) if loss.item() > 1e9 else None
    net.eval()
    with torch.no_grad():
        for _ in range(20): net(x)
"""


LINE = next(n for n, line in enumerate(FAULTY.splitlines(), start=1) if ".item()" in line)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(FAULTY)
    return Script(path=path, arguments=("--lr", "1"), steps=30)


@pytest.fixture(scope="module")
def host() -> Iterator[ScriptHost]:
    with ScriptHost() as host:
        yield host


@pytest.fixture(scope="module")
def found(script: Script, host: ScriptHost) -> Ran:
    return run_script(script, host, look=True)


def test_stages_of_a_stranger_s_loop_add_up_and_the_slow_one_is_seen(found: Ran) -> None:
    pace, stages = found.seen.pace, found.seen.stages
    assert (pace.batch_size, pace.windows) == (16, 160)
    assert stages.epoch_s == pytest.approx(pace.epoch_s)
    assert stages.share(Stage.DATA) > 0.5
    assert stages.seconds[Stage.BACKWARD] > 0
    assert stages.seconds[Stage.VALIDATION] > 0
    assert stages.share(Stage.OTHER) < 0.1
    assert found.seen.subject == "Net"


def test_dead_parts_loops_and_reads_of_it_are_found(found: Ran) -> None:
    assert found.dead == ("pooling",)
    (loop,) = found.seen.advice
    assert "encoders.* (Linear) is called 10 times a step" in loop.why
    assert loop.gain is not None
    assert found.reads == (f"train.py, line {LINE}: .item()",)
    assert found.seen.operations.top


def test_each_of_them_becomes_advice_or_something_to_try(found: Ran) -> None:
    pieces = list(_faults(found))
    changes = [each.changes for each in pieces if not isinstance(each, Advice)]
    assert Changes(one_sample=True) in changes
    assert Changes(without=("pooling",)) in changes
    (wait,) = [each for each in pieces if isinstance(each, Advice)]
    assert wait.fault
    assert f"line {LINE}" in wait.why


def test_what_is_made_while_something_is_changed_has_the_change() -> None:
    data = TensorDataset(torch.arange(8.0))
    with changed(Changes(workers=2, prefetch=8)):
        assert DataLoader(data, 2).prefetch_factor == 8
    with changed(Changes(batch=2, workers=0, one_sample=True, fused=True)):
        loader = DataLoader(data, 2)
        optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)])
    assert loader.batch_size == 4
    assert [batch.tolist() for (batch,) in loader] == [[0.0] * 4] * 2
    assert optimizer.defaults["fused"]
    assert DataLoader(data, 2).batch_size == 2
    assert not torch.optim.AdamW([torch.zeros(1, requires_grad=True)]).defaults["fused"]


def test_a_line_that_reads_a_value_gets_what_it_got_first() -> None:
    with values_remembered():
        seen = [torch.tensor(float(n)).item() for n in range(3)]
    assert seen == [0.0, 0.0, 0.0]
    assert torch.tensor(2.0).item() == 2.0


def test_a_script_that_fails_ends_in_one_line(tmp_path: Path, host: ScriptHost) -> None:
    path = tmp_path / "bad.py"
    path.write_text("import nothing_of_that_name")
    with pytest.raises(ScriptError, match="nothing_of_that") as raised:
        run_script(Script(path=path, arguments=(), steps=10), host)
    assert "\n" not in str(raised.value)


SLICED = "    windows = [rows[n : n + 8] for n in range(3000)]"
SLICES = f"""
import torch
from torch import nn

net = nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=1e30)
rows = torch.arange(4000.0).tolist()
for step in range(400):
{SLICED}
    batch = torch.tensor(windows)
    optimizer.zero_grad()
    (net(batch) ** 2).mean().backward()
    optimizer.step()
"""


def test_lines_that_prepare_batches_are_named_and_a_loss_that_is_no_number(
    tmp_path: Path, host: ScriptHost
) -> None:
    path = tmp_path / "slices.py"
    path.write_text(SLICES)
    found = run_script(Script(path=path, arguments=(), steps=60), host, look=True)
    number = SLICES.splitlines().index(SLICED) + 1
    assert f"slices.py, line {number}" in {each.line for each in found.lines}
    assert not any(each.loads for each in found.lines)
    advice = [each for each in (*found.seen.advice, *_faults(found)) if isinstance(each, Advice)]
    (broken,) = [each for each in advice if "no finite number" in each.why]
    assert "learning rate" in broken.change
    (sliced,) = [each for each in advice if "the host prepares batches" in each.why]
    outside = min(found.outside, found.seen.stages.share(Stage.OTHER, Stage.BETWEEN))
    assert sliced.gain == pytest.approx(1 / (1 - min(outside, MOST)))


def test_gradients_of_several_batches_add_up_to_one_step() -> None:
    weight = torch.zeros(1, requires_grad=True)
    with changed(Changes(accumulate=2, to_none=True)):
        optimizer = torch.optim.SGD([weight], lr=1.0)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=1.0)
        after = []
        for batch in (1.0, 2.0, 4.0, 8.0):
            optimizer.zero_grad(set_to_none=False)
            (batch * weight).backward()
            optimizer.step()
            schedule.step()
            after.append(weight.item())
        optimizer.zero_grad(set_to_none=False)
    assert after == [0.0, -3.0, -3.0, -15.0]
    assert weight.grad is None


def test_changes_add_up_and_the_later_one_counts() -> None:
    both = Changes(workers=2, fused=True).and_those(Changes(workers=4, pinned=True))
    assert both == Changes(workers=4, fused=True, pinned=True)


def test_a_rung_is_kept_where_it_helps_all_that_are(
    found: Ran, script: Script, host: ScriptHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that are known: workers halve them, bf16 takes a tenth, but nothing beside workers."""
    made: list[Changes] = []

    def pretended(_script: Script, _host: ScriptHost, changes: Changes, *, steps: int) -> Ran:
        made.append(changes)
        part = 0.5 if changes.workers == 2 else 0.9 if changes.precision else 1.0
        if changes.fused:
            raise ScriptError("no fused=True here")
        pace = found.seen.pace
        shorter = replace(pace, step_s=pace.step_s * part, epoch_s=pace.epoch_s * part)
        return replace(found, profile=replace(found.seen, pace=shorter))

    monkeypatch.setattr(script_profile, "run_script", pretended)
    tried = _Tried(script=script, host=host, ran=found, usual=found, announce=lambda _line: None)
    rungs = {each.change: each for each in tried.ladder()}
    workers, half = rungs["num_workers 2 in place of 0"], rungs["torch.autocast with bfloat16"]
    assert (workers.helps, half.helps) == (True, True)
    assert Changes(workers=2, precision="bf16") in made
    assert workers.rung is not None
    assert half.rung is not None
    before = 1 / found.seen.pace.window_s
    foot = rungs["as it is"]
    assert foot.rung is not None
    assert foot.rung.place == 1
    assert foot.rung.samples_per_s == pytest.approx(before)
    assert workers.rung.together_per_s == pytest.approx(2 * before)
    assert (half.rung.group, half.rung.together_per_s) == ("other rounding", None)
    assert half.rung.samples_per_s == pytest.approx(before / 0.9)
    assert "no fused=True here" in rungs["the optimiser with fused=True"].outcome
