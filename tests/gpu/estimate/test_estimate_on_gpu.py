"""On a GPU: epochs and memory as foretold, and the largest batch is the largest."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.estimate.sizes import compared, foretold, summary
from tuner.config import Backend, Hyperparameters
from tuner.data.prepare import prepare
from tuner.data.source_kinds import DemoSource
from tuner.data.task import Task, load_task
from tuner.devices import Gpu, list_gpus
from tuner.estimate.cost_model import hyperparameters_of, largest_size
from tuner.estimate.measuring_process import STEP, MeasuringProcess, Subject, largest_batch
from tuner.launch.plan import definition_of
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import StudySettings
from tuner.spec.study_file import load_study_file

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return list_gpus(os.environ)[0]


def definition(variant: str, task: Task) -> StudyDefinition:
    """Of captured steps: nothing has to be compiled before a size can be measured."""
    if variant.startswith("nf-"):
        why = "neuralforecast, or what it needs, is not installed"
        pytest.importorskip("neuralforecast.models", reason=why, exc_type=ImportError)
    digest = prepare(task, data_dir=None).data_hash
    settings = StudySettings(backend=Backend.GRAPH)
    return definition_of(load_study_file(variant), task, digest, settings)


@pytest.mark.parametrize("variant", ["original", "nf-tcn"])
def test_peak_memory_is_foretold_within_a_twentieth_where_it_was_measured(
    variant: str, gpu: Gpu
) -> None:
    task = load_task("demo")
    mine = definition(variant, task)
    costs = foretold(mine, task, gpu, data_dir=None, seconds=30.0)
    measured = [each.size for each in costs.sizes if each.fits]
    rows = compared(mine, task, gpu, costs, data_dir=None, sizes=measured[:4], epochs=2)
    found = summary(variant, rows)
    assert found["measured"] == 4
    assert found["memory_worst"] <= 0.05


def test_what_is_compiled_once_is_no_part_of_the_usual_set_up(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine where nothing is compiled yet; a size other than the default's. Other tests take
    turns on the GPU with it: alone, a set-up was up to 0.08 s there, and what is compiled once 30.
    """
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    task = load_task("demo")
    mine = definition_of(
        load_study_file("original"),
        task,
        prepare(task, data_dir=None).data_hash,
        StudySettings(backend=Backend.TRITON),
    )
    other = dataclasses.replace(mine.defaults, hidden_size=32, batch_size=128)
    with MeasuringProcess(Subject(definition=mine, task=task, data_dir=None, device=gpu)) as asked:
        asked.measure(mine.defaults, within_s=300.0, timed=False)
        found = asked.measure(other, within_s=300.0)
        evaluation_s = asked.evaluation_s(mine.defaults, within_s=60.0)
    assert found.backend == Backend.TRITON.value
    assert found.setup_s < 2.0
    assert found.setup_s < found.built_s / 5
    assert 0 < evaluation_s < 1.0


TRAINS = """
import dataclasses, json
from tuner.data.prepare import prepare
from tuner.data.task import Task
from tuner.data.windows import to_device
from tuner.spec.definition import StudyDefinition
from tuner.training.fit import fit
from tuner.trial.run import run_config

told = json.loads(sys.stdin.read())
definition = StudyDefinition.from_dict(told["definition"])
data = to_device(prepare(Task.model_validate_json(json.dumps(told["task"]))), "cuda:0")
config = run_config(definition, definition.hyperparameters(told["params"]), 0)
training = config.training.but(max_epochs=1)
result = fit(dataclasses.replace(config, training=training), data)
print(json.dumps([result.stopped_by, result.epochs, result.peak_memory_bytes]))
"""
"""The truth: a trial's own training of one epoch, alone on the device."""


def long_task() -> Task:
    """The windows of the reference job, so many that not all of them can be one batch."""
    hours = 20_000
    return Task(
        name="long",
        source=DemoSource(kind="demo", rows=hours),
        target_columns=tuple("abcdefg"),
        frequency="h",
        input_size=168,
        horizon=24,
        calendar=("hour", "day_of_week"),
        static_id=True,
    )


def trains(mine: StudyDefinition, task: Task, wanted: Hyperparameters, gpu: Gpu) -> bool:
    """Whether such a training comes to its end."""
    told = {
        "definition": mine.as_dict(),
        "task": task.model_dump(mode="json"),
        "params": wanted.as_dict(),
    }
    ended = subprocess.run(
        [sys.executable, "-c", "import sys\n" + TRAINS],
        input=json.dumps(told),
        env=os.environ | {"CUDA_VISIBLE_DEVICES": gpu.uuid},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:  # a library's own limit, as of how many elements it can count
        print(f"{mine.variant}, {wanted.batch_size}: {ended.stderr.splitlines()[-1]}")
        assert "RuntimeError" in ended.stderr, ended.stderr
        return False
    stopped_by, epochs, peak = json.loads(ended.stdout.splitlines()[-1])
    print(f"{mine.variant}, {wanted.batch_size}: {stopped_by}, {epochs} epoch(s), {peak} bytes")
    assert (epochs, stopped_by) in [(1, "epoch_limit"), (0, "out_of_memory")]
    return bool(epochs)


DEEP: dict[str, dict[str, Any]] = {"original": {"n_blocks": 8}, "nf-tcn": {"revin": True}}
"""More layers rather than wider ones: memory ends before one tensor has more elements than 32 bits
can count."""


@pytest.fixture
def little_room() -> Iterator[None]:
    """All but 16 GiB of the GPU's memory is taken: what fills a sixteenth of it takes a sixteenth
    of the time.
    """
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    taken = torch.empty(max(free - (16 << 30), 0), dtype=torch.uint8, device="cuda")
    yield
    del taken
    torch.cuda.empty_cache()


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("variant", list(DEEP))
def test_the_largest_batch_trains_and_one_step_more_does_not(variant: str, gpu: Gpu) -> None:
    task = long_task()
    mine = definition(variant, task)
    deep = mine.architecture.but(settings=DEEP[variant])
    mine = dataclasses.replace(mine, architecture=deep)
    subject = Subject(definition=mine, task=task, data_dir=None, device=gpu)
    wide = hyperparameters_of(largest_size(mine.space), mine.space, mine.defaults)
    wide = dataclasses.replace(wide, batch_size=1024)
    with MeasuringProcess(subject) as process:
        process.start()
        found = largest_batch(process.fits, process.end, wide, windows=process.windows)
        print(f"{variant}: {found}, {process.windows} windows")
        assert found.too_large is not None
        assert 0 < found.fits < found.too_large <= found.fits * (1 + 1 / STEP)
        assert process.fits(mine.defaults)
    assert trains(mine, task, dataclasses.replace(wide, batch_size=found.fits), gpu)
    assert not trains(mine, task, dataclasses.replace(wide, batch_size=found.too_large), gpu)
