"""The rungs of a ladder: what each of them is, and which a device does not have."""

from __future__ import annotations

import pytest

from tuner.bench.contender import Job
from tuner.bench.ladder import CUMULATED, FIRST, Ladder, Rung, make_ladder
from tuner.config import Backend, Precision
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.spec.study_file import load_study_file


@pytest.fixture(scope="module")
def ladder(job: Job, data: DeviceData) -> Ladder:
    return make_ladder(job, data, load_study_file("original"))


def rung(ladder: Ladder, change: str) -> Rung:
    (found,) = (each for each in ladder.rungs if each.change == change)
    return found


def test_the_first_rung_is_the_variant_in_plain_operations(ladder: Ladder) -> None:
    first = ladder.rungs[0]
    file = load_study_file("original")
    assert (first.change, first.kind, first.why_not) == (FIRST, CUMULATED, "")
    assert first.config.hyperparameters == file.default_hyperparameters()
    assert first.config.training.backend is Backend.EAGER
    assert first.config.training.precision is Precision.FP32


def test_each_change_is_there_alone_and_on_top_of_those_that_are_possible(ladder: Ladder) -> None:
    names = ["bf16", "batch 1024", "captured step", "compiled step", "fused kernels"]
    names.append("validation every 2 epochs")
    assert [each.change for each in ladder.rungs if each.kind != CUMULATED] == names
    assert [each.change for each in ladder.rungs if each.kind == CUMULATED] == [
        FIRST,
        *(f"+ {name}" for name in names),
    ]
    last = rung(ladder, "+ validation every 2 epochs").config
    assert last.training.precision is Precision.BF16
    assert last.hyperparameters.batch_size == 1024
    assert last.training.validate_every == 2
    assert last.training.backend is Backend.EAGER  # this device has no other for it
    alone = rung(ladder, "validation every 2 epochs").config
    first = ladder.rungs[0].config
    assert alone.training == first.training.but(validate_every=2)
    assert alone.hyperparameters == first.hyperparameters
    assert {each.config.hyperparameters.learning_rate for each in ladder.rungs} == {1e-4}


def test_what_the_device_cannot_do_is_a_rung_with_its_reason(ladder: Ladder) -> None:
    for change in ("+ captured step", "captured step", "+ fused kernels", "fused kernels"):
        assert "needs a CUDA device, this one is cpu" in rung(ladder, change).why_not
        assert ladder.contender_of(rung(ladder, change)) is None
    assert rung(ladder, "+ compiled step").why_not.startswith("would run as eager: ")


def test_the_same_settings_are_measured_once(ladder: Ladder) -> None:
    both = [ladder.contender_of(rung(ladder, change)) for change in ("+ bf16", "bf16")]
    assert both == [1, 1]
    configs = [each.config for each in ladder.contenders]
    assert all(config not in configs[:index] for index, config in enumerate(configs))
    assert len({each.entry.name for each in ladder.contenders}) == len(configs)
    for each in ladder.rungs:
        number = ladder.contender_of(each)
        assert number is None or ladder.contenders[number].config == each.config


def test_a_variant_that_cannot_be_trained_is_refused(job: Job, data: DeviceData) -> None:
    file = load_study_file("original")
    defaults = file.defaults.model_copy(update={"learning_rate": 0.0})
    with pytest.raises(UsageError, match="first rung, original as it was: learning_rate must be"):
        make_ladder(job, data, file.model_copy(update={"defaults": defaults}))
