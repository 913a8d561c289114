"""Scripts for libraries read their own data, and say what they cannot take."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support.exported_scripts import of_variant
from tests.support.small_csv import TASK
from tuner.data.source_kinds import FileSource
from tuner.data.task import load_task
from tuner.errors import UsageError
from tuner.export import BestConfig, render

pytestmark = pytest.mark.usefixtures("one_thread")


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
        ("index = true\n", "does not know 'index' under [source] of a task; use --format python"),
        ('gaps = "fill"\n', "does not know 'gaps'"),
        ('timezone = "Europe/Berlin"\n', "does not know 'timezone'"),
        ("header = false\n", "does not know 'header'"),
        ('kind = "parquet"\n', "does not read parquet files; use --format python, or neural"),
    ],
)
def test_a_file_that_the_darts_script_cannot_read_is_refused(
    best: BestConfig, tmp_path: Path, more: str, says: str
) -> None:
    text = TASK.replace('kind = "csv"\n', "") if "kind" in more else TASK
    (tmp_path / "small.toml").write_text(text + more, encoding="utf-8")
    config = of_variant(best, "original", task=str(tmp_path / "small.toml"))
    source = load_task(str(tmp_path / "small.toml")).source
    assert isinstance(source, FileSource)
    with pytest.raises(UsageError) as caught:
        render(dataclasses.replace(config, source=source.noted()), "darts")
    assert says in str(caught.value)
