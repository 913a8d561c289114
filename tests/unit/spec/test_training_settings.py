"""Settings of training as part of what a study is: in its file, its identity and its space."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.support.small_study import STUDY_TOML, definition
from tuner.config import (
    Backend,
    CompileMode,
    Hyperparameters,
    Precision,
    RunConfig,
    TrainingSettings,
)
from tuner.errors import UsageError
from tuner.spec.definition import StudyDefinition, differences
from tuner.spec.study_file import StudyFile, load_study_file

OTHER: dict[str, Any] = {
    "accumulate": 4,
    "checkpoint_activations": True,
    "compile_mode": CompileMode.MAX_AUTOTUNE,
    "data_memory": 2 << 30,
    "gpus_per_trial": 2,
    "restore_best_weights": False,
    "validate_every": 5,
}
SEARCHED = '\n[space.accumulate]\ntype = "choice"\nchoices = [1, 2, 8]\n'


def study(folder: Path, text: str) -> StudyFile:
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return load_study_file(str(path))


def searched(text: str = SEARCHED, default: int = 2) -> str:
    head, training = STUDY_TOML.split("[training]")
    head = head.replace("[defaults]", f"[defaults]\naccumulate = {default}")
    return f"{head}{text}\n[training]{training}"


def with_settings(**changes: Any) -> StudyDefinition:
    small = definition()
    return dataclasses.replace(small, training=small.training.but(**changes))


def test_a_study_with_the_defaults_is_stored_as_before_they_existed() -> None:
    stored = definition().as_dict()["training"]
    later = TrainingSettings.model_fields.keys() - stored.keys()
    assert later == {*OTHER, "loss"}, "the loss has tests of its own"


@pytest.mark.parametrize("name", OTHER)
def test_each_is_part_of_what_a_study_is_and_read_again(name: str) -> None:
    usual, other = definition(), with_settings(**{name: OTHER[name]})
    assert other.identity() != usual.identity()
    again = StudyDefinition.from_json(other.to_json())
    assert again.training == other.training
    assert again.identity() == other.identity()
    (difference,) = differences(usual, other)
    assert difference == f"training.{name}: absent there, {OTHER[name]} asked"


def test_a_study_file_says_them(tmp_path: Path) -> None:
    said = (
        'backend = "compile"\nprecision = "fp16"\naccumulate = 4\n'
        'compile_mode = "reduce-overhead"\nvalidate_every = 5\ncheckpoint_activations = false\n'
        'data_memory = "1.5 GiB"\n'
    )
    assert study(tmp_path, STUDY_TOML + said).training == TrainingSettings(
        patience=100000,
        backend=Backend.COMPILE,
        precision=Precision.FP16,
        accumulate=4,
        compile_mode=CompileMode.REDUCE_OVERHEAD,
        validate_every=5,
        data_memory=3 << 29,
    )


WRONG = {
    "no batch": ("accumulate = 0", "key 'training.accumulate'", "greater than 0"),
    "more batches than anybody means": (
        "accumulate = 5000",
        "key 'training.accumulate'",
        "less than or equal to 1024",
    ),
    "no cadence": ("validate_every = 0", "key 'training.validate_every'", "greater than 0"),
    "no mode": ('compile_mode = "fast"', "key 'training.compile_mode'", "max-autotune"),
    "no size": ('data_memory = "much"', "key 'training.data_memory'", "such as '2g' or '500m'"),
    "a number": ("checkpoint_activations = 1", "key 'training.checkpoint_activations'", "boolean"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_one_is_one_line_with_its_place(case: str, tmp_path: Path) -> None:
    line, *expected = WRONG[case]
    with pytest.raises(UsageError) as refused:
        study(tmp_path, f"{STUDY_TOML}{line}\n")
    assert "\n" not in str(refused.value)
    assert all(part in str(refused.value) for part in expected), str(refused.value)


def test_a_searched_number_of_batches_reaches_the_training_and_no_network(tmp_path: Path) -> None:
    file = study(tmp_path, searched())
    assert file.space.ranges["accumulate"].levels == 3
    default = file.default_hyperparameters()
    assert (default.accumulate, default.of_network) == (2, {})
    config = RunConfig(
        architecture=file.architecture(), hyperparameters=default, training=TrainingSettings()
    )
    assert config.accumulate == 2
    there = file.space.at([0.9] * file.space.dimensions)
    assert Hyperparameters.of(there).accumulate == there["accumulate"]
    assert there["accumulate"] in (1, 2, 8)
    fixed = dataclasses.replace(default, own={})
    training = TrainingSettings(accumulate=3)
    assert dataclasses.replace(config, hyperparameters=fixed, training=training).accumulate == 3


NO_SPACE = {
    "halves": ('type = "float"\nlow = 1\nhigh = 2\n', "no range of whole numbers"),
    "from none on": ('type = "int"\nlow = 0\nhigh = 2\n', "expected 1 to 1024"),
    "to very many": ('type = "int"\nlow = 1\nhigh = 4096\n', "expected 1 to 1024"),
}


@pytest.mark.parametrize("case", NO_SPACE)
def test_a_space_of_no_batches_is_one_line(case: str, tmp_path: Path) -> None:
    text, expected = NO_SPACE[case]
    with pytest.raises(UsageError, match=expected) as refused:
        study(tmp_path, searched(f"\n[space.accumulate]\n{text}", default=1))
    assert "space.accumulate" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_searched_is_not_fixed_as_well(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"training\.accumulate.*is searched; leave it out"):
        study(tmp_path, f"{searched()}accumulate = 2\n")
