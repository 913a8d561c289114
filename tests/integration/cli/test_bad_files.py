"""Study files, networks and data that people get wrong: one clear line with the place and the
remedy, no more."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.refusals import refused
from tests.support.small_study import STUDY_TOML, TASK_TOML, write_files
from tuner.cli.main import main
from tuner.data import remote
from tuner.data.task import demo_task

DEMO = ("launch", "--task", "demo", "--cpu")
LAUNCH = (*DEMO, "--variant", "rmsnorm")

STUDY_FILES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "unknown key": (
        "dropout = 0.1",
        "dropuot = 0.1",
        ("mine.toml, line 12", "defaults.dropuot", "'dropout'"),
    ),
    "missing key": (
        "hidden_size = 8\n",
        "",
        ("mine.toml, line 9", "defaults.hidden_size", "is missing", "add it"),
    ),
    "low above high": (
        "low = 1e-4, high = 1e-2",
        "low = 1e-2, high = 1e-4",
        ("mine.toml, line 17", "space.learning_rate", "0.01 is above high = 0.0001", "swap"),
    ),
    "log range from 0": (
        "low = 1e-6, high",
        "low = 0.0, high",
        ("mine.toml, line 18", "space.weight_decay", "log range cannot start at 0", "zero = true"),
    ),
    "size that is no power of two": (
        "low = 8, high = 16",
        "low = 8, high = 12",
        ("mine.toml, line 20", "space.hidden_size", "high = 12 is no power of two", "8"),
    ),
    "defaults outside the range": (
        "dropout = 0.1",
        "dropout = 0.9",
        ("mine.toml", "defaults", "dropout = 0.9 is outside 0 to 0.3", "widen"),
    ),
    "number in quotes": (
        "patience = 100000",
        'patience = "3"',
        ("mine.toml, line 24", "training.patience", '"3"'),
    ),
    "syntax error": (
        'model = "rmsnorm"',
        'model = "rmsnorm',
        ("mine.toml, line 4", "not valid TOML"),
    ),
    "unknown network": (
        'model = "rmsnorm"',
        'model = "rmsnrm"',
        ("mine.toml", "'rmsnrm'", "did you mean 'rmsnorm'", ":Class"),
    ),
    "unknown setting": (
        "n_blocks = 1",
        "n_block = 1",
        ("mine.toml", "'n_block'", "did you mean 'n_blocks'"),
    ),
    "a name that is no name": (
        'name = "small"',
        'name = "a/b"',
        ("mine.toml, line 2", "'name'", '"a/b"'),
    ),
}


@pytest.mark.parametrize("mistake", STUDY_FILES)
def test_a_wrong_study_file_is_one_line(mistake: str, tmp_path: Path) -> None:
    right, wrong, says = STUDY_FILES[mistake]
    assert STUDY_TOML.count(right) == 1
    (tmp_path / "mine.toml").write_text(STUDY_TOML.replace(right, wrong), encoding="utf-8")
    refused(*DEMO, "--variant", "mine.toml", folder=tmp_path, code=2, says=says)


def test_a_study_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    refused(
        *DEMO,
        "--variant",
        "mine.toml",
        folder=tmp_path,
        code=2,
        says=("mine.toml", "no study file", "built-in"),
    )


def test_a_folder_in_place_of_a_study_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").mkdir()
    refused(*DEMO, "--variant", "mine.toml", folder=tmp_path, code=2, says=("mine.toml", "folder"))


OWN_MODELS = """
import torch
from torch import nn

class WrongShape(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, past, future, static):
        return self.layer(past[:, :, :1])

class NoModule:
    pass
"""

OUTPUT = (2, demo_task().horizon, len(demo_task().target_columns), len(demo_task().quantiles))
OWN: dict[str, tuple[str, tuple[str, ...]]] = {
    "module missing": ("my_modles:WrongShape", ("no module 'my_modles'", "current folder")),
    "class missing": (
        "my_models:WrongShap",
        ("my_models", "'WrongShap'", "did you mean 'WrongShape'"),
    ),
    "not an nn.Module": (
        "my_models:NoModule",
        ("my_models:NoModule", "not a subclass of torch.nn.Module"),
    ),
    "wrong output shape": (
        "my_models:WrongShape",
        ("must return", f"{OUTPUT}", f"not (2, {demo_task().input_size}, 1)"),
    ),
}


@pytest.mark.parametrize("mistake", OWN)
def test_an_own_model_that_cannot_work_is_one_line(mistake: str, tmp_path: Path) -> None:
    reference, says = OWN[mistake]
    (tmp_path / "my_models.py").write_text(OWN_MODELS, encoding="utf-8")
    study = STUDY_TOML.replace('model = "rmsnorm"', f'model = "{reference}"').replace(
        "n_blocks = 1", ""
    )
    (tmp_path / "mine.toml").write_text(study, encoding="utf-8")
    no_cache = {
        "PYTHONDONTWRITEBYTECODE": "1"
    }  # a user's module leaves __pycache__, which is Python's doing
    refused(
        *DEMO, "--variant", "mine.toml", folder=tmp_path, code=2, says=says, environment=no_cache
    )


CSV_TASK = """\
name = "mine"
target_columns = ["a", "b"]
frequency = "h"
input_size = 6
horizon = 2

[source]
kind = "csv"
path = "mine.csv"
"""


def rows() -> list[str]:
    """Header and 60 rows: element n - 1 is row n of the file."""
    return [
        "ds,a,b",
        *(
            f"2024-01-{1 + i // 24:02d} {i % 24:02d}:00:00,{i % 7}.5,{i * 3 % 11}"
            for i in range(60)
        ),
    ]


def bent(row: int, text: str) -> str:
    lines = rows()
    lines[row - 1] = text
    return "\n".join(lines)


PLAIN = "\n".join(rows())
CSV: dict[str, tuple[str, tuple[str, ...]]] = {
    "empty": ("", ("mine.csv", "empty", "header")),
    "only a header": ("ds,a,b\n", ("mine.csv", "header", "no rows")),
    "missing column": (
        PLAIN.replace("ds,a,b", "ds,a,c"),
        ("mine.csv, row 1", "missing column 'b'", "'c'"),
    ),
    "shorter than a window": (
        "\n".join(rows()[:20]),
        ("mine.csv", "19 rows, needed are 38", "more rows"),
    ),
    "NaN": (
        bent(12, "2024-01-01 10:00:00,1,NaN"),
        ("mine.csv, row 12, column 'b'", "'NaN'", "finite"),
    ),
    "inf": (
        bent(13, "2024-01-01 11:00:00,-inf,1"),
        ("mine.csv, row 13, column 'a'", "'-inf'", "finite"),
    ),
    "text": (
        bent(14, "2024-01-01 12:00:00,high,1"),
        ("mine.csv, row 14, column 'a'", "'high'", "finite"),
    ),
    "unsorted": (
        "\n".join([*rows()[:9], rows()[10], rows()[9], *rows()[11:]]),
        ("mine.csv, row 11, column 'ds'", "unsorted", "sort the rows"),
    ),
    "duplicate": (
        bent(8, "2024-01-01 05:00:00,1,1"),
        ("mine.csv, row 8, column 'ds'", "duplicate", "in row 7"),
    ),
    "gap": ("\n".join([*rows()[:20], *rows()[22:]]), ("mine.csv, row 21", "gap", "missing rows")),
    "semicolons and decimal commas": (
        PLAIN.replace(",", ";").replace(".5", ",5"),
        ("mine.csv", "separator = ';'", "decimal = ','"),
    ),
}


@pytest.mark.parametrize("mistake", CSV)
def test_a_csv_that_cannot_be_used_is_one_line(mistake: str, tmp_path: Path) -> None:
    content, says = CSV[mistake]
    (tmp_path / "mine.csv").write_text(content, encoding="utf-8")
    (tmp_path / "mine.toml").write_text(CSV_TASK, encoding="utf-8")
    refused(*LAUNCH, "--task", "mine.toml", folder=tmp_path, code=1, says=says)


def test_a_csv_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(CSV_TASK, encoding="utf-8")
    refused(
        *LAUNCH,
        "--task",
        "mine.toml",
        folder=tmp_path,
        code=1,
        says=("mine.csv", "no such file", "'path'"),
    )


def test_a_wrong_task_file_is_one_line_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TASK_TOML.replace("horizon", "horizont"), encoding="utf-8")
    says = ("mine.toml, line 6", "'horizont'", "did you mean 'horizon'")
    refused(*LAUNCH, "--task", "mine.toml", folder=tmp_path, code=2, says=says)


def test_a_constant_column_works(tmp_path: Path) -> None:
    study, _ = write_files(tmp_path)
    content = [rows()[0], *(f"{line.rsplit(',', 1)[0]},4.0" for line in rows()[1:])]
    (tmp_path / "mine.csv").write_text("\n".join(content), encoding="utf-8")
    (tmp_path / "mine.toml").write_text(CSV_TASK, encoding="utf-8")
    launch = (
        "launch",
        "--cpu",
        "--variant",
        study.name,
        "--task",
        "mine.toml",
        "--trials",
        "1",
        "--max-epochs",
        "1",
    )
    done = run(*launch, folder=tmp_path)
    assert done.code == 0, done.err
    (following,) = [line for line in done.out.splitlines() if line.startswith("Next: tuner ")]
    suggested = following.split("|")[0].split()[
        2:
    ]  # what it says comes next is a command that works
    best = run(*suggested, "--json", folder=tmp_path)
    assert best.code == 0, best.err
    assert '"val_mql": ' in best.out


def test_etth_without_a_network_fails_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The network here is a proxy that takes the connection and never answers: the slowest way to
    have none. Of the seconds it may take this waits for a part of one."""
    assert remote.SILENCE_S <= 10
    monkeypatch.setattr(urllib.request, "_opener", None)  # another test may have made one
    monkeypatch.setattr(remote, "SILENCE_S", 0.25)
    cache, work = tmp_path / "cache", tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.delenv("TUNER_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(SystemExit) as ended:
            main(["launch", "--cpu", "--variant", "rmsnorm"])
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = [each for each in said.err.splitlines() if "tuner: error: " in each]
    for words in ("ETTh1.csv", "could not be downloaded", "--data-dir", "TUNER_DATA_DIR"):
        assert words in line
    assert "timed out" in line  # by itself: nobody else ends it
    assert "Traceback" not in said.err
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    assert list(work.iterdir()) == []


def test_a_data_folder_without_the_files_is_one_line(tmp_path: Path) -> None:
    refused(
        *("launch", "--cpu", "--variant", "rmsnorm", "--data-dir", "."),
        folder=tmp_path,
        code=1,
        says=("ETTh1.csv", "no such file", "--data-dir", "tuner data fetch etth"),
    )


@pytest.mark.parametrize(
    "content",
    ["", "{", "null", "[]", "[" * 100_000, '{"format": 1}'],
    ids=["empty", "cut short", "null", "a list", "a deep list", "another format"],
)
@pytest.mark.parametrize("command", ["best", "import"])
def test_a_file_that_is_no_exported_study_is_one_line(
    content: str, command: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.json").write_text(content, encoding="utf-8")
    arguments = {
        "best": ("best", "--storage", "mine.json"),
        "import": ("study", "import", "mine.json"),
    }[command]
    refused(*arguments, folder=tmp_path, code=2, says=("mine.json is no exported study",))
