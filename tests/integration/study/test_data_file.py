"""A study on the user's CSV, for workers that have no task file."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.support.cli_processes import Bench
from tests.support.databases import SQLITE_ALONE
from tests.support.small_csv import TASK, csv_lines
from tests.support.small_study import definition
from tests.support.web_server import serving
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.errors import DataError, UsageError
from tuner.storage.database import Database
from tuner.study.data_file import _MARK, data_of, keep_data_file, task_of_study
from tuner.study.open import OpenStudy, create_or_resume


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder with the CSV alone."""
    folder = tmp_path / "shared"
    folder.mkdir()
    lines = [line.replace(",", ";", 2) for line in csv_lines(60)]
    (folder / "small.csv").write_text("\n".join(lines).replace(".5", ",5"))
    return folder


@pytest.fixture
def made(database: Database, shared: Path, tmp_path: Path) -> OpenStudy:
    """Launched where the task file is, which is not here."""
    there = tmp_path / "there"
    there.mkdir()
    shutil.copy(shared / "small.csv", there)
    dialect = 'separator = ";"\ndecimal = ","\n'
    (there / "small.toml").write_text(TASK + dialect, encoding="utf-8")
    task = load_task(str(there / "small.toml"))
    hashed = definition(task=task.definition(), data_hash=prepare(task).data_hash)
    opened = create_or_resume(database, "own", hashed, trials=1)
    keep_data_file(opened.optuna, task)
    shutil.rmtree(there)
    return opened


def test_the_folder_of_the_csv_is_enough(made: OpenStudy, shared: Path) -> None:
    (wanted,) = data_of([made], data_dir=shared, task=None)
    assert wanted == made.definition.data_hash


@SQLITE_ALONE
def test_so_is_a_url_and_what_changed_there_is_fetched_anew(
    made: OpenStudy, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    good = (shared / "small.csv").read_text()
    with serving(shared) as url:
        (shared / "small.csv").write_text(good.replace("0,5", "0,6"))
        with pytest.raises(DataError, match="is not what study 'own' was made with"):
            data_of([made], data_dir=Path(url), task=None)
        (shared / "small.csv").write_text(good)
        assert data_of([made], data_dir=Path(url), task=None)
    assert data_of([made], data_dir=Path(url), task=None)  # from the cache


@SQLITE_ALONE
def test_without_either_the_line_names_the_file(made: OpenStudy) -> None:
    with pytest.raises(UsageError, match=r"the file 'small.csv'; .* --data-dir, or .* --task FILE"):
        data_of([made], data_dir=None, task=None)


@SQLITE_ALONE
def test_a_study_of_before_asks_for_its_task_file(made: OpenStudy, shared: Path) -> None:
    made.optuna.set_user_attr(_MARK, None)
    with pytest.raises(UsageError, match="give its task file with --task FILE"):
        data_of([made], data_dir=shared, task=None)


@SQLITE_ALONE
@pytest.mark.parametrize(
    "path", ["../small.csv", "/etc/passwd", "", "a\nb.csv", 7], ids=["up", "root", "no", "two", "7"]
)
def test_a_name_that_leads_elsewhere_is_one_line(
    made: OpenStudy, shared: Path, path: object
) -> None:
    stored = made.optuna.user_attrs[_MARK]
    made.optuna.set_user_attr(_MARK, {**stored, "path": path})
    with pytest.raises(DataError, match="is damaged") as met:
        data_of([made], data_dir=shared, task=None)
    assert "\n" not in str(met.value)


def test_a_worker_needs_no_task_file_where_a_launch_noted_the_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")
    (tmp_path / "tiny.toml").write_text(TASK, encoding="utf-8")
    (tmp_path / "small.csv").write_text("\n".join(csv_lines(60)))
    assert bench.launch(1).code == 0
    bench.allow(2, "small-small")
    shared = tmp_path / "elsewhere"
    shared.mkdir()
    (tmp_path / "small.csv").rename(shared / "small.csv")
    (tmp_path / "tiny.toml").unlink()
    with serving(shared) as url:
        worker = ("worker", "--study", "small-small", "--cpu", "--data-dir", url)
        done = bench.run(*worker, cores=1)
    assert done.code == 0, done.err
    status = bench.run("status", "--json").json()["studies"][0]
    assert status["trials"]["complete"] == 2


@SQLITE_ALONE
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_study_of_before_or_after_says_only_what_is_not_as_usual(
    database: Database, tmp_path: Path, kind: str
) -> None:
    table = pd.DataFrame({"a": range(60), "b": range(60)})
    if kind == "csv":
        table.to_csv(tmp_path / "small.csv", index=False, header=False)
    else:
        table.rename(columns={"a": "column_1", "b": "column_2"}).to_parquet(tmp_path / "small.csv")
    text = TASK.replace('["a", "b"]', '["column_1", "column_2"]').replace('"csv"', f'"{kind}"')
    more = "header = false\n" if kind == "csv" else ""
    (tmp_path / "small.toml").write_text(f"{text}index = true\n{more}", encoding="utf-8")
    task = load_task(str(tmp_path / "small.toml"))
    hashed = definition(task=task.definition(), data_hash=prepare(task).data_hash)
    opened = create_or_resume(database, "counted", hashed, trials=1)
    keep_data_file(opened.optuna, task)
    assert not {"gaps", "fill", "start", "timezone"} & set(opened.optuna.user_attrs[_MARK])
    (wanted,) = data_of([opened], data_dir=tmp_path, task=None)
    assert wanted == opened.definition.data_hash


@SQLITE_ALONE
def test_studies_on_the_same_data_share_the_least_memory_that_one_allows(
    made: OpenStudy, database: Database, shared: Path
) -> None:
    studies, least = [made], []
    for allowed in (2000, 1000, 3000):
        training = made.definition.training.but(data_memory=allowed)
        other = dataclasses.replace(made.definition, training=training)
        opened = create_or_resume(database, f"own-{allowed}", other, trials=1)
        keep_data_file(opened.optuna, task_of_study(made, shared, reuse=True))
        studies.append(opened)
        (prepared,) = data_of(studies, data_dir=shared, task=None).values()
        least.append(prepared.data_memory)
    (alone,) = data_of([made], data_dir=shared, task=None).values()
    assert [alone.data_memory, *least] == [None, 2000, 1000, 1000]
