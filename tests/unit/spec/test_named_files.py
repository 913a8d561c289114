"""What a class reads beside it is part of its study's identity, where the study file names it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.small_study import STUDY_TOML, TASK
from tuner.config import TrainingSettings
from tuner.errors import UsageError
from tuner.spec.definition import StudyDefinition, changed_files, differences
from tuner.spec.study_file import load_study_file
from tuner.trial.job import TrainerLostError
from tuner.trial.seeds_and_reruns import keep_to_code

WEIGHTS = 'files = ["gpt2/*.safetensors"]'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "at" / "gpt2").mkdir(parents=True)
    (tmp_path / "at" / "gpt2" / "a.safetensors").write_bytes(b"weights")
    return tmp_path / "at"


def defined(folder: Path, files: str = WEIGHTS) -> StudyDefinition:
    (folder / "study.toml").write_text(f"{files}\n{STUDY_TOML}")
    file = load_study_file(str(folder / "study.toml"))
    return StudyDefinition.of(file, task=TASK, data_hash="0" * 64, training=TrainingSettings())


def test_other_weights_are_another_study_and_another_folder_is_none(folder: Path) -> None:
    made = defined(folder)
    assert StudyDefinition.from_json(made.to_json()) == made
    shutil.copytree(folder, moved := folder.parent / "moved")
    assert defined(moved).identity() == made.identity()
    keep_to_code(made)
    weights = folder / "gpt2" / "a.safetensors"
    weights.write_bytes(b"others!")  # as many bytes
    asked = defined(folder)
    assert asked.identity() != made.identity()
    name = "gpt2/a.safetensors"
    assert differences(made, asked) == [f"{name} changed since the study was made"]
    assert changed_files(made, asked) == {f"files.{name}": name}
    with pytest.raises(TrainerLostError, match="is not the file that the study was made with"):
        keep_to_code(made)
    weights.unlink()
    with pytest.raises(TrainerLostError, match="is not on this host, and no database carries it"):
        keep_to_code(made)


def test_a_study_that_names_none_is_what_it_always_was(folder: Path) -> None:
    assert defined(folder, "").files is None
    assert not {"files", "folder"} & defined(folder, "").as_dict().keys()
    assert defined(folder, "files = []").identity() == defined(folder, "").identity()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('files = ["gpt3/*"]', "files: 'gpt3/*' finds no file in"),
        ('files = ["../*"]', "files: '../*' leaves the folder of the study file"),
        ('files = ["/etc/*"]', "files: '/etc/*' leaves the folder of the study file"),
        ('files = "gpt2"', "study.toml, line 1: key 'files' should be a valid array"),
        ('folder = "gpt2"', "study.toml, line 1: key 'folder': unknown; remove it"),
    ],
)
def test_what_cannot_be_files_is_one_line(folder: Path, line: str, says: str) -> None:
    with pytest.raises(UsageError) as met:
        defined(folder, line)
    assert says in str(met.value)
    assert "\n" not in str(met.value)


def test_a_name_that_cannot_be_stored_is_one_line(folder: Path) -> None:
    (folder / "gpt2" / "b\n.safetensors").touch()
    with pytest.raises(UsageError, match=r"^files: .* holds a control character"):
        defined(folder)
