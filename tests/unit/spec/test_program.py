"""A study file with a program in place of a network, and what identifies such a study."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import STUDY, program_definition, write_program
from tests.support.small_study import definition
from tuner.config import Hyperparameters
from tuner.errors import UsageError
from tuner.spec.definition import StudyDefinition, differences
from tuner.spec.program import ClockLabel
from tuner.spec.study_file import load_study_file


def test_a_programs_hyperparameters_are_its_own(tmp_path: Path) -> None:
    file = load_study_file(str(write_program(tmp_path)))
    assert list(file.space.ranges) == ["rate"]
    assert file.default_hyperparameters().as_dict() == {"rate": 0.1}
    assert file.default_hyperparameters() == Hyperparameters.for_program({"rate": 0.1})
    assert file.program is not None
    assert file.program.folder == str(tmp_path)


def test_the_hyperparameters_that_tuner_knows_may_be_among_them(tmp_path: Path) -> None:
    study = write_program(tmp_path)
    more = "learning_rate = 0.01\nbatch_size = 96\nweight_decay = 0.0\n\n[space.learning_rate]"
    text = study.read_text().replace(
        "\n[space.rate]", more + "\nlow = 1e-3\nhigh = 0.1\n\n[space.rate]"
    )
    study.write_text(text)
    file = load_study_file(str(study))
    assert list(file.space.ranges) == ["learning_rate", "weight_decay", "batch_size", "rate"]
    assert file.defaults.values() == {
        "learning_rate": 0.01,
        "weight_decay": 0.0,
        "batch_size": 96,  # no range: it is fixed
        "rate": 0.1,
    }


def test_a_stored_definition_of_a_program_is_read_as_it_was(tmp_path: Path) -> None:
    made = program_definition(write_program(tmp_path))
    read = StudyDefinition.from_json(made.to_json())
    assert read == made
    assert read.identity() == made.identity()
    assert read.clock is ClockLabel.PROCESS
    assert read.hyperparameters({"rate": 0.2}).as_dict() == {"rate": 0.2}


def test_a_study_of_a_network_is_by_tuners_clock_and_says_nothing_of_it() -> None:
    made = definition()
    assert made.clock is ClockLabel.TUNER
    assert not {"process", "clock"} & made.as_dict().keys()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('clock = "lightning"', "process.clock: process there, lightning asked"),
        ("silence_s = 5", "process.silence_s: 1800.0 there, 5.0 asked"),
        ('files = ["*.toml"]', "process.files"),
    ],
)
def test_what_the_program_is_identifies_the_study(change: str, said: str, tmp_path: Path) -> None:
    stored = program_definition(write_program(tmp_path))
    asked = program_definition(write_program(tmp_path, process=change))
    assert stored.identity() != asked.identity()
    assert any(said in each for each in differences(stored, asked))


def test_its_files_identify_it_and_not_their_folder(tmp_path: Path) -> None:
    here = program_definition(write_program(tmp_path / "a"))
    there = program_definition(write_program(tmp_path / "b"))
    assert here.identity() == there.identity()
    (tmp_path / "b" / "train.py").write_text("print('another')")
    changed = program_definition(tmp_path / "b" / "study.toml")
    assert differences(here, changed) == [
        "the program of [process] changed since the study was made"
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"train.py"]', '""]', "command"),
        ("command = [", "command = []\nfiles = [", "command"),
        ("[defaults]", 'clock = "tuner"\n\n[defaults]', "clock"),
        ("[defaults]", "silence_s = 0\n\n[defaults]", "silence_s"),
        ("[defaults]", "shell = true\n\n[defaults]", "shell"),
        ('name = "program"', 'name = "program"\nfolder = "/etc"', "folder"),
        ('name = "program"', 'name = "program"\nmodel = "rmsnorm"', "model"),
        ("[training]", "[model_settings]\na = 1\n\n[training]", "model_settings"),
        ("[defaults]\nrate = 0.1", "[defaults]\nrate = 9.0", "rate"),
        ('"train.py"]', f'"{"x" * 5000}"]', r"process\.command.*at most 4096"),
        (
            "[defaults]\nrate = 0.1",
            "[defaults]\nrate = 1e300",
            "rate' should be less than or equal",
        ),
        ("[training]", "[training]\naccumulate = 2", "is for networks that tuner trains"),
    ],
)
def test_a_file_that_says_something_else_is_refused(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    study = write_program(tmp_path)
    text = study.read_text()
    assert old in text
    study.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError, match=said) as refused:
        load_study_file(str(study))
    assert "\n" not in str(refused.value)
    assert str(study) in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_a_word_that_is_too_long_for_a_files_name_names_none(tmp_path: Path) -> None:
    study = write_program(tmp_path)
    study.write_text(study.read_text().replace('"train.py"]', f'"train.py", "{"x" * 4000}"]'))
    made = program_definition(study)
    assert made.model_source == program_definition(write_program(tmp_path)).model_source


@pytest.mark.parametrize("pattern", ["../*.py", "/etc/*", "no-such-*.py"])
def test_files_are_beneath_the_study_file(pattern: str, tmp_path: Path) -> None:
    study = write_program(tmp_path, process=f'files = ["{pattern}"]')
    with pytest.raises(UsageError, match="files"):
        program_definition(study)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("a**b", "is no pattern"), (".", "is no pattern"), ("**", "finds all in its folders")],
)
def test_what_is_no_pattern_is_one_line(pattern: str, said: str, tmp_path: Path) -> None:
    study = write_program(tmp_path, process=f'files = ["{pattern}"]')
    with pytest.raises(UsageError, match=said) as refused:
        program_definition(study)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("command", ["no-such-program-here", "/tmp"])
def test_a_program_that_is_not_there_is_found_before_anything_starts(
    command: str, tmp_path: Path
) -> None:
    study = tmp_path / "study.toml"
    study.write_text(STUDY.format(python=command, process=""))
    program = load_study_file(str(study)).program
    assert program is not None
    with pytest.raises(UsageError, match="is no program here"):
        program.check()
