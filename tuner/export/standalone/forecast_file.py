"""The test split's forecasts as a CSV: a row for each series, time and target column, quantiles in
the units of the data, which never cross.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tuner.display.text import in_csv
from tuner.export.standalone.windows_of_series import Data


def check_new(path: Path | None) -> None:
    """Leave before the training where its forecasts could not be written, or would replace a
    file.
    """
    if path is not None and path.exists():
        sys.exit(f"{path}: is there already; name another file")
    if path is not None and not path.absolute().parent.is_dir():
        sys.exit(f"{path}: {path.absolute().parent} is no folder; create it or name another")


def write_forecasts(
    path: Path, task: Mapping[str, Any], data: Data, forecasts: Mapping[int, Tensor]
) -> None:
    """Write what networks of these seeds forecast for the test windows, (N, T, C, Q) each."""
    tables = [forecast_table(task, data, seed, values) for seed, values in forecasts.items()]
    try:
        pd.concat(tables, ignore_index=True).to_csv(path, index=False)
    except OSError as error:
        sys.exit(f"{path}: cannot be written ({error.strerror or error})")
    print(f"wrote {path}")  # noqa: T201


def forecast_table(
    task: Mapping[str, Any], data: Data, seed: int, forecasts: Tensor
) -> pd.DataFrame:
    """The test windows' forecasts, (N, T, C, Q), as rows."""
    horizon, columns = data.shapes.horizon, task["target_columns"]
    rows = data.test.starts.unsqueeze(1) + torch.arange(
        data.shapes.input_size, data.shapes.input_size + horizon, device=data.test.starts.device
    )
    values = forecasts.reshape(-1, forecasts.shape[-1]).cpu().numpy()
    return pd.DataFrame(
        {
            "seed": seed,
            "series": np.repeat([in_csv(name) for name in _names(data)], horizon * len(columns)),
            "time": np.repeat(data.test.times[rows.cpu().numpy()].reshape(-1), len(columns)),
            "column": np.tile([in_csv(column) for column in columns], rows.numel()),
            **{str(level): values[:, i] for i, level in enumerate(task["quantiles"])},
        }
    )


def _names(data: Data) -> Sequence[str]:
    return [data.names[number] for number in data.test.series.tolist()]
