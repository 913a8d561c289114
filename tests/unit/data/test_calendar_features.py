from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.data.series import CYCLES, calendar_columns


@given(st.datetimes(min_value=datetime(1800, 1, 1), max_value=datetime(2300, 1, 1)))  # noqa: DTZ001
def test_every_cycle_is_the_zero_based_position_in_its_period(moment: datetime) -> None:
    positions = {
        "minute": moment.minute,
        "hour": moment.hour,
        "day_of_week": moment.weekday(),
        "day_of_month": moment.day - 1,
        "day_of_year": moment.timetuple().tm_yday - 1,
        "month": moment.month - 1,
        "quarter": (moment.month - 1) // 3,
    }
    assert set(positions) == set(CYCLES)
    found = calendar_columns(np.array([moment], dtype="datetime64[us]"), list(positions))[0]
    for number, (cycle, position) in enumerate(positions.items()):
        angle = 2 * np.pi * position / CYCLES[cycle][0]
        assert found[2 * number] == pytest.approx(np.sin(angle), abs=1e-12)
        assert found[2 * number + 1] == pytest.approx(np.cos(angle), abs=1e-12)


def test_no_cycles_give_no_columns() -> None:
    first = datetime(2024, 1, 1)  # noqa: DTZ001
    times = np.array([first + timedelta(hours=i) for i in range(3)], dtype="datetime64[us]")
    assert calendar_columns(times, ()).shape == (3, 0)
