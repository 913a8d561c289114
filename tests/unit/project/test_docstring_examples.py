"""Every public name of the package has an example in its docstring, and each one runs."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pandas as pd
import pytest
import torch

import tuner
from tests.support.paths import REPOSITORY
from tuner.cli.main import main
from tuner.data.sources import demo_series
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import read_archive
from tuner.study.transfer import restore

EXPORTED = REPOSITORY / "notebooks" / "data" / "original.json.gz"
NAMES = sorted(set(tuner.__all__) - {"__version__", "launch"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that examples name: a database with a study, its task, a model, and rows."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "task.toml").write_text((EXPORTED.parent / "quick.toml").read_text())
    database = open_database(parse_url(f"sqlite:///{folder}/quick.db"))
    restore(database, read_archive(EXPORTED), "quick")
    database.close()
    found = ["--study", "quick", "--pick", "knee", "--storage", f"sqlite:///{folder}/quick.db"]
    task = ["--task", str(folder / "task.toml")]
    with pytest.raises(SystemExit) as ended:
        main(["train", *found, *task, "--cpu", "--output", str(folder / "model.safetensors")])
    assert ended.value.code == 0
    series = demo_series(rows=300, seed=0, n_targets=3)[0]
    rows = pd.DataFrame(series.values, columns=["a", "b", "c"])
    rows.assign(ds=series.timestamps, series=series.name).to_csv(folder / "rows.csv", index=False)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    public = getattr(tuner, name)
    known = vars(tuner) | {each: getattr(tuner, each) for each in NAMES}
    known |= {"pd": pd, "torch": torch}
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(public) or "", known, name, "", 0)
    assert example.examples, f"{name} has no example"
    failures: list[str] = []
    doctest.DocTestRunner().run(example, out=failures.append)
    assert failures == []
