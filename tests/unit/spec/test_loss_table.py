"""`[training.loss]`: read from a study file, part of what a study is, and refused where it is not
what it says.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.small_study import STUDY_TOML
from tuner.config import LossTerm, RunConfig, TrainingSettings
from tuner.data.task import load_task
from tuner.errors import UsageError
from tuner.models.registry import network_arguments
from tuner.spec.definition import StudyDefinition, changed_files, differences
from tuner.spec.policy import resumed
from tuner.spec.study_file import StudyFile, load_study_file
from tuner.verdict.compare.fairness import _setting

TERM = "def mass(forecast, past, future, target):\n    return forecast.mean()\n"
WEIGHT = """
[space.lambda_physics]
type = "float"
low = 1e-2
high = 10.0
scale = "log"
zero = true
"""
SEARCHED = 'term = "physics.py:mass"\nweight = "lambda_physics"'
NUMBER = 'term = "physics.py:mass"\nweight = 0.5'


def text_with(loss: str, *, default: str = "", space: str = "") -> str:
    head, training = STUDY_TOML.split("[training]")
    head = head.replace("[defaults]", f"[defaults]\n{default}")
    return f"{head}{space}\n[training]{training}\n[training.loss]\n{loss}\n"


def study(folder: Path, text: str, *, code: str = TERM) -> StudyFile:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "physics.py").write_text(code, encoding="utf-8")
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return load_study_file(str(path))


def searched(folder: Path, *, code: str = TERM) -> StudyFile:
    return study(
        folder, text_with(SEARCHED, default="lambda_physics = 0.5", space=WEIGHT), code=code
    )


def define(file: StudyFile) -> StudyDefinition:
    return StudyDefinition.of(
        file,
        task=load_task("demo").definition(),
        data_hash="0" * 64,
        training=file.training,
    )


def test_a_term_lies_beside_its_study_file_and_its_weight_may_be_searched(tmp_path: Path) -> None:
    file = searched(tmp_path)
    loss = LossTerm(term=f"{tmp_path}/physics.py:mass", weight="lambda_physics")
    assert file.training.loss == loss
    hyperparameters = file.default_hyperparameters()
    assert hyperparameters.loss_weight == "lambda_physics"
    assert network_arguments(hyperparameters).keys() == {"hidden_size", "dropout"}
    config = RunConfig(
        architecture=file.architecture(),
        hyperparameters=hyperparameters,
        training=file.training,
    )
    assert config.loss_weight == 0.5
    again = define(file).hyperparameters(hyperparameters.as_dict() | {"lambda_physics": 0})
    assert again.loss_weight == "lambda_physics"


def test_a_weight_is_a_number_or_a_default_that_is_not_searched(tmp_path: Path) -> None:
    assert study(tmp_path, text_with(NUMBER)).space.own == {}
    file = study(tmp_path, text_with(SEARCHED, default="lambda_physics = 0"))
    assert file.space.own["lambda_physics"].bounds() == (0, 0)
    assert file.default_hyperparameters().own == {"lambda_physics": 0}


def test_without_a_term_the_network_gets_what_is_called_so(tmp_path: Path) -> None:
    text = text_with("", default="lambda_physics = 0.5", space=WEIGHT)
    file = study(tmp_path, text.replace("[training.loss]", ""))
    assert "lambda_physics" in network_arguments(file.default_hyperparameters())


@pytest.mark.parametrize(
    ("loss", "default", "space", "said"),
    [
        (SEARCHED, "", "", "there is no [space.lambda_physics] and no default of it"),
        (SEARCHED.replace("lambda_physics", "dropout"), "", "", "dropout is for something else"),
        (SEARCHED, "lambda_physics = -0.5", "", "-0.5 to -0.5, linear; expected 0 or more"),
        (
            SEARCHED,
            'lambda_physics = "much"',
            '[space.lambda_physics]\ntype = "choice"\nchoices = ["much", "little"]\n',
            "lambda_physics is much or little; expected numbers",
        ),
        (NUMBER.replace("0.5", "-1.0"), "", "", "weight"),
        (NUMBER.replace("0.5", "true"), "", "", "weight"),
        (NUMBER.replace("0.5", "nan"), "", "", "nan is no finite number"),
        ('term = "mass"\nweight = 0.5', "", "", "'mass' is no function or class of yours"),
        ('term = "neuralforecast:TCN"\nweight = 0.5', "", "", "no function or class of yours"),
        ('term = "physics.py:mass"', "", "", "weight"),
        (NUMBER + "\nscale = 1", "", "", "scale"),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path, loss: str, default: str, space: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        study(tmp_path, text_with(loss, default=default, space=space))
    assert said in str(caught.value)
    assert "small.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_program_has_a_loss_of_its_own(tmp_path: Path) -> None:
    text = f"""
name = "program"
core_change = "a program"
[process]
command = ["python", "train.py"]
[defaults]
rate = 0.1
[space.rate]
type = "float"
low = 0.01
high = 1.0
[training.loss]
{NUMBER}
"""
    with pytest.raises(UsageError, match=r"training\.loss': is for networks that tuner trains"):
        study(tmp_path, text)


def test_term_weight_and_source_are_part_of_what_a_study_is(tmp_path: Path) -> None:
    usual = define(searched(tmp_path / "a"))
    assert usual.loss_source is not None
    assert define(searched(tmp_path / "b")).identity() == usual.identity(), "wherever it lies"
    other = define(searched(tmp_path / "c", code=TERM.replace("mean", "sum")))
    assert other.identity() != usual.identity()
    (line,) = differences(usual, other)
    assert line == f"{tmp_path}/c/physics.py changed since the study was made"
    assert changed_files(usual, other) == {"loss_source": f"{tmp_path}/c/physics.py"}
    weighted = define(study(tmp_path / "d", text_with(NUMBER)))
    assert "training.loss.weight: lambda_physics there, 0.5 asked" in differences(usual, weighted)


def test_it_is_stored_and_read_again_as_it_was(tmp_path: Path) -> None:
    made = define(searched(tmp_path))
    again = StudyDefinition.from_json(made.to_json())
    assert again == made
    assert again.identity() == made.identity()
    assert again.defaults.loss_weight == "lambda_physics"
    assert again.own_code == (f"{tmp_path}/physics.py:mass",)


def test_a_study_without_a_term_is_stored_as_ever(tmp_path: Path) -> None:
    file = study(tmp_path, text_with("").replace("[training.loss]", ""))
    stored = define(file).as_dict()
    assert "loss_source" not in stored
    assert "loss" not in stored["training"]
    assert define(file).own_code == ()


@pytest.mark.parametrize(
    "change",
    [
        {"term": "os.system"},
        {"term": "physics.py:mass; import os"},
        {"weight": -1},
        {"weight": "no_such"},
        {"weight": [1]},
        {"more": 1},
    ],
)
def test_what_others_stored_is_as_strict_as_a_file(tmp_path: Path, change: dict[str, Any]) -> None:
    plain = define(searched(tmp_path)).as_dict()
    plain["training"]["loss"] |= change
    with pytest.raises(ValueError, match=r"loss|no_such"):
        StudyDefinition.from_json(json.dumps(plain))


@pytest.mark.parametrize("change", ["without", "of a module"])
def test_what_a_file_held_is_said_of_a_file_and_of_nothing_else(
    tmp_path: Path, change: str
) -> None:
    plain = define(searched(tmp_path)).as_dict()
    if change == "without":
        del plain["loss_source"]
    else:
        plain["training"]["loss"]["term"] = "physics:mass"
    with pytest.raises(ValueError, match="loss_source belongs to a term of a file"):
        StudyDefinition.from_json(json.dumps(plain))


def test_a_later_launch_does_not_keep_a_term_that_its_file_changed(tmp_path: Path) -> None:
    stored = define(searched(tmp_path / "a"))
    asked = define(study(tmp_path / "b", text_with(NUMBER)))
    assert resumed(stored, asked, ()).training.loss == asked.training.loss


def test_a_comparison_says_what_is_added(tmp_path: Path) -> None:
    class Study:
        definition = define(searched(tmp_path))

    said = _setting(Study(), "loss")  # type: ignore[arg-type]
    assert said == "with lambda_physics x physics.py:mass"
    Study.definition = dataclasses.replace(Study.definition, training=TrainingSettings())
    assert _setting(Study(), "loss") == "the quantile loss alone"  # type: ignore[arg-type]
