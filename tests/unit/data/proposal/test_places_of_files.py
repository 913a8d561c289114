"""One table is read alike from wherever it comes: a path, standard input, packed, many files."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.proposed_tasks import prepared_by
from tuner.cli.data import _task, facts_of
from tuner.cli.init import proposed
from tuner.data.open_file import STANDARD_INPUT
from tuner.data.proposal.proposed_task import Proposal
from tuner.data.proposal.sheet import Told
from tuner.data.task import Task

ROWS = 600
TIMES = pd.date_range("2024-01-01", periods=ROWS, freq="h")
VALUES = np.round(50 + 10 * np.sin(np.arange(ROWS) / 3), 2)
LINES = [
    f"{time:%d.%m.%Y %H:%M};" + f"{value:.2f}".replace(".", ",")
    for time, value in zip(TIMES, VALUES, strict=True)
]
CSV = "\n".join(["Zeit;Wärme", *LINES]).encode("cp1252")


def as_parquet() -> bytes:
    content = io.BytesIO()
    pd.DataFrame({"Zeit": TIMES, "Wärme": VALUES}).to_parquet(content)
    return content.getvalue()


def values_of(proposal: Proposal, path: Path) -> np.ndarray:
    """As a look at the file finds them."""
    told: dict[str, object] = {"name": "x", "source": {**proposal.source, "path": str(path)}}
    told |= {"target_columns": proposal.targets, "frequency": proposal.frequency}
    told |= {"input_size": proposal.sizes.input_size, "horizon": proposal.sizes.horizon}
    (one,) = facts_of(Task.model_validate(told), file=proposal.file).series
    np.testing.assert_array_equal(one.timestamps, TIMES.to_numpy())
    return one.values[:, 0]


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.parquet", "x.parquet.gz", "-"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_table_is_the_same_wherever_it_lies(
    name: str, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = as_parquet() if "parquet" in name else CSV
    if packed:
        content = gzip.compress(content)
    path = tmp_path / name if name != "-" else STANDARD_INPUT
    if name == "-":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    else:
        path.write_bytes(content)
    proposal = proposed(path, "x", Told())
    assert (proposal.targets, proposal.frequency) == (("Wärme",), "h")
    written = {"separator": ";", "decimal": ",", "encoding": "cp1252"}
    assert (written.items() <= proposal.source.items()) == ("parquet" not in name)
    np.testing.assert_array_equal(values_of(proposal, path), VALUES)


@pytest.mark.parametrize(("files", "runs"), [(9, "by_file"), (2, "by_time")])
def test_a_pattern_is_a_task_of_its_files(
    files: int, runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(files):
        lines = [line.replace(";", f";{number + 1}") for line in LINES[: 500 + number]]
        text = "\n".join(["Zeit;Wärme", *lines])
        (tmp_path / f"run_{number}.csv").write_text(text, encoding="cp1252")
    proposal = proposed(tmp_path / "run_*.csv", "x", Told())
    assert (proposal.source["runs"], proposal.source["separator"]) == (runs, ";")
    assert any(f"{files} files" in note for note in proposal.notes)
    prepared = prepared_by(tmp_path / "run_*.csv", proposal, tmp_path)
    assert prepared.series == (prepared.task.name,)
    rows = sum(len(split.targets) for split in (prepared.train, prepared.val, prepared.test))
    assert rows == sum(500 + number for number in range(files))
    monkeypatch.chdir(tmp_path.parent)
    looked_at, _ = _task(f"{tmp_path.name}/run_*.csv")
    same = facts_of(looked_at).prepared.train.targets
    np.testing.assert_array_equal(same, prepared.train.targets)
