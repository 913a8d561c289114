"""What is never negative, or a share, is found in a file, asked, and written into its task."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tests.support.proposed_tasks import lines_to, prepared_by, proposal_for
from tuner.data.proposal.sheet import Told


def test_bounds_are_proposed_for_what_comes_near_zero_and_never_below(tmp_path: Path) -> None:
    times = pd.date_range("2024-01-01", periods=400, freq="D")
    rows = [
        f"{time:%Y-%m-%d},{max(0, i % 9 - 5)}.5,{i * 7 % 101},{(i % 40) - 10},{200 + i % 7}"
        if i % 9 > 5
        else f"{time:%Y-%m-%d},0,{i * 7 % 101},{(i % 40) - 10},{200 + i % 7}"
        for i, time in enumerate(times)
    ]
    file = lines_to(tmp_path / "weather.csv", ["day,rain,humidity,celsius,kelvin", *rows])
    proposal = proposal_for(file)
    assert proposal.bounds == {"rain": (0.0, None), "humidity": (0.0, 100.0)}
    (guess,) = [each for each in proposal.guesses if each.key == "bounds"]
    assert guess.why.startswith("rain, humidity: never negative")
    task = prepared_by(file, proposal, tmp_path).task
    assert [(each.column, each.low, each.high) for each in task.bounds] == [
        ("rain", 0.0, None),
        ("humidity", 0.0, 100.0),
    ]
    assert proposal_for(file, Told(bounds="no")).bounds == {}
    assert not [g for g in proposal_for(file, Told(bounds="yes")).guesses if g.key == "bounds"]
