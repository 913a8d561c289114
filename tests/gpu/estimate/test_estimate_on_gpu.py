"""On a GPU: epochs and memory as foretold, and the largest batch is the largest."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.estimate.sizes import compared, foretold, summary
from tuner.config import Backend
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.devices import Gpu, list_gpus
from tuner.estimate.cost_sizes import largest_size
from tuner.estimate.measuring.largest_batch import STEP, largest_batch
from tuner.estimate.measuring.measuring_process import MeasuringProcess, Subject
from tuner.launch.plan import definition_of
from tuner.launch.request import StudySettings
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    import os

    return list_gpus(os.environ)[0]


def definition(variant: str) -> StudyDefinition:
    """Of captured steps: nothing has to be compiled before a size can be measured."""
    task = load_task("demo")
    digest = prepare(task, data_dir=None).data_hash
    settings = StudySettings(backend=Backend.GRAPH)
    return definition_of(load_study_file(variant), task, digest, settings)


@pytest.mark.parametrize("variant", ["original", "nf-tcn"])
def test_peak_memory_is_foretold_within_a_twentieth_where_it_was_measured(
    variant: str, gpu: Gpu
) -> None:
    mine, task = definition(variant), load_task("demo")
    costs = foretold(mine, task, gpu, data_dir=None, seconds=60.0)
    measured = [each.size for each in costs.sizes if each.fits]
    rows = compared(mine, task, gpu, costs, data_dir=None, sizes=measured[:6], epochs=3)
    found = summary(variant, rows)
    assert found["measured"] == 6
    assert found["memory_worst"] <= 0.05


def test_the_largest_batch_fits_and_one_step_more_does_not(gpu: Gpu) -> None:
    """Of a window so long that a batch of some thousand fills the memory that is left to it."""
    mine, task = definition("original"), load_task("demo")
    subject = Subject(definition=mine, task=task, data_dir=None, device=gpu)
    wide = dataclasses.replace(mine.defaults, hidden_size=1 << 14, batch_size=16)
    assert largest_size(mine.space)["hidden_size"] == 256
    with MeasuringProcess(subject) as process:
        process.start()
        found = largest_batch(process, wide, windows=process.windows)
        assert found.too_large is None or found.too_large - found.fits <= max(1, found.fits // STEP)
        if found.fits:
            again = dataclasses.replace(wide, batch_size=found.fits)
            assert process.fits(again, within_s=300)
        assert process.fits(mine.defaults, within_s=300)
