"""A hyperparameter of the user's own that is called as a setting of training came to be: in studies
of before it stays the network's, and in a program it is the program's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import program_definition, write_program
from tests.support.small_study import STUDY_TOML, TASK
from tuner.config import RunConfig, TrainingSettings
from tuner.spec.definition import StudyDefinition, differences
from tuner.spec.space import Configuration
from tuner.spec.study_file import load_study_file
from tuner.trial.run import run_config

NET = "class Net: ...\n"
SEARCHED = '\n[space.accumulate]\ntype = "int"\nlow = 1\nhigh = 8\n\n[training]'


@pytest.fixture
def made(tmp_path: Path) -> StudyDefinition:
    """Of a class of one's own, searched over the batches of an update."""
    (tmp_path / "net.py").write_text(NET)
    text = STUDY_TOML.replace('"rmsnorm"', '"net.py:Net"').replace("[training]", SEARCHED)
    path = tmp_path / "small.toml"
    path.write_text(text.replace("[defaults]", "[defaults]\naccumulate = 2"))
    file = load_study_file(str(path))
    return StudyDefinition.of(file, task=TASK, data_hash="0" * 64, training=TrainingSettings())


OF_BEFORE: dict[str, tuple[dict[str, Any], Any]] = {
    "a share": ({"type": "float", "low": 0.1, "high": 0.9, "scale": "linear"}, 0.5),
    "a word": ({"type": "choice", "choices": ["sum", "mean"]}, "mean"),
    "a great number": ({"type": "int", "low": 0, "high": 100_000}, 4096),
    "a number": ({"type": "int", "low": 1, "high": 8}, 2),
}


def of_before(made: StudyDefinition, what: str) -> dict[str, Any]:
    """Such a study as it was stored when the network was given its `accumulate`."""
    data: dict[str, Any] = json.loads(made.to_json())
    data["training"].pop("accumulate", None)
    kind, default = OF_BEFORE[what]
    data["space"]["accumulate"] = kind
    data["defaults"]["accumulate"] = default
    return data


@pytest.mark.parametrize("what", OF_BEFORE)
def test_a_study_of_before_opens_as_it_was(what: str, made: StudyDefinition) -> None:
    data = of_before(made, what)
    read = StudyDefinition.from_dict(data)
    default = data["defaults"]["accumulate"]
    assert read.as_dict()["training"] == data["training"]
    assert read.as_dict()["defaults"] == data["defaults"]
    assert StudyDefinition.from_dict(read.as_dict()).identity() == read.identity()
    assert read.defaults == read.hyperparameters(data["defaults"])
    assert read.defaults.of_network["accumulate"] == default, "the network is given it, as before"
    assert run_config(read, read.defaults, seed=0).accumulate == 1


def test_a_study_of_now_says_that_its_training_has_it(made: StudyDefinition) -> None:
    read = StudyDefinition.from_json(made.to_json())
    assert read == made
    assert read.identity() == made.identity()
    config: RunConfig = run_config(read, read.defaults, seed=0)
    assert (config.accumulate, config.hyperparameters.of_network) == (2, {})


def test_a_study_of_before_is_not_taken_for_one_of_now(made: StudyDefinition) -> None:
    (said,) = differences(StudyDefinition.from_dict(of_before(made, "a number")), made)
    assert said == (
        "accumulate: an argument of its network there, asked as a setting of training, which it "
        "is by now; give the argument another name"
    )


def test_a_model_that_was_built_with_it_is_built_with_it_again() -> None:
    """In a model's card and in a recipe, a network's settings hold its own hyperparameters."""
    told = Configuration.model_validate({"learning_rate": 0.1, "batch_size": 8, "accumulate": 2})
    of_before, now = told.beside({"accumulate": 2}), told.beside({})
    assert (of_before.accumulate, of_before.of_network) == (None, {"accumulate": 2})
    assert (now.accumulate, now.of_network) == (2, {})


@pytest.mark.parametrize("space", ['type = "float"\nlow = 0.1\nhigh = 0.9', 'choices = ["a", "b"]'])
def test_a_program_may_have_one_of_its_own(space: str, tmp_path: Path) -> None:
    study = write_program(tmp_path)
    default = '"a"' if "choices" in space else "0.5"
    kind = 'type = "choice"\n' if "choices" in space else ""
    text = study.read_text().replace("rate = 0.1", f"rate = 0.1\naccumulate = {default}")
    study.write_text(
        text.replace("[space.rate]", f"[space.accumulate]\n{kind}{space}\n\n[space.rate]")
    )
    definition = program_definition(study)
    read = StudyDefinition.from_json(definition.to_json())
    assert read.identity() == definition.identity()
    assert read.defaults.as_dict()["accumulate"] in ("a", 0.5)
    assert read.defaults.accumulate is None
