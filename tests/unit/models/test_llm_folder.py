"""What `time-llm` needs beside tuner, in one line where it is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.refusals import refused
from tuner.errors import UsageError
from tuner.files.environment import LLM_VARIABLE
from tuner.models import llm_folder
from tuner.models.llm_folder import TimeLlmSettings, folder_sha256, with_hash


def write(folder: Path) -> Path:
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if transformers were installed."""
    monkeypatch.setattr(llm_folder, "find_spec", lambda _name: True)


def test_without_transformers_a_check_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm_folder, "find_spec", lambda _name: None)
    says = ('time-llm needs: pip install "tuner[llm]"',)
    refused("variants", "--check=time-llm", "--task=demo", folder=tmp_path, code=2, says=says)


@pytest.mark.usefixtures("found")
def test_a_folder_is_what_its_files_are_called_and_hold(tmp_path: Path) -> None:
    here, there = write(tmp_path / "here"), write(tmp_path / "there")
    (there / ".cache").mkdir()
    (there / ".cache" / "hidden").write_text("not counted")
    assert folder_sha256(here) == folder_sha256(there)
    (there / "config.json").rename(there / "config.txt")
    with pytest.raises(UsageError, match=r"there: holds no config.json; name the folder"):
        folder_sha256(there)
    (there / "config.json").write_text("config.json")
    assert folder_sha256(here) != folder_sha256(there)


@pytest.mark.usefixtures("found")
def test_where_the_study_files_folder_is_another_the_hosts_own_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = write(tmp_path / "here"), write(tmp_path / "there")
    pinned = with_hash({"folder": str(here)})
    (here / "config.json").write_text("changed")
    with pytest.raises(UsageError, match=r"here .*: is not the language model that this was made"):
        with_hash(pinned)
    monkeypatch.setenv(LLM_VARIABLE, str(there))
    assert with_hash(pinned)["folder"] == str(there)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"llm_layer": 3}, "unknown setting of variant 'time-llm' 'llm_layer'"),
        ({"top_lags": 0}, "top_lags must be a whole number of at least 1, not 0"),
        ({"words": 3}, "words must be text, not 3"),
    ],
)
def test_settings_that_it_does_not_take_are_named(settings: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        TimeLlmSettings.of({"hidden_size": 8, "dropout": 0.0, **settings})
