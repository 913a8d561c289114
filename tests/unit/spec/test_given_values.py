"""A study file that gives a value where it does not belong: its line, its key, and the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.open_spaces import NHITS_STUDY
from tuner.errors import UsageError
from tuner.spec.study_file import load_study_file

SETTING = 'pooling_mode = "MaxPool1d"'
DEFAULT = "batch_size = 64"

WRONG = {
    "no list": (
        '[64, 64]]"',
        '[64, 64],"',
        "line 8: key 'model_settings.mlp_units': '[[64, 64], [64, 64], [64, 64],' is no list; ",
    ),
    "no list as a default": (
        "[space.learning_rate]",
        (
            'n_blocks = "[1, 1"\n\n[space.n_blocks]\ntype = "choice"\n'
            'choices = ["[1, 1", "[1, 1, 1]"]\n\n[space.learning_rate]'
        ),
        "line 15: key 'defaults.n_blocks': '[1, 1' is no list; expected e.g.",
    ),
    "the task's": (
        SETTING,
        "h = 3",
        "line 7: key 'model_settings.h': neuralforecast:NHITS: h is not a hyperparameter: the task",
    ),
    "the task's, which may be searched": (
        SETTING,
        "input_size = 3",
        (
            "line 7: key 'model_settings.input_size': neuralforecast:NHITS: input_size is not a "
            "hyperparameter: the task says it; [space.input_size] is for a shorter one"
        ),
    ),
    "the protocol's": (SETTING, "max_steps = 3", "line 7: key 'model_settings.max_steps': "),
    "the trainer's": (SETTING, "trainer_kwargs = 3", "line 7: key 'model_settings.trainer_kwargs'"),
    "a name that the class does not have": (
        SETTING,
        'poolng_mode = "MaxPool1d"',
        (
            "line 7: key 'model_settings.poolng_mode': unknown hyperparameter of neuralforecast:"
            "NHITS 'poolng_mode' (did you mean 'pooling_mode'"
        ),
    ),
    "a default that the class does not have": (
        DEFAULT,
        DEFAULT + "\nhidden_size = 64",
        "line 13: key 'defaults.hidden_size': unknown hyperparameter of neuralforecast:NHITS",
    ),
    "a range that the class does not have": (
        "[space.activation]",
        '[space.loss]\ntype = "choice"\nchoices = [1]\n[space.activation]',
        "line 20: key 'space.loss': neuralforecast:NHITS: loss is not a hyperparameter: every",
    ),
    "a norm that is neither on nor off": (
        SETTING,
        "revin = 1",
        "line 7: key 'model_settings.revin': neuralforecast:NHITS: revin must be true or false",
    ),
    "a norm that the class has by another name": (
        f'NHITS"\n\n[model_settings]\n{SETTING}',
        'iTransformer"\n\n[model_settings]\nrevin = false',
        (
            "line 7: key 'model_settings.revin': neuralforecast:iTransformer has a reversible norm "
            "of its own: set use_norm, not revin"
        ),
    ),
    "a class in the wrong case": (
        "NHITS",
        "nhits",
        "line 4: key 'model': unknown model of neuralforecast 'nhits' (did you mean 'NHITS'?)",
    ),
    "a weight decay among the settings": (
        SETTING,
        "weight_decay = 0.1",
        (
            "line 7: key 'model_settings.weight_decay': weight_decay is the study's; a fixed one "
            "belongs in [defaults]"
        ),
    ),
    "a batch size among the settings": (
        SETTING,
        "batch_size = 12",
        "line 7: key 'model_settings.batch_size': batch_size is the study's; a fixed one belongs",
    ),
    "a learning rate that is searched": (
        SETTING,
        "learning_rate = 0.1",
        (
            "line 7: key 'model_settings.learning_rate': learning_rate is searched; leave it out, "
            "or [space.learning_rate]"
        ),
    ),
    "an input size without a range": (
        DEFAULT,
        DEFAULT + "\ninput_size = 12",
        (
            "line 13: key 'defaults.input_size': there is no [space.input_size]; the task says it: "
            'leave it out, or add [space.input_size] with type = "int", low = 12 and high = 12'
        ),
    ),
    "an accumulation without a range": (
        DEFAULT,
        DEFAULT + "\naccumulate = 2",
        (
            "line 13: key 'defaults.accumulate': there is no [space.accumulate]; a fixed one "
            "belongs in [training]"
        ),
    ),
    "a setting of training among the defaults": (
        DEFAULT,
        DEFAULT + "\nmax_steps = 2",
        "line 13: key 'defaults.max_steps': neuralforecast:NHITS: max_steps is not a hyperparamet",
    ),
    "a fixed argument among the defaults": (
        DEFAULT,
        DEFAULT + "\ndropout_prob_theta = 0.2",
        (
            "line 13: key 'defaults.dropout_prob_theta': there is no [space.dropout_prob_theta]; a "
            "fixed argument of the network belongs in [model_settings]"
        ),
    ),
}


def refusal(folder: Path, text: str) -> str:
    path = folder / "nhits.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        load_study_file(str(path))
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(f"{path}, line ")
    return str(refused.value)


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_a_value_in_the_wrong_place_is_named_with_its_line_and_the_right_one(
    case: str, tmp_path: Path
) -> None:
    old, new, expected = WRONG[case]
    assert old in NHITS_STUDY
    assert expected in refusal(tmp_path, NHITS_STUDY.replace(old, new, 1))


def test_an_input_size_is_not_taken_for_a_slip_of_another_name(tmp_path: Path) -> None:
    said = refusal(tmp_path, NHITS_STUDY.replace(DEFAULT, DEFAULT + "\ninput_size = 12"))
    assert "hidden_size" not in said
    assert "model_settings" not in said


def test_what_is_said_of_an_input_size_works(tmp_path: Path) -> None:
    text = NHITS_STUDY.replace(DEFAULT, DEFAULT + "\ninput_size = 12")
    path = tmp_path / "nhits.toml"
    more = '\n[space.input_size]\ntype = "int"\nlow = 12\nhigh = 12\n'
    path.write_text(text + more, encoding="utf-8")
    assert load_study_file(str(path)).default_hyperparameters().input_size == 12


def test_what_a_program_always_gets_is_no_model_setting(tmp_path: Path) -> None:
    said = refusal(
        tmp_path,
        'name = "p"\ncore_change = "a program"\n[process]\ncommand = ["python", "train.py"]\n'
        "[defaults]\nrate = 1\nother = 2\n"
        '[space.rate]\ntype = "int"\nlow = 1\nhigh = 2\n',
    )
    assert "key 'defaults.other': there is no [space.other]" in said
    assert "what a program always gets belongs in the command of [process]" in said
