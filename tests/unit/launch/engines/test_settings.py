"""What an engine is told beside: pairs on the command line, or the table of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.launch.engines.on_ray import RaySettings
from tuner.launch.engines.placement import WorkerCommand, read_settings
from tuner.storage.url import parse_url


def read(text: str | None) -> RaySettings:
    return read_settings(RaySettings, text, table="ray")


def test_pairs_and_a_files_table_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('[ray]\ncores = 2\naccelerator = "H100"\n\n[slurm]\npartition = "gpu"\n')
    assert read("cores=2, accelerator=H100") == read(str(file))
    assert read(None) == RaySettings(cores=1, accelerator=None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cores", "'cores' is no KEY=VALUE"),
        ("cores=2,cores=3", "'cores' is named twice"),
        ("cores=none", "valid integer"),
        ("cores=0", "greater than or equal to 1"),
        ("colour=red", "its keys are cores, accelerator"),
        ("accelerator=a\tb", "control character"),
        ("nowhere.toml", "nowhere.toml"),
        ("{empty}.toml", "has no table \\[ray\\]"),
    ],
)
def test_what_is_wrong_is_one_line(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")
    with pytest.raises(UsageError, match=words) as caught:
        read(text.replace("{empty}", str(tmp_path / "empty")))
    assert "\n" not in str(caught.value)


def test_a_workers_command_names_no_secret_and_absolute_paths() -> None:
    command = WorkerCommand(
        studies="a,b c",
        address=parse_url("postgresql://me:secret@host/tuner"),
        cores=None,
        verify=True,
        task=Path("shops.toml"),
        data_dir="https://example.org/data",
        trusted_code=("a" * 64,),
        hang_limit_s=90.0,
    )
    words = command.words()
    assert "secret" not in " ".join(words)
    assert words[:6] == ("tuner", "worker", "--study", "a,b c", "--keep-alive", "--gpu")
    assert str(Path.cwd() / "shops.toml") in words
    assert "https://example.org/data" in words
    assert words[-4:] == ("--hang-limit", "90s", "--trust-code", "a" * 64)
