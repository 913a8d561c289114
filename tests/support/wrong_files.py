"""Folders of files that people get wrong, each in one way, for commands that must refuse them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pandas as pd

from tests.support import strangers_data
from tests.support.recorded_studies import record_study
from tests.support.small_csv import TASK, csv_lines
from tests.support.small_models import save_untrained, table, task_of
from tests.support.small_study import STUDY_TOML, TASK_TOML, definition
from tuner.export import load_best, render
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume

_MODEL = 'model = "rmsnorm"\n\n[model_settings]\nn_blocks = 1'
STUDIES = {
    "unknown-key": ("dropout = 0.1", "dropuot = 0.1"),
    "missing-key": ("hidden_size = 8\n", ""),
    "low-above-high": ("low = 1e-4, high = 1e-2", "low = 1e-2, high = 1e-4"),
    "log-from-0": ("low = 1e-6, high", "low = 0.0, high"),
    "no-power-of-two": ("low = 8, high = 16", "low = 8, high = 12"),
    "default-outside": ("dropout = 0.1", "dropout = 0.9"),
    "quoted-number": ("patience = 100000", 'patience = "3"'),
    "syntax": ('model = "rmsnorm"', 'model = "rmsnorm'),
    "unknown-network": ('model = "rmsnorm"', 'model = "rmsnrm"'),
    "unknown-setting": ("n_blocks = 1", "n_block = 1"),
    "no-name": ('name = "small"', 'name = "a/b"'),
    "no-module": ('model = "rmsnorm"', 'model = "my_modles:WrongShape"'),
    "no-class": ('model = "rmsnorm"', 'model = "my_models.py:WrongShap"'),
    "not-a-module": ('model = "rmsnorm"', 'model = "my_models.py:NoModule"'),
    "wrong-shape": (_MODEL, 'model = "my_models.py:WrongShape"'),
    "setting-of-ones-own": (
        _MODEL,
        'model = "my_models.py:Sized"\n\n[model_settings]\nwidth = 0',
    ),
    "setting-of-ours": ("n_blocks = 1", "n_blocks = 0"),
}
"""What is changed in the small study file."""

MODELS = """
from torch import nn


class WrongShape(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, past, future, static):
        return self.layer(past[:, :, :1])


class Sized(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout, width=8):
        super().__init__()
        self.shapes = s = shapes
        self.layer = nn.Linear(s.input_size, s.horizon * s.n_quantiles * (width // width))

    def forward(self, past, future, static):
        s = self.shapes
        out = self.layer(past[..., : s.n_targets].transpose(1, 2))
        return out.unflatten(-1, (s.horizon, s.n_quantiles)).transpose(1, 2)


class NoModule:
    pass
"""

_PLAIN = csv_lines(60)


def _bent(row: int, text: str) -> str:
    return "\n".join([*_PLAIN[: row - 1], text, *_PLAIN[row:]])


TABLES = {
    "empty": "",
    "header": "ds,a,b\n",
    "column": "\n".join(_PLAIN).replace("ds,a,b", "ds,a,c"),
    "short": "\n".join(_PLAIN[:20]),
    "nan": _bent(12, "2024-01-01 10:00:00,1,NaN"),
    "text": _bent(14, "2024-01-01 12:00:00,high,1"),
    "unsorted": "\n".join([*_PLAIN[:9], _PLAIN[10], _PLAIN[9], *_PLAIN[11:]]),
    "duplicate": _bent(8, "2024-01-01 05:00:00,1,1"),
    "gap": "\n".join([*_PLAIN[:20], *_PLAIN[22:]]),
    "semicolons": "\n".join(_PLAIN).replace(",", ";").replace(".5", ",5"),
    "no-time": _bent(9, "yesterday,1,1"),
}
"""Each with a task file of its name."""

UNKNOWN_KINDS: dict[str, str | bytes] = {
    "blank": "\n \n",
    "moods": "mood\n" + "good\nbad\n" * 200,
    "few": "ds,y\n2024-01-01,1\n2024-01-02,2\n2024-01-03,1\n",
    "twice": "\n".join(["ds,y", *(f"2024-01-{1 + i // 2:02d},{i * 7 % 11}" for i in range(60))]),
    "picture": b"\x89PNG\r\n\x1a\n" + bytes(200),
    "garbage": random.Random(0).randbytes(100_000),
    "line": "ab12" * 250_000,
    "ragged": "a,b\n" + "1,2\n2,4\n" * 50 + "1,2,3\n",
    "undated": "y\n" + "".join(f"{i * 7 % 11}.5\n" for i in range(1000)),
    "regular": "\n".join(
        [
            "ds,y",
            *(f"2024-01-{1 + i // 24:02d} {i % 24:02d}:00:00,{i * 7 % 11}" for i in range(600)),
        ]
    ),
}
"""What somebody has a task proposed for."""


def write_wrong_files(folder: Path) -> None:
    """`files`, `studies` (with a database) and `models` in `folder`."""
    _write_files(folder / "files")
    _write_studies(folder / "studies")
    _write_models(folder / "models")


def _write_files(folder: Path) -> None:
    folder.mkdir()
    for name, (right, wrong) in STUDIES.items():
        assert STUDY_TOML.count(right) == 1, name
        (folder / f"{name}.toml").write_text(STUDY_TOML.replace(right, wrong))
    (folder / "my_models.py").write_text(MODELS)
    (folder / "tiny.toml").write_text(TASK_TOML)
    (folder / "task-key.toml").write_text(TASK_TOML.replace("horizon", "horizont"))
    for name, text in TABLES.items():
        (folder / f"{name}.csv").write_text(text)
        (folder / f"{name}-task.toml").write_text(TASK.replace("small", name))
    (folder / "absent-task.toml").write_text(TASK.replace("small", "absent"))
    for name, content in UNKNOWN_KINDS.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / f"{name}.csv").write_bytes(data)
    (folder / "cut.parquet").write_bytes(b"PAR1" + bytes(40))
    strangers_data.parquet(folder)
    (folder / "a_folder").mkdir()
    (folder / "folder.csv").mkdir()
    (folder / "a_folder.toml").mkdir()
    (folder / "a_file").write_text("something else, longer than the first sixteen bytes")
    for name, text in (("null", "null"), ("deep", "[" * 100_000), ("format", '{"format": 1}')):
        (folder / f"{name}.json").write_text(text)
    (folder / "mine.html").write_text("my own page\n")
    (folder / "mine.csv").write_text("my,own,table\n")


def _write_studies(folder: Path) -> None:
    """Finished ones, one that has begun; a configuration, and wrong ones."""
    url = f"sqlite:///{folder}/storage/tuner.db"
    for variant in ("rmsnorm", "original"):
        record_study(url, variant=variant)
    database = open_database(parse_url(url))
    create_or_resume(database, "begun", definition(), trials=10)
    database.close()
    text = render(load_best("rmsnorm", task="demo", trial=0, storage=url), "toml")
    (folder / "best.toml").write_text(text)
    (folder / "wrong.toml").write_text(text.replace("batch_size", "batchsize"))
    (folder / "own.toml").write_text(text.replace('task = "demo"', 'task = "bakery"'))
    (folder / "mine.html").write_text("my own page\n")


def _write_models(folder: Path) -> None:
    """A model without training, rows that it can forecast from, and others."""
    folder.mkdir()
    targets, rows, ahead = ("load", "heat"), 200, 6
    frame = table((*targets, "visitors", "price"), series=("north", "south"), rows=rows + ahead)
    later = frame.groupby("site").cumcount() >= rows
    frame.loc[later, [*targets, "visitors"]] = np.nan
    task = task_of(targets, past_covariates=("visitors",), future_covariates=("price",))
    save_untrained(folder / "model.safetensors", frame.dropna(), task)
    frame.to_csv(folder / "recent.csv", index=False)
    wrong = {
        "short": frame[frame.groupby("site").cumcount() >= rows - 20],
        "halfhours": frame.assign(ds=np.tile(pd.date_range("2024", periods=206, freq="30min"), 2)),
        "stranger": frame.replace("south", "soth"),
        "columnless": frame.drop(columns="heat"),
        "priceless": frame.drop(columns="price"),
        "unknown": frame.dropna(),
        "infinite": frame.assign(price=frame["price"].mask(frame.index == rows + 2, np.inf)),
        "late": frame.assign(
            ds=frame["ds"].mask(frame.index == rows + 1, pd.Timestamp("2025-01-01"))
        ),
    }
    for name, bent in wrong.items():
        bent.to_csv(folder / f"{name}.csv", index=False)
    frame.to_csv(folder / "semicolons.csv", index=False, sep=";", decimal=",")
    (folder / "mine.csv").write_text("my,own,table\n")
    (folder / "mine.html").write_text("my own page\n")
    (folder / "notes.txt").write_text("no model\n")
    (folder / "notes.json").write_text("{}")
    (folder / "broken.safetensors").write_bytes(b"no weights")
    (folder / "broken.json").write_bytes((folder / "model.json").read_bytes())
    card = json.loads((folder / "model.json").read_text())
    card["architecture"] = {"model": f"{folder}/evil.py:Evil", "settings": {}}
    (folder / "evil.py").write_text(
        f"open({str(folder / 'ran')!r}, 'w')\nclass Evil: ...\n", encoding="utf-8"
    )
    (folder / "foreign.json").write_text(json.dumps(card))
    (folder / "foreign.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
