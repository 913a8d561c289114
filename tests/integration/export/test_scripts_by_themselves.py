"""The exported script needs torch, pandas and numpy alone, and says what it cannot take."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.support.exported_scripts import EPOCHS, loaded, of_variant, run_config
from tests.support.present import present
from tests.support.small_csv import TASK
from tuner.config import Architecture
from tuner.data.prepare import prepare
from tuner.data.series import Series
from tuner.data.source_kinds import FileSource
from tuner.data.task import load_task
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.export import BestConfig, render
from tuner.export.standalone.windows_of_series import read_csv, read_or_leave
from tuner.models.names import builtin_names
from tuner.training import evaluate, fit

pytestmark = pytest.mark.usefixtures("one_thread")


CSV_TASK = """\
name = "shops"
target_columns = ["y", "z"]
frequency = "D"
input_size = 6
horizon = 2
calendar = ["day_of_week"]
past_covariates = ["visitors"]
future_covariates = ["price"]
static_id = true

[source]
kind = "csv"
path = "shops.csv"
id_column = "shop"
separator = ";"
decimal = ","
"""


def test_the_script_reads_the_users_csv_as_the_study_did(
    best: BestConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = np.datetime64("2024-01-01")
    rows = [
        f"{start + day};{shop};{day * 7 % 11},{day}5;0,1;{day % 5};{day % 3},25"
        for day in range(50)
        for shop in ("south", "north")
        if shop == "south" or day < 45
    ]
    (tmp_path / "shops.csv").write_text(
        "\n".join(["ds; shop ;y;z;visitors;price", *rows]), encoding="utf-8"
    )
    (tmp_path / "shops.toml").write_text(CSV_TASK, encoding="utf-8")
    task = load_task(str(tmp_path / "shops.toml"))
    prepared = prepare(task)
    config = of_variant(best, "simple", data_hash=prepared.data_hash)
    definition = dataclasses.replace(config.definition, task=task.definition())
    config = dataclasses.replace(
        config, definition=definition, source=task.source.model_dump(mode="json")
    )
    script = loaded(config, monkeypatch)
    series = script.read_series(None)
    assert script.data_hash(definition.task, series) == prepared.data_hash
    data = script.prepare(definition.task, series, torch.device("cpu"))
    assert data.names == prepared.series == ("south", "north")
    assert np.array_equal(data.minimum.numpy(), prepared.minimum)
    for ours, theirs in ((prepared.train, data.train), (prepared.test, data.test)):
        assert np.array_equal(
            np.hstack([ours.targets, ours.past, ours.future]), theirs.rows.numpy()
        )
        assert np.array_equal(ours.starts, theirs.starts.numpy())


OWN = """
from torch import nn

class Flat(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout, depth):
        super().__init__()
        self.shapes, self.depth = shapes, depth
        self.layer = nn.Linear(shapes.input_size, shapes.horizon * shapes.n_quantiles)

    def forward(self, past, future, static):
        s = self.shapes
        out = self.layer(past[..., : s.n_targets].transpose(1, 2))
        return out.unflatten(-1, (s.horizon, s.n_quantiles)).transpose(1, 2)
"""


def test_the_script_of_a_class_of_ones_own_loads_it_from_its_file(
    best: BestConfig, demo: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flat.py").write_text(OWN, encoding="utf-8")
    architecture = Architecture(model=f"{tmp_path}/flat.py:Flat", settings={"depth": 2})
    config = dataclasses.replace(
        best, definition=dataclasses.replace(best.definition, architecture=architecture)
    )
    script = loaded(config, monkeypatch)
    job = script.Job(**script.SETTINGS)
    data = script.prepare(job.task, script.read_series(None), torch.device("cpu"))
    trained = script.train(job, data, script.network, job.seeds[0])
    assert trained.model.depth == 2
    assert trained.val_loss == fit(run_config(config), demo).best_val_loss
    for form in ("neuralforecast", "darts"):
        compile(render(config, form), "best.py", "exec")


def test_the_script_imports_nothing_that_needs_installing_but_torch_pandas_and_numpy(
    best: BestConfig,
) -> None:
    for variant in builtin_names():
        tree = ast.parse(render(of_variant(best, variant), "python"))
        roots = {
            (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        others = {root.partition(".")[0] for root in roots} - set(sys.stdlib_module_names)
        assert others <= {"numpy", "pandas", "torch"}


@pytest.mark.parametrize(
    ("backend", "says"),
    [("eager", "it ends at the trial's test MQL"), ("compile", "expect another seed's result")],
)
def test_the_script_says_how_near_it_comes_to_the_trial(
    best: BestConfig, backend: str, says: str
) -> None:
    config = dataclasses.replace(best, provenance=best.provenance | {"backend": backend})
    assert says in render(config, "python")


def test_the_script_compiles_whatever_the_names_are(best: BestConfig) -> None:
    for study, task in (("two\nlines", 'it\'s "quoted"'), ('"""', "\\")):
        bent = dataclasses.replace(best, study=study, task=task)
        compile(render(bent, "python"), "best.py", "exec")


def test_the_script_runs_alone_in_a_fresh_folder_and_prints_its_scores(
    best: BestConfig, demo: DeviceData, tmp_path: Path
) -> None:
    watch = "\nassert 'tuner' not in sys.modules and 'optuna' not in sys.modules\n"
    script = (
        render(best, "python").replace("import argparse", "import argparse\nimport sys", 1) + watch
    )
    (tmp_path / "best.py").write_text(script, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-I", "best.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout
    seed = best.provenance["seed"]
    assert done.stdout.startswith(f"seed {seed}: epoch_limit after {EPOCHS} epochs, ")
    (printed,) = re.findall(r"all forecasts: test MQL ([\d.]+)", done.stdout)
    expected = evaluate(present(fit(run_config(best), demo).model), demo).test_mql_mean
    assert float(printed) == pytest.approx(expected, abs=1e-3)


DATA_FAULTS = {
    "missing": (None, "nowhere.csv: No such file or directory; usage: python "),
    "no table": ('a,b\n"1,2\n', "mine.csv: "),
    "wrong columns": ("a,b\n1,2\n", "mine.csv: has no column "),
    "no number": (
        "ds,one,two\n2024-01-01,1.0,NA\n",
        "mine.csv: could not convert string to float: 'NA'",
    ),
    "too short": (
        "ds,one,two\n2024-01-01,1.0,2.0\n",
        "mine.csv: series mine has 1 rows; each split needs ",
    ),
}


@pytest.mark.parametrize("fault", DATA_FAULTS)
def test_data_that_a_script_cannot_take_is_one_line(fault: str, tmp_path: Path) -> None:
    text, says = DATA_FAULTS[fault]
    path = tmp_path / ("nowhere.csv" if text is None else "mine.csv")
    if text is not None:
        path.write_text(text, encoding="utf-8")
    task = {"input_size": 8, "horizon": 2, "split": (0.6, 0.2, 0.2)}

    def read(data: str | None) -> list[Series]:
        return read_csv(str(data), ["one", "two"], name="mine", time_column="ds")

    with pytest.raises(SystemExit) as ended:
        read_or_leave(task, read, str(path))
    said = str(ended.value.code)  # text: it goes to stderr, and the exit code is 1
    assert says in said
    assert "\n" not in said


def test_a_script_for_neuralforecast_says_how_it_is_called(
    best: BestConfig, tmp_path: Path
) -> None:
    (tmp_path / "nf.py").write_text(render(best, "neuralforecast"), encoding="utf-8")
    for arguments, code in (([], 2), (["--help"], 0)):
        done = subprocess.run(
            [sys.executable, "nf.py", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr == "usage: python nf.py PANEL.csv  (columns unique_id, ds, y)\n"


@pytest.mark.parametrize(
    ("panel", "says"),
    [
        (None, "panel.csv: cannot be read as a CSV"),
        ("", "panel.csv: cannot be read as a CSV (No columns to parse from file)"),
        (
            "ds,y\n2024-01-01,1\n",
            "panel.csv: has no column unique_id; expected unique_id, ds and y, found ds, y",
        ),
        ("unique_id,ds,y\na,soon,1\n", "panel.csv: column ds cannot be read"),
        ("unique_id,ds,y\na,2024-01-01,NO\n", "panel.csv: column y cannot be read"),
        (
            "unique_id,ds,y\na,2024-01-01,1\nb,2024-01-01,1\n",
            "panel.csv: has 2 series; this network forecasts 3 together",
        ),
    ],
)
def test_a_panel_that_the_script_for_neuralforecast_cannot_take_is_one_line(
    panel: str | None, says: str, best: BestConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = render(best, "neuralforecast")
    reader = script[
        script.index("def read_panel") : script.index('if __name__ == "__main__":\n    panel')
    ]
    names: dict[str, Any] = {"pd": pd, "sys": sys}
    exec(reader, names)
    monkeypatch.chdir(tmp_path)
    if panel is not None:
        Path("panel.csv").write_text(panel, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        names["read_panel"]("panel.csv")
    assert str(ended.value.code).startswith(says)
    assert "\n" not in str(ended.value.code)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("index = true\n", "a script does not know 'index' under [source] of a task yet"),
        ('gaps = "fill"\n', "a script does not know 'gaps'"),
        ('timezone = "Europe/Berlin"\n', "a script does not know 'timezone'"),
        ("header = false\n", "a script does not know 'header'"),
        ('kind = "parquet"\n', "a script does not read parquet files yet; use --format json"),
        ('gaps = "fill"\n', "; use --format json, or neuralforecast, whose script reads a panel"),
        ('kind = "parquet"\n', "; use --format json, or neuralforecast, whose script reads"),
    ],
)
def test_a_file_that_a_script_cannot_read_is_refused(
    best: BestConfig, tmp_path: Path, more: str, says: str
) -> None:
    text = TASK.replace('kind = "csv"\n', "") if "kind" in more else TASK
    (tmp_path / "small.toml").write_text(text + more, encoding="utf-8")
    config = of_variant(best, "original", task=str(tmp_path / "small.toml"))
    source = load_task(str(tmp_path / "small.toml")).source
    assert isinstance(source, FileSource)
    with pytest.raises(UsageError) as caught:
        render(dataclasses.replace(config, source=source.noted()), "python")
    assert says in str(caught.value)
