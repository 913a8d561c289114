"""Files as people have them, generated: each kind that `tuner init data` is to understand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

ROWS = 900


def walk(rows: int, columns: int, *, seed: int = 0) -> npt.NDArray[np.float64]:
    """Random walks, (rows, columns)."""
    steps = np.random.default_rng(seed).normal(0, 0.01, (rows, columns))
    walked: npt.NDArray[np.float64] = np.exp(steps.cumsum(axis=0))
    return walked


def headerless_daily(folder: Path) -> Path:
    """Eight exchange rates, one of them a hundredth of the others, without a header or dates."""
    values = walk(7588, 8) * [1, 1.6, 0.8, 0.8, 0.12, 0.009, 0.58, 0.6]
    lines = [",".join(f"{value:.6f}" for value in row) for row in values]
    return _write(folder / "rates.csv", lines)


def without_dates(folder: Path) -> Path:
    lines = ["load,heat", *(f"{a:.4f},{b:.4f}" for a, b in walk(ROWS, 2))]
    return _write(folder / "meter.csv", lines)


def with_holidays_left_out(folder: Path) -> Path:
    """Business days without some holidays."""
    days = pd.bdate_range("2018-01-01", periods=ROWS)
    kept = [day for day in days if (day.month, day.day) not in {(1, 1), (5, 1), (12, 25), (12, 26)}]
    values = walk(len(kept), 2)
    lines = ["Date,Open,Close"]
    lines += [f"{day:%Y-%m-%d},{a:.4f},{b:.4f}" for day, (a, b) in zip(kept, values, strict=True)]
    return _write(folder / "shares.csv", lines)


def quarter_hours_in_local_time(folder: Path) -> Path:
    """Eight months in Berlin, with both changes of the clocks."""
    utc = pd.date_range("2024-03-20", "2024-11-05", freq="15min", tz="UTC")
    local = utc.tz_convert("Europe/Berlin")
    values = walk(len(utc), 2)
    lines = ["timestamp,power,grid"]
    lines += [
        f"{time:%Y-%m-%d %H:%M},{a:.4f},{b:.4f}" for time, (a, b) in zip(local, values, strict=True)
    ]
    return _write(folder / "plant.csv", lines)


def table() -> pd.DataFrame:
    """Hourly rows, three columns of numbers and one of text."""
    values = walk(ROWS, 3)
    return pd.DataFrame(
        {
            "time": pd.date_range("2024-01-01", periods=ROWS, freq="h"),
            "a": values[:, 0],
            "b": values[:, 1].astype("float32"),
            "count": np.arange(ROWS) % 17,
            "weather": "dry",
        }
    )


def parquet(folder: Path) -> Path:
    table().to_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def long_with_twenty_series(folder: Path) -> Path:
    """Daily sales of 20 shops, the rows of a day beside each other."""
    days = pd.date_range("2023-01-01", periods=300)
    sales = walk(300, 20)
    lines = ["shop,day,sales"]
    for day, row in zip(days, sales, strict=True):
        lines += [f"shop {number},{day:%Y-%m-%d},{value:.3f}" for number, value in enumerate(row)]
    return _write(folder / "shops.csv", lines)


def german(folder: Path) -> Path:
    """Semicolons, decimal commas, days before months, and an umlaut in cp1252."""
    hours = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    lines = ["Zeit;Wärme;Leistung"]
    lines += [
        f"{hour:%d.%m.%Y %H:%M};{a:.3f};{b:.3f}".replace(".", ",").replace(
            f"{hour:%d,%m,%Y}", f"{hour:%d.%m.%Y}"
        )
        for hour, (a, b) in zip(hours, walk(ROWS, 2), strict=True)
    ]
    path = folder / "kessel.csv"
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode("cp1252"))
    return path


def _write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
