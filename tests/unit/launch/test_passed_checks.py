"""A network that has passed its check is not tried again, as long as nothing of it has changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.small_study import STUDY_TOML
from tuner.launch.passed_checks import keep, kept, key_of
from tuner.spec.study_file import StudyFile, load_study_file

CODE = "import helper\n\nclass Mine:\n    pass\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return _written(tmp_path / "first")


def _written(folder: Path) -> Path:
    folder.mkdir()
    (folder / "mine.py").write_text(CODE)
    (folder / "helper.py").write_text("HOURS = 24\n")
    text = STUDY_TOML.replace('model = "rmsnorm"', 'model = "mine.py:Mine"')
    (folder / "study.toml").write_text(text)
    return folder


def study(folder: Path) -> StudyFile:
    return load_study_file(str(folder / "study.toml"))


def key(folder: Path, data_hash: str = "abc") -> str:
    found = key_of(study(folder), data_hash)
    assert found is not None
    return found


def sources(folder: Path) -> dict[str, str]:
    files = (folder / "mine.py", folder / "helper.py")
    return {str(each): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def test_what_was_said_of_it_is_said_again_as_long_as_its_imports_are_as_they_were(
    folder: Path,
) -> None:
    assert kept(key(folder)) is None
    keep(key(folder), ["it does not use the calendar"], sources(folder))
    assert kept(key(folder)) == ("it does not use the calendar",)
    (folder / "helper.py").write_text("HOURS = 25\n")
    assert kept(key(folder)) is None
    (folder / "helper.py").unlink()
    assert kept(key(folder)) is None


def test_other_code_settings_or_data_are_another_network(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key(folder)
    with monkeypatch.context() as elsewhere:  # where it may import something else, or nothing
        elsewhere.chdir(folder)
        assert key(folder) != before
    assert key(folder, data_hash="abd") != before
    assert key(_written(folder.parent / "copy")) != before, "what is said names its place"
    toml = folder / "study.toml"
    toml.write_text(toml.read_text().replace("n_blocks = 1", "n_blocks = 2"))
    settings = key(folder)
    assert settings != before
    toml.write_text(toml.read_text().replace("batch_size = { low = 256", "batch_size = { low = 2"))
    assert key(folder) not in (before, settings), "what is said names values of its ranges"
    (folder / "mine.py").write_text(CODE + "# changed\n")
    assert key(folder) not in (before, settings)
    (folder / "mine.py").unlink()
    assert key_of(study(folder), "abc") is None


@pytest.mark.parametrize("text", ["", "{}", '{"notices": "all", "sources": {}}', "\0" * 99])
def test_what_cannot_be_read_is_no_check(folder: Path, text: str) -> None:
    keep(key(folder), [], sources(folder))
    (record,) = (folder.parent / "cache" / "tuner" / "checks").iterdir()
    record.write_text(text)
    assert kept(key(folder)) is None
