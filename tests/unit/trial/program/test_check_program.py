"""Three short runs of a program: who ignores its seed or its hyperparameters is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import HONEST, program_definition, write_program
from tuner.trial.program.program_process import ProgramError
from tuner.trial.program.run_program import CheckedProgram, check_program

QUICK = HONEST.replace("time.sleep(0.02)", "time.sleep(0.05)")


def checked(folder: Path, text: str) -> CheckedProgram:
    return check_program(program_definition(write_program(folder, text)))


def test_an_honest_program_has_nothing_said_of_it(tmp_path: Path) -> None:
    found = checked(tmp_path, QUICK)
    assert (found.epochs, found.notices) == (2, ())


def test_a_program_that_ignores_its_seed_is_found(tmp_path: Path) -> None:
    found = checked(tmp_path, QUICK.replace('told["seed"]', "3"))
    assert (found.ignores_seed, found.ignores_hyperparameters) == (True, False)
    (notice,) = found.notices
    assert notice.startswith("the program ignores its seed: seeds 0 and 1 gave the same")


def test_a_program_that_ignores_its_hyperparameters_is_found(tmp_path: Path) -> None:
    found = checked(tmp_path, QUICK.replace('told["hyperparameters"]["rate"]', "0.5"))
    assert (found.ignores_seed, found.ignores_hyperparameters) == (False, True)


def test_a_package_that_is_not_there_is_named_with_its_extra(tmp_path: Path) -> None:
    text = "sys.modules['pytorch_lightning'] = None; import pytorch_lightning.loggers"
    with pytest.raises(ProgramError) as refused:
        checked(tmp_path, text)
    assert str(refused.value).endswith("; pip install 'tuner[lightning]'")
    assert "\n" not in str(refused.value)


def test_what_is_wrong_with_it_is_said_in_one_line_with_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(ProgramError) as refused:
        checked(tmp_path, "print('cannot find my data'); raise SystemExit(1)")
    assert "exit code 1" in str(refused.value)
    assert str(refused.value).endswith("; it printed: cannot find my data")
    assert "\n" not in str(refused.value)


def test_a_program_on_several_devices_finds_their_number_in_its_words_and_its_trial(
    tmp_path: Path,
) -> None:
    study = write_program(tmp_path, 'assert (sys.argv[1], told["devices"]) == ("2", 2)\n' + HONEST)
    text = study.read_text().replace('"train.py"]', '"train.py", "{devices}"]')
    study.write_text(text + "gpus_per_trial = 2\n")
    definition = program_definition(study)
    assert definition.program is not None
    assert "{devices}" in definition.program.command, "what identifies it is as it was written"
    assert check_program(definition).notices == ()
