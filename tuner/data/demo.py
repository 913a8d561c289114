"""Generated hourly series: daily and weekly cycles, slow drift, noise that grows with the level."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tuner.data.series import Series

_START = np.datetime64("2024-01-01T00:00:00", "us")
_DECIMALS = 4
"""Values are rounded, so that the last bits of one machine's sine do not change the data's hash."""


def demo_series(*, rows: int, seed: int, n_targets: int) -> tuple[Series, ...]:
    """Series `demo1` and `demo2`, `rows` hours each, values (rows, n_targets) around 10 to 100.

    The same seed gives the same values: PCG64, one child stream per series, values rounded to 4
    decimals.
    """
    streams = np.random.SeedSequence(seed).spawn(2)
    timestamps = _START + np.arange(rows) * np.timedelta64(1, "h")
    return tuple(
        Series(
            name=f"demo{number}",
            timestamps=timestamps,
            values=_values(rows, n_targets, np.random.Generator(np.random.PCG64(stream))),
        )
        for number, stream in enumerate(streams, start=1)
    )


def _values(rows: int, n_targets: int, random: np.random.Generator) -> npt.NDArray[np.float64]:
    hours = np.arange(rows, dtype=np.float64)[:, None]
    level = random.uniform(20.0, 60.0, n_targets)
    phase = random.uniform(0.0, 2.0 * np.pi, (3, n_targets))
    day = np.sin(2.0 * np.pi * hours / 24.0 + phase[0]) + 0.4 * np.sin(
        4.0 * np.pi * hours / 24.0 + phase[1]
    )
    week = np.sin(2.0 * np.pi * hours / 168.0 + phase[2])
    drift = random.uniform(-0.15, 0.15, n_targets) * hours / max(rows, 1)
    signal = level * (1.0 + 0.3 * day + 0.15 * week + drift)
    spread = 0.03 * level * (1.0 + 0.8 * np.clip(day, 0.0, None))  # noisier at the daily peak
    noise = _persistent(random.standard_normal((rows, n_targets)), persistence=0.7)
    return np.asarray(np.round(signal + spread * noise, _DECIMALS), dtype=np.float64)


def _persistent(shocks: npt.NDArray[np.float64], *, persistence: float) -> npt.NDArray[np.float64]:
    """First-order autoregression of the shocks, along the rows, with unit variance."""
    noise = shocks.copy()
    fresh = (1.0 - persistence**2) ** 0.5
    for row in range(1, len(noise)):
        noise[row] = persistence * noise[row - 1] + fresh * shocks[row]
    return noise
