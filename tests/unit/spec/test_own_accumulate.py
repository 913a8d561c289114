"""A hyperparameter of the user's own that is called as a setting of training: it is that one, and
in a program it is the program's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import program_definition, write_program
from tests.support.small_study import STUDY_TOML, TASK
from tuner.config import RunConfig, TrainingSettings
from tuner.spec.definition import StudyDefinition
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


def test_the_training_has_it_and_no_network(made: StudyDefinition) -> None:
    read = StudyDefinition.from_json(made.to_json())
    assert read == made
    assert read.identity() == made.identity()
    config: RunConfig = run_config(read, read.defaults, seed=0)
    assert (config.accumulate, config.hyperparameters.of_network) == (2, {})


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
