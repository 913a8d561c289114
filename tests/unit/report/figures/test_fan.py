"""Fan charts: history joined to the median, a band for each pair, now, and what came."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tuner.report.figures.fan import Fan, fan_figure, size_of

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


def fan(**changes: Any) -> Fan:
    hours = np.datetime64("2024-01-01T00", "us") + np.arange(8) * np.timedelta64(1, "h")
    given: dict[str, Any] = {
        "name": "north, <load>",
        "unit": "<load>",
        "seen_times": hours[:5],
        "seen": np.array([1.0, 2.0, np.nan, 4.0, 5.0]),
        "times": hours[5:],
        "levels": LEVELS,
        "forecast": np.arange(15.0).reshape(3, 5),
        "actual": np.array([6.0, 7.0, np.nan]),
    }
    return Fan(**given | changes)


def traces(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data}


def test_the_median_and_every_band_begin_where_the_history_ends() -> None:
    figure = fan_figure([fan()])
    found = traces(figure)
    assert list(found) == ["0.1 to 0.9", "0.25 to 0.75", "seen", "median forecast", "what came"]
    assert list(found["median forecast"].y) == [5.0, 2.0, 7.0, 12.0]
    assert found["median forecast"].x[0] == found["seen"].x[-1]
    assert list(found["0.1 to 0.9"].y) == [5.0, 4.0, 9.0, 14.0, 10.0, 5.0, 0.0, 5.0]
    assert list(found["what came"].y[:3]) == [5.0, 6.0, 7.0]
    (now,) = figure.layout.shapes
    assert np.datetime64(now.x0, "us") == fan().seen_times[-1]
    assert {note.text for note in figure.layout.annotations} == {"north, &lt;load&gt;", "now"}


def test_what_nobody_knows_yet_is_not_drawn() -> None:
    assert "what came" not in traces(fan_figure([fan(actual=np.full(3, np.nan))]))


def test_levels_without_a_partner_are_lines_of_their_own() -> None:
    figure = fan_figure([fan(levels=(0.2, 0.5), forecast=np.ones((3, 2)))])
    assert list(traces(figure)) == ["seen", "quantile 0.2", "median forecast", "what came"]


def test_several_panels_share_one_legend_and_none_says_so() -> None:
    figure = fan_figure([fan(), fan(), fan()], title="three")
    assert sum(trace.showlegend for trace in figure.data) == 5
    assert figure.layout.height == size_of(3)[1] > size_of(1)[1]
    assert len(figure.layout.shapes) == 3
    assert fan_figure([]).layout.annotations[0].text == "no forecast"


@pytest.mark.parametrize("fans", [1, 5])
def test_bands_have_shades_of_their_own(fans: int) -> None:
    bands = [trace.fillcolor for trace in fan_figure([fan()] * fans).data if trace.fill]
    assert len(set(bands)) == 2
    assert len(bands) == 2 * fans
