"""Whatever people get wrong: one clear line with the remedy, the right exit code, no traceback, nothing written."""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from command_line import contents, refused, run
from postgres_cluster import PASSWORD, Cluster
from recorded import RecordedDatabase
from small_study import STUDY_TOML, TASK_TOML, definition, write_files

from tuner.data.task import demo_task
from tuner.storage import open_database, parse_url
from tuner.study import create_or_resume

CORES = len(os.sched_getaffinity(0))
DEMO = ("launch", "--task", "demo", "--cpu")
LAUNCH = (*DEMO, "--variant", "rmsnorm")
ON_GPUS = ("launch", "--task", "demo", "--variant", "rmsnorm")

FLAGS: dict[str, tuple[Sequence[str], tuple[str, ...]]] = {
    "unknown variant": ((*DEMO, "--variant", "rmsnrm"), ("'rmsnrm'", "did you mean 'rmsnorm'", "layernorm", ".toml")),
    "no variant": (DEMO, ("--variant", "tuner launch --help")),
    "empty list of variants": ((*DEMO, "--variant", ""), ("--variant", "empty", "rmsnorm,original")),
    "an empty name among variants": (
        (*DEMO, "--variant", "rmsnorm,,simple"),
        ("'rmsnorm,,simple'", "empty name", "rmsnorm,original"),
    ),
    "variant named twice": ((*DEMO, "--variant", "rmsnorm,rmsnorm"), ("'rmsnorm' is named twice", "once")),
    "one study name for two variants": (
        (*DEMO, "--variant", "rmsnorm,original", "--study", "mine"),
        ("--study mine", "names 2", "one by one"),
    ),
    "a study name that is a list": ((*LAUNCH, "--study", "a,b"), ("--study", "'a,b'", "no comma")),
    "an empty study name": ((*LAUNCH, "--study", ""), ("--study", "''", "expected")),
    "unknown task": (
        ("launch", "--cpu", "--variant", "rmsnorm", "--task", "dmo"),
        ("'dmo'", "did you mean 'demo'", "etth", ".toml"),
    ),
    "a GPU that is not there": ((*ON_GPUS, "--gpus", "99"), ("--gpus", "no GPU 99", "--cpu")),
    "empty list of GPUs": ((*ON_GPUS, "--gpus", ""), ("--gpus", "empty", "0,1 or 'all'")),
    "a list of no GPUs": ((*ON_GPUS, "--gpus", ","), ("--gpus", "empty", "0,1 or 'all'")),
    "a GPU by name": ((*ON_GPUS, "--gpus", "big"), ("--gpus", "'big'", "0,1 or 'all'")),
    "CPU and GPUs": ((*LAUNCH, "--gpus", "0"), ("--cpu and --gpus", "choose one")),
    "workers and GPUs": ((*ON_GPUS, "--workers", "2", "--gpus", "0"), ("--workers", "--cpu", "--gpus")),
    "more workers than cores": (
        (*LAUNCH, "--workers", str(CORES + 1)),
        (f"--workers {CORES + 1}", f"{CORES} usable core", f"at most {CORES}"),
    ),
    "a target without its objective": ((*LAUNCH, "--target-val-loss", "0.2"), ("--time-objective", "both or none")),
    "a limit that nothing keeps": ((*LAUNCH, "--max-mql", "0"), ("--max-mql", "above 0", "'none'")),
    "a limit that is no number": ((*LAUNCH, "--max-time", "soon"), ("--max-time", "'soon'", "above 0", "'none'")),
    "a limit that is no limit": ((*LAUNCH, "--max-time", "inf"), ("--max-time", "'inf'", "above 0", "'none'")),
    "a seed that is none": ((*LAUNCH, "--sampler-seed", "-1"), ("--sampler-seed", "'-1'", "whole number", "'none'")),
    "TF32 on a CPU": ((*LAUNCH, "--precision", "tf32"), ("--precision tf32", "fp32 or bf16")),
    "another space without a name": (("study", "extend", "a", "--space", "original"), ("--space", "--as")),
    "nothing to extend": (("study", "extend", "a"), ("--trials", "--space")),
    "a file that is no study": (("study", "import", "none.json.gz"), ("none.json.gz", "tuner study export")),
    "no trials": ((*LAUNCH, "--trials", "0"), ("--trials", "0", "1", "tuner launch --help")),
    "trials that are no number": ((*LAUNCH, "--trials", "abc"), ("--trials", "'abc'", "integer")),
    "no epochs": ((*LAUNCH, "--max-epochs", "0"), ("--max-epochs", "0", "1")),
    "unknown flag": ((*LAUNCH, "--trails", "3"), ("--trails", "--trials", "tuner launch --help")),
    "unknown command": (("lanch", "--variant", "rmsnorm"), ("'lanch'", "'launch'", "tuner --help")),
    "unknown sampler": ((*LAUNCH, "--sampler", "tpee"), ("'tpee'", "did you mean 'tpe'", "nsga2")),
    "unknown backend": ((*LAUNCH, "--backend", "cuda"), ("--backend", "'cuda'", "'auto'", "'eager'")),
    "no duration": ((*LAUNCH, "--timeout", "soon"), ("--timeout", "'soon'", "1h30m")),
    "no time at all": ((*LAUNCH, "--timeout", "0s"), ("--timeout", "'0s'", "1h30m")),
    "not a database URL": (
        (*LAUNCH, "--storage", "trials.db"),
        ("--storage", "'trials.db'", "sqlite:///FILE", "postgresql://"),
    ),
    "an empty database URL": ((*LAUNCH, "--storage", ""), ("--storage", "''", "sqlite:///FILE")),
    "unsupported database": (
        (*LAUNCH, "--storage", "oracle://ann@host/x"),
        ("--storage", "'oracle'", "sqlite:///FILE", "postgresql://"),
    ),
    "SQLite without a file": ((*LAUNCH, "--storage", "sqlite://"), ("--storage", "sqlite:///storage/tuner.db")),
    "a worker on nothing": (("worker", "--study", "mine"), ("--gpu INDEX", "--cpu")),
    "a worker on both": (("worker", "--study", "mine", "--gpu", "0", "--cpu"), ("--gpu INDEX", "--cpu")),
    "a worker on a GPU that is not there": (("worker", "--study", "mine", "--gpu", "99"), ("--gpu:", "no GPU 99")),
    "a worker on a core that is not there": (
        ("worker", "--study", "mine", "--cpu", "--cores", "9999"),
        ("--cores", "9999", "there are"),
    ),
    "a worker on cores that are no numbers": (
        ("worker", "--study", "mine", "--cpu", "--cores", "a"),
        ("--cores", "'a'", "0,1"),
    ),
    "unknown variant to choose from": (("best", "--variant", "rmsnrm"), ("'rmsnrm'", "did you mean 'rmsnorm'")),
    "unknown pick": (("best", "--variant", "rmsnorm", "--pick", "best"), ("--pick", "'best'", "'knee'")),
    "unknown format": (("best", "--variant", "rmsnorm", "--format", "yaml"), ("--format", "'yaml'", "'toml'")),
    "unknown data": (("data", "fetch", "weather"), ("'weather'", "etth")),
}


@pytest.mark.parametrize("mistake", FLAGS)
def test_a_wrong_flag_or_name_is_one_line(mistake: str, tmp_path: Path) -> None:
    arguments, says = FLAGS[mistake]
    refused(*arguments, folder=tmp_path, code=2, says=says)


def test_no_command_at_all_shows_the_help(tmp_path: Path) -> None:
    done = run(folder=tmp_path)
    assert done.code == 2
    assert done.out == ""
    assert "Usage: tuner" in done.err
    assert "launch" in done.err
    assert "error" not in done.err


STUDY_FILES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "unknown key": ("dropout = 0.1", "dropuot = 0.1", ("mine.toml, line 12", "defaults.dropuot", "'dropout'")),
    "missing key": ("hidden_size = 8\n", "", ("mine.toml, line 9", "missing key 'defaults.hidden_size'", "add it")),
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
    "number in quotes": ("patience = 100000", 'patience = "3"', ("mine.toml, line 24", "training.patience", '"3"')),
    "syntax error": ('model = "rmsnorm"', 'model = "rmsnorm', ("mine.toml, line 4", "not valid TOML")),
    "unknown network": (
        'model = "rmsnorm"',
        'model = "rmsnrm"',
        ("mine.toml", "'rmsnrm'", "did you mean 'rmsnorm'", ":Class"),
    ),
    "unknown setting": ("n_blocks = 1", "n_block = 1", ("mine.toml", "'n_block'", "did you mean 'n_blocks'")),
    "a name that is no name": ('name = "small"', 'name = "a/b"', ("mine.toml, line 2", "'name'", '"a/b"')),
}


@pytest.mark.parametrize("mistake", STUDY_FILES)
def test_a_wrong_study_file_is_one_line(mistake: str, tmp_path: Path) -> None:
    right, wrong, says = STUDY_FILES[mistake]
    assert STUDY_TOML.count(right) == 1
    (tmp_path / "mine.toml").write_text(STUDY_TOML.replace(right, wrong), encoding="utf-8")
    refused(*DEMO, "--variant", "mine.toml", folder=tmp_path, code=2, says=says)


def test_a_study_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    refused(*DEMO, "--variant", "mine.toml", folder=tmp_path, code=2, says=("mine.toml", "no study file", "built-in"))


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
    "class missing": ("my_models:WrongShap", ("my_models", "'WrongShap'", "did you mean 'WrongShape'")),
    "not an nn.Module": ("my_models:NoModule", ("my_models:NoModule", "not a subclass of torch.nn.Module")),
    "wrong output shape": (
        "my_models:WrongShape",
        ("must return", f"{OUTPUT}", f"not (2, {demo_task().input_size}, 1)"),
    ),
}


@pytest.mark.parametrize("mistake", OWN)
def test_an_own_model_that_cannot_work_is_one_line(mistake: str, tmp_path: Path) -> None:
    reference, says = OWN[mistake]
    (tmp_path / "my_models.py").write_text(OWN_MODELS, encoding="utf-8")
    study = STUDY_TOML.replace('model = "rmsnorm"', f'model = "{reference}"').replace("n_blocks = 1", "")
    (tmp_path / "mine.toml").write_text(study, encoding="utf-8")
    no_cache = {"PYTHONDONTWRITEBYTECODE": "1"}  # a user's module leaves __pycache__, which is Python's doing
    refused(*DEMO, "--variant", "mine.toml", folder=tmp_path, code=2, says=says, environment=no_cache)


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
    return ["ds,a,b", *(f"2024-01-{1 + i // 24:02d} {i % 24:02d}:00:00,{i % 7}.5,{i * 3 % 11}" for i in range(60))]


def bent(row: int, text: str) -> str:
    lines = rows()
    lines[row - 1] = text
    return "\n".join(lines)


PLAIN = "\n".join(rows())
CSV: dict[str, tuple[str, tuple[str, ...]]] = {
    "empty": ("", ("mine.csv", "empty", "header")),
    "only a header": ("ds,a,b\n", ("mine.csv", "header", "no rows")),
    "missing column": (PLAIN.replace("ds,a,b", "ds,a,c"), ("mine.csv, row 1", "missing column 'b'", "'c'")),
    "shorter than a window": ("\n".join(rows()[:20]), ("mine.csv", "19 rows, needed are 38", "more rows")),
    "NaN": (bent(12, "2024-01-01 10:00:00,1,NaN"), ("mine.csv, row 12, column 'b'", "'NaN'", "finite")),
    "inf": (bent(13, "2024-01-01 11:00:00,-inf,1"), ("mine.csv, row 13, column 'a'", "'-inf'", "finite")),
    "text": (bent(14, "2024-01-01 12:00:00,high,1"), ("mine.csv, row 14, column 'a'", "'high'", "finite")),
    "unsorted": (
        "\n".join([*rows()[:9], rows()[10], rows()[9], *rows()[11:]]),
        ("mine.csv, row 11, column 'ds'", "unsorted", "sort the rows"),
    ),
    "duplicate": (bent(8, "2024-01-01 05:00:00,1,1"), ("mine.csv, row 8, column 'ds'", "duplicate", "in row 7")),
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
    refused(*LAUNCH, "--task", "mine.toml", folder=tmp_path, code=1, says=("mine.csv", "no such file", "'path'"))


def test_a_wrong_task_file_is_one_line_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TASK_TOML.replace("horizon", "horizont"), encoding="utf-8")
    says = ("mine.toml, line 6", "'horizont'", "did you mean 'horizon'")
    refused(*LAUNCH, "--task", "mine.toml", folder=tmp_path, code=2, says=says)


def test_a_constant_column_works(tmp_path: Path) -> None:
    study, _ = write_files(tmp_path)
    content = [rows()[0], *(f"{line.rsplit(',', 1)[0]},4.0" for line in rows()[1:])]
    (tmp_path / "mine.csv").write_text("\n".join(content), encoding="utf-8")
    (tmp_path / "mine.toml").write_text(CSV_TASK, encoding="utf-8")
    launch = ("launch", "--cpu", "--variant", study.name, "--task", "mine.toml", "--trials", "1", "--max-epochs", "1")
    done = run(*launch, folder=tmp_path)
    assert done.code == 0, done.err
    (following,) = [line for line in done.out.splitlines() if line.startswith("Next: tuner ")]
    suggested = following.split("|")[0].split()[2:]  # what it says comes next is a command that works
    best = run(*suggested, "--json", folder=tmp_path)
    assert best.code == 0, best.err
    assert '"test_mql": ' in best.out


DATABASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "nobody listens": (
        "postgresql://ann@127.0.0.1:1/x",
        ("ann@127.0.0.1:1/x", "refused", "check that the server runs"),
    ),
    "no such host": ("postgresql://ann@nowhere.invalid/x", ("nowhere.invalid", "check that the server runs")),
    "a driver that is not installed": ("postgresql+nodriver://ann@127.0.0.1/x", ("nodriver", "postgresql://USER@HOST")),
    "a folder": ("sqlite:///a_folder", ("a_folder", "is a folder", "tuner.db")),
    "beneath a regular file": ("sqlite:///a_file/deep/tuner.db", ("a_file/deep", "writable", "--storage")),
    "not an SQLite file": ("sqlite:///a_file", ("a_file", "not an SQLite database", "--storage")),
}


@pytest.mark.parametrize("mistake", DATABASES)
@pytest.mark.parametrize("command", ["launch", "best"])
def test_a_database_that_cannot_be_used_is_one_line(mistake: str, command: str, tmp_path: Path) -> None:
    url, says = DATABASES[mistake]
    (tmp_path / "a_folder").mkdir()
    (tmp_path / "a_file").write_text("something else, longer than the first sixteen bytes", encoding="utf-8")
    if command == "best" and mistake == "beneath a regular file":
        says = ("a_file/deep", "there is no database", "tuner launch")
    arguments = LAUNCH if command == "launch" else ("best", "--task", "demo", "--variant", "rmsnorm")
    refused(*arguments, "--storage", url, folder=tmp_path, code=1, says=says)


def test_a_password_in_a_url_is_warned_of_and_never_shown(tmp_path: Path) -> None:
    done = run("status", "--storage", "postgresql://ann:Zq7secret@127.0.0.1:1/x", folder=tmp_path)
    assert done.code == 1
    assert "refused" in done.error
    assert "TUNER_STORAGE" in done.err
    assert "PGPASSFILE" in done.err
    assert "Zq7secret" not in done.err
    quiet = run("status", folder=tmp_path, environment={"TUNER_STORAGE": "postgresql://ann:Zq7secret@127.0.0.1:1/x"})
    assert len(quiet.err.splitlines()) == 1
    assert "refused" in quiet.error
    assert "Zq7secret" not in quiet.err


def test_a_wrong_password_is_one_line_that_does_not_show_it(postgres: Cluster, tmp_path: Path) -> None:
    url = postgres.url(postgres.create_database(), password="{wrong}@Zq7")
    says = ("password authentication failed", "TUNER_STORAGE", "PGPASSFILE")
    line = refused(*LAUNCH, folder=tmp_path, code=1, says=says, environment={"TUNER_STORAGE": url})
    assert "Zq7" not in line
    assert quote("Zq7") not in line


def test_a_server_without_that_database_is_one_line(postgres: Cluster, tmp_path: Path) -> None:
    says = ("nothing_here", "does not exist", "createdb")
    line = refused(
        *LAUNCH, folder=tmp_path, code=1, says=says, environment={"TUNER_STORAGE": postgres.url("nothing_here")}
    )
    assert PASSWORD not in line


@pytest.fixture
def copied(recorded_database: RecordedDatabase, tmp_path: Path) -> Path:
    """A folder with the recorded studies where the default database is."""
    folder = tmp_path / "work"
    (folder / "storage").mkdir(parents=True)
    with (
        sqlite3.connect(recorded_database.path) as source,
        sqlite3.connect(folder / "storage" / "tuner.db") as target,
    ):
        source.backup(target)
    return folder


def dump(folder: Path) -> str:
    with sqlite3.connect(f"file:{folder}/storage/tuner.db?mode=ro", uri=True) as connection:
        return "\n".join(connection.iterdump())


EXISTING: dict[str, tuple[Sequence[str], int, tuple[str, ...]]] = {
    "worker": (("worker", "--study", "demo-rmsnrm", "--cpu"), 2, ("'demo-rmsnrm'", "did you mean 'demo-rmsnorm'")),
    "status": (("status", "--study", "demo-rmsnrm"), 2, ("'demo-rmsnrm'", "did you mean 'demo-rmsnorm'")),
    "best": (
        ("best", "--variant", "rmsnorm", "--study", "demo-rmsnrm"),
        2,
        ("'demo-rmsnrm'", "did you mean 'demo-rmsnorm'"),
    ),
    "bounds nobody meets": (
        ("best", "--variant", "rmsnorm", "--task", "demo", "--max-time", "0.001", "--max-mql", "0.5"),
        1,
        ("'demo-rmsnorm'", "wall_clock_s <= 0.001 and test_mql <= 0.5", "nearest is trial"),
    ),
    "another definition": (
        (*LAUNCH, "--max-epochs", "3"),
        2,
        ("'demo-rmsnorm'", "training.max_epochs: 200 there, 3 asked", "--study NAME"),
    ),
    "another device": (
        (*LAUNCH, "--trials", "100"),
        2,
        ("'demo-rmsnorm'", "Example CPU", "--study NAME"),
    ),
    "a wrong study file": ((*DEMO, "--variant", "rmsnorm,none.toml"), 2, ("none.toml",)),
    "a wrong task": (("launch", "--cpu", "--variant", "simple", "--task", "none.toml"), 2, ("none.toml",)),
}


@pytest.mark.parametrize("mistake", EXISTING)
def test_a_mistake_leaves_an_existing_database_as_it_was(mistake: str, copied: Path) -> None:
    arguments, code, says = EXISTING[mistake]
    before, files = dump(copied), set(contents(copied))
    done = run(*arguments, folder=copied)
    assert done.code == code, done.err
    assert done.out == ""
    for words in says:
        assert words in done.error, done.error
    assert dump(copied) == before
    # The lock beside an SQLite file stays, as that of any launch does: to delete it would be a race.
    assert set(contents(copied)) - files <= {"storage/tuner.db.lock"}


def test_a_study_of_another_version_is_one_line(copied: Path) -> None:
    path = copied / "storage" / "tuner.db"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE tuner_studies SET definition = json_remove(definition, '$.data_hash')")
    connection.close()
    for arguments in (LAUNCH, ("best", "--variant", "rmsnorm", "--task", "demo"), ("status",)):
        done = run(*arguments, folder=copied)
        assert done.code == 1, done.err
        for words in ("'demo-rmsnorm'", "another version of tuner", "--study NAME"):
            assert words in done.error, done.error


def test_nothing_finished_yet_is_one_line(tmp_path: Path) -> None:
    database = open_database(parse_url(f"sqlite:///{tmp_path}/storage/tuner.db"))
    create_or_resume(database, "demo-rmsnorm", definition(), trials=10)
    database.close()
    done = run("best", "--variant", "rmsnorm", "--task", "demo", folder=tmp_path)
    assert done.code == 1
    assert done.out == ""
    assert "'demo-rmsnorm' has no finished trial" in done.error
    assert "try again later" in done.error


@pytest.mark.parametrize(
    "arguments", [("worker", "--study", "mine", "--cpu"), ("best", "--variant", "rmsnorm", "--study", "mine")]
)
def test_no_database_and_one_without_studies_say_how_to_start(arguments: Sequence[str], tmp_path: Path) -> None:
    refused(*arguments, folder=tmp_path, code=1, says=("there is no database", "tuner launch", "--storage"))
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "tuner.db").touch()
    done = run(*arguments, folder=tmp_path)
    assert done.code == 1
    assert "no studies yet" in done.error
    assert "tuner launch" in done.error
    open_database(parse_url(f"sqlite:///{tmp_path}/storage/tuner.db")).close()
    done = run(*arguments, folder=tmp_path)
    assert done.code == 2
    assert "unknown study 'mine'" in done.error
    assert "tuner launch" in done.error


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("command", ["launch", "best", "status", "worker"])
def test_a_damaged_database_is_one_line(command: str, share: float, copied: Path) -> None:
    """The pages from `share` of the file on are noise; the first 100 bytes, which name it an SQLite file, are kept."""
    path = copied / "storage" / "tuner.db"
    good = path.read_bytes()
    kept = max(100, int(len(good) * share))
    path.write_bytes(good[:kept] + bytes(7 * i % 251 for i in range(len(good) - kept)))
    arguments = {
        "launch": LAUNCH,
        "best": ("best", "--variant", "rmsnorm", "--task", "demo"),
        "status": ("status",),
        "worker": ("worker", "--study", "demo-rmsnorm", "--cpu"),
    }[command]
    done = run(*arguments, folder=copied)
    assert done.code == 1, done.err
    assert "database" in done.error
    assert "check" in done.error


def test_etth_without_a_network_fails_within_seconds(tmp_path: Path) -> None:
    """The network here is a proxy that takes the connection and never answers: the slowest way to have none."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        proxy = f"http://127.0.0.1:{silent.getsockname()[1]}"
        cache = tmp_path / "cache"
        offline = {"https_proxy": proxy, "HTTPS_PROXY": proxy, "no_proxy": "", "XDG_CACHE_HOME": str(cache)}
        (tmp_path / "work").mkdir()
        started = time.monotonic()
        line = refused(
            *("launch", "--cpu", "--variant", "rmsnorm"),
            folder=tmp_path / "work",
            code=1,
            says=("ETTh1.csv", "could not be downloaded", "--data-dir", "TUNER_DATA_DIR"),
            environment=offline,
        )
    assert time.monotonic() - started < 20
    assert "timed out" in line
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_data_folder_without_the_files_is_one_line(tmp_path: Path) -> None:
    refused(
        *("launch", "--cpu", "--variant", "rmsnorm", "--data-dir", "."),
        folder=tmp_path,
        code=1,
        says=("ETTh1.csv", "no such file", "--data-dir", "tuner data fetch etth"),
    )
