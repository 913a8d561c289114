"""Tables as people have them are read right, or refused with the line that helps."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.peoples_tables import PeoplesTable, peoples_tables, value
from tuner.cli.init import proposed
from tuner.cli.task_text import task_text
from tuner.data.calendars import grid
from tuner.data.proposal.proposed_task import Proposal
from tuner.data.proposal.sheet import Told
from tuner.data.series import Series
from tuner.data.sources import open_source
from tuner.data.task import load_task
from tuner.errors import TunerError, UsageError


def read(path: Path) -> tuple[Proposal, tuple[Series, ...]]:
    """As `tuner init data --yes` proposes, and the task's file then gives."""
    proposal = proposed(path, "x", Told())
    task = path.with_name("x.toml")
    task.write_text(task_text(proposal, path, task), encoding="utf-8")
    return proposal, open_source(load_task(str(task)), None).parse()


@pytest.mark.parametrize("table", list(peoples_tables()), ids=lambda table: table.name)
def test_a_table_is_read_right_or_refused(table: PeoplesTable, tmp_path: Path) -> None:
    path = tmp_path / f"x{table.suffix}"
    path.write_bytes(table.content)
    if table.refused:
        with pytest.raises(TunerError) as caught:
            read(path)
        assert table.refused in str(caught.value)
        assert "\n" not in str(caught.value)
        return
    proposal, series = read(path)
    assert (proposal.frequency, len(proposal.targets)) == (table.frequency, table.targets)
    assert proposal.series == table.series
    one = series[0]
    expected = table.times.to_numpy().astype("datetime64[us]")
    np.testing.assert_array_equal(one.timestamps, expected)
    values = [table.factor * value(row) for row in range(len(expected))]
    if table.factor:
        np.testing.assert_allclose(one.values[:, 0], values, rtol=1e-12)


FREQUENCIES = (
    "h", "15min", "30min", "5min", "D", "B", "W-WED", "MS", "ME", "MS+14D", "QS-JAN", "YS-JAN",
)  # fmt: skip
DAYS = (
    "%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d %b %Y", "%b %d, %Y",
    "%d.%m.%y", "%Y%m%d",
)  # fmt: skip
CLOCKS = (" %H:%M", " %H:%M:%S", " %I:%M %p", "T%H:%M:%S")
EXAMPLES = int(os.environ.get("TUNER_TEST_EXAMPLES", "25"))
MARKS = ((".", ""), (".", ","), (".", "'"), (",", ""), (",", "."), (",", "\u00a0"))


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_regular_series_reads_back_whatever_its_dialect(
    data: st.DataObject, tmp_path: Path
) -> None:
    draw = data.draw
    frequency = draw(st.sampled_from(FREQUENCIES))
    first = draw(st.datetimes(pd.Timestamp("1971-01-01"), pd.Timestamp("2030-01-01"))).date()
    times = pd.DatetimeIndex(grid(first, frequency, periods=draw(st.integers(60, 120))))
    day, clock = draw(st.sampled_from(DAYS)), draw(st.sampled_from(CLOCKS))
    coarse = frequency[0] not in "h135"
    if clock[0] == "T" or day == "%Y%m%d":
        day, clock = ("%Y-%m-%d", clock) if not coarse else (day, clock)
    form = day if coarse else day + clock
    decimal, thousands = draw(st.sampled_from(MARKS))
    separators = [
        each for each in ",;\t|" if each not in (decimal, day[2:3], ",", "") or each == ";"
    ]
    separator = draw(st.sampled_from(separators))
    encoding = draw(st.sampled_from(("utf-8", "utf-8-sig", "cp1252", "utf-16")))
    above = draw(st.sampled_from(("", "# of 2024\n", "Name: x\nBy: y\n\n")))
    scale = draw(st.sampled_from((1, 100, 10_000)))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    values = np.round(scale * (1.37 + random.normal(size=len(times)).cumsum()), 2)
    marks = str.maketrans({",": thousands, ".": decimal})
    lines = [f"Zeit{separator}Wärme"]
    lines += [
        f"{time:{form}}{separator}" + f"{number:,.2f}".translate(marks)
        for time, number in zip(times, values, strict=True)
    ]
    (tmp_path / "x.csv").write_bytes((above + "\n".join(lines) + "\n").encode(encoding))
    try:
        proposal, (one,) = read(tmp_path / "x.csv")
    except UsageError as error:
        assert "more than one way" in str(error)  # noqa: PT017 - what it may be besides right
        return
    found = grid(times[0], proposal.frequency, periods=len(times) + 9)
    expected = grid(times[0], frequency, periods=len(times) + 9)
    assert np.array_equal(found, expected), proposal.frequency
    np.testing.assert_array_equal(one.timestamps, times.to_numpy().astype("datetime64[us]"))
    np.testing.assert_array_equal(one.values[:, 0], values)
