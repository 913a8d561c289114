"""Changes to the captured step: what they train on is what the engine trains on, shown without a GPU."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tuner.data.prepare import prepare
from tuner.data.task import DemoSource, Task
from tuner.data.windows import Batch, DeviceData, DeviceSplit, to_device
from tuner.training.graph import GraphEngine

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SIZE = 32


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, Any]]:
    sys.path.insert(0, str(BENCHMARKS))
    yield {name: importlib.import_module(name) for name in ("step_changes", "captured_step")}
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module", params=[True, False], ids=["with static and future", "without"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DeviceData:
    task = Task(
        name="shaped",
        source=DemoSource(kind="demo", rows=200),
        target_columns=("a", "b"),
        frequency="h",
        input_size=12,
        horizon=3,
        calendar=("hour",) if request.param else (),
        static_id=request.param,
    )
    return to_device(prepare(task, cache_dir=tmp_path_factory.mktemp("prepared")), "cpu")


def same(one: Batch, other: Batch) -> bool:
    pairs = [(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(Batch)]
    return all((a is None and b is None) or torch.equal(a, b) for a, b in pairs)


class Recorder:
    """A step that only remembers what it was given."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def train(self, batch: Batch) -> torch.Tensor:
        parts = {f.name: getattr(batch, f.name) for f in dataclasses.fields(Batch)}
        self.batches.append(Batch(**{name: None if t is None else t.clone() for name, t in parts.items()}))
        return batch.target.mean()


def engine(kind: type[GraphEngine], data: DeviceData) -> Any:
    """As much of a captured engine as one step needs, without a device to capture on."""
    made = object.__new__(kind)
    made._data, made._step, made._batch_size, made._n_windows = data, Recorder(), SIZE, len(data.train)
    made._order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(1))
    made._position = torch.zeros((), dtype=torch.int64)
    made._offsets = torch.arange(SIZE)
    made._loss_sum = torch.zeros((), dtype=torch.float64)
    return made


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("steps", [1, 4])
def test_two_epochs_of_a_changed_engine_train_on_the_same_batches(
    modules: Any, data: DeviceData, rows: bool, ahead: bool, steps: int
) -> None:
    changes = modules["step_changes"]
    plain, changed = engine(GraphEngine, data), engine(changes.Changed, data)
    changed._gather = changes.gather_rows if rows else DeviceSplit.gather
    changed._ahead = changes.Ahead(data.train, changed._order, SIZE, changed._gather) if ahead else None
    plan = changes.chunks(len(data.train), SIZE, steps)
    assert len(data.train) % SIZE  # the last batch is a short one
    assert {len(sizes) for sizes in plan[:-1]} == {steps}
    for epoch in range(2):
        for each in (plain, changed):
            each._order.copy_(torch.randperm(len(data.train), generator=torch.Generator().manual_seed(epoch)))
            each._begin_epoch()
            for size in (size for sizes in plan for size in sizes):
                each._train_batch(size)
        assert plain._loss_sum == changed._loss_sum
    assert sum(map(sum, plan)) == len(data.train)
    assert len(plain._step.batches) == len(changed._step.batches) == 2 * -(-len(data.train) // SIZE)
    assert all(same(a, b) for a, b in zip(plain._step.batches, changed._step.batches, strict=True))


def test_a_dry_run_leaves_its_files_and_the_same_bits(modules: Any, tmp_path: Path) -> None:
    modules["captured_step"].main(["--quick", "--output", str(tmp_path / "step")])
    found = json.loads((tmp_path / "step.json").read_text())
    assert found["steps"]["rows"]["same_bits"]
    assert "| eager as it is |" in (tmp_path / "step.md").read_text()
    assert set(modules["captured_step"].contenders(cuda=True)) == {
        "as it is", "rows", "ahead", "chunks", "all", "compile", "triton", "TF32",
    }  # fmt: skip


def test_a_contender_that_fails_says_so_and_the_others_go_on(modules: Any, tmp_path: Path) -> None:
    class Turn:
        losses = (1.0, 2.0)
        setup_s = 0.5

        def __init__(self, *, fails: bool) -> None:
            self.fails = fails
            self.steps_us: list[float] = []
            self.epochs_s: list[float] = []

        def run(self, epochs: int, *, count: bool) -> None:
            if self.fails:
                raise RuntimeError("no such kernel\nmore")
            if count:
                self.steps_us += [10.0] * epochs
                self.epochs_s += [1.0] * epochs

    script = modules["captured_step"]
    found = script.measure({"as it is": Turn(fails=False), "new": Turn(fails=True)}, 2, 3)
    assert found["new"] == {"failure": "RuntimeError: no such kernel"}
    assert found["as it is"]["us_per_step"] == 10.0
    assert "| new | RuntimeError: no such kernel |" in "\n".join(script.table(found))
