"""The figure of fronts: what it marks, what it shows of them, and in which units."""

from __future__ import annotations

import pytest

from tests.support.figure_parts import LABELS, POINTS, traces
from tuner.report.figures.curves import VolumeSeries, hypervolume_figure
from tuner.report.figures.front import FrontSeries, VerifiedPoint, pareto_figure
from tuner.report.figures.style import round_numbers
from tuner.report.figures.trade import TradeSeries, trade_figure
from tuner.verdict.stats.intervals import Interval


def test_the_front_leaves_out_what_another_beats_and_marks_the_default() -> None:
    found = traces(pareto_figure([FrontSeries(name="a", points=POINTS, labels=LABELS, default=3)]))
    assert list(found["a: trials"].x) == [3.0, 1.0, 2.0, 2.5]
    assert list(found["a: front"].text) == ["trial 1", "trial 2", "trial 0"]
    assert (found["a: default hyperparameters"].x[0], found["a: default hyperparameters"].y[0]) == (
        2.5,
        1.1,
    )


def test_a_default_that_a_limit_cut_is_marked_as_such() -> None:
    found = traces(
        pareto_figure([FrontSeries(name="a", points=POINTS, labels=LABELS, cut_default=(9.0, 2.0))])
    )
    star = found["a: default hyperparameters, cut by a limit"]
    assert (star.x[0], star.y[0], star.marker.symbol) == (9.0, 2.0, "star-open")


def test_verified_points_have_bars_from_the_low_to_the_high_end_of_both_intervals() -> None:
    point = VerifiedPoint(
        label="trial 2",
        time=Interval(2.0, 1.5, 3.0, 5),
        mql=Interval(1.0, 0.9, 1.05, 5),
    )
    series = FrontSeries(
        name="a",
        points=POINTS,
        labels=LABELS,
        verified=[point],
        interval="95 % interval of 10 seeds",
    )
    (trace,) = [t for name, t in traces(pareto_figure([series])).items() if "verified" in name]
    assert trace.name == "a: verified, 95 % interval of 10 seeds"
    assert (trace.error_x.array[0], trace.error_x.arrayminus[0]) == (1.0, 0.5)
    assert trace.error_y.array[0] == pytest.approx(0.05)
    assert trace.error_y.arrayminus[0] == pytest.approx(0.1)


def test_overlaid_variants_differ_in_more_than_their_colour() -> None:
    both = [FrontSeries(name=name, points=POINTS, labels=LABELS) for name in "ab"]
    found = traces(pareto_figure(both))
    first, second = found["a: front"], found["b: front"]
    assert first.line.color != second.line.color
    assert first.line.dash != second.line.dash
    assert first.marker.symbol != second.marker.symbol


def test_of_many_variants_the_legend_names_each_once_and_explains_the_marks() -> None:
    point = VerifiedPoint(label="t", time=Interval(2, 1, 3, 5), mql=Interval(1, 0.9, 1.1, 5))
    many = [
        FrontSeries(
            name=name,
            points=POINTS,
            labels=LABELS,
            default=3,
            verified=[point],
            interval="95 % intervals",
        )
        for name in "abc"
    ]
    legend = [trace.name for trace in pareto_figure(many).data if trace.showlegend is not False]
    explained = [
        "grey: trials",
        "star: default hyperparameters",
        "large: verified, 95 % intervals",
    ]
    assert legend == ["a: front", "b: front", "c: front", *explained]
    trades = [
        TradeSeries(name=n, points=[(10, 0.3), (40, 0.5)], labels=["", ""], front=[0])
        for n in "abc"
    ]
    legend = [trace.name for trace in trade_figure(trades).data if trace.showlegend is not False]
    assert legend == ["a: front", "b: front", "c: front", "faint: trials"]


def test_slow_and_bad_trials_do_not_press_the_front_into_a_corner() -> None:
    points = [*POINTS, (80.0, 1.0), (2.0, 30.0), (90.0, 40.0)]
    layout = pareto_figure(
        [FrontSeries(name="a", points=points, labels=["" for _ in points])]
    ).layout
    assert layout.xaxis.type == "log"
    low, high = layout.yaxis.range
    assert low < 0.9
    assert 1.2 < high < 2
    assert [note.text for note in layout.annotations] == ["2 trials above"]
    near = pareto_figure([FrontSeries(name="a", points=POINTS, labels=LABELS)]).layout
    assert (near.xaxis.type, near.yaxis.range, near.annotations) == (None, None, ())


def test_axes_say_what_they_measure_and_in_which_unit() -> None:
    series = FrontSeries(name="a", points=POINTS, labels=LABELS)
    layout = pareto_figure([series]).layout
    assert (layout.xaxis.title.text, layout.yaxis.title.text) == (
        "time to convergence (s)",
        "test MQL",
    )
    assert "not to convergence" in pareto_figure([series], censored=True).layout.xaxis.title.text
    volume = VolumeSeries(name="a", finished=[1], hours=[0.5], volume=[2.0])
    assert hypervolume_figure([volume]).layout.xaxis.title.text == "finished trials"


@pytest.mark.parametrize(
    ("hours", "unit", "shown"), [(5.0, "(h)", 5.0), (0.5, "(min)", 30.0), (0.01, "(s)", 36.0)]
)
def test_the_time_of_a_search_is_in_the_unit_that_suits_the_longest(
    hours: float, unit: str, shown: float
) -> None:
    volumes = [
        VolumeSeries(name="a", finished=[1], hours=[each], volume=[2.0])
        for each in (hours, hours / 10)
    ]
    figure = hypervolume_figure(volumes, over="time")
    assert figure.layout.xaxis.title.text == f"time since the search began {unit}"
    assert [trace.x[0] for trace in figure.data] == pytest.approx([shown, shown / 10])


def test_lines_of_equal_time_are_hyperbolas_through_round_numbers() -> None:
    series = TradeSeries(
        name="a", points=[(10, 0.3), (40, 0.5)], labels=["x", "y"], front=[0], default=1
    )
    figure = trade_figure([series])
    lines = [trace for trace in figure.data if not trace.name]
    products = [[x * y for x, y in zip(line.x, line.y, strict=True)] for line in lines]
    assert [product[0] for product in products] == pytest.approx([3.0, 5.0, 10.0, 20.0])
    assert all(first == pytest.approx(last) for first, last in products)
    assert [note.text for note in figure.layout.annotations] == ["3 s", "5 s", "10 s", "20 s"]
    assert list(traces(figure)["a: front"].x) == [10]


def test_round_numbers_cover_a_span_or_name_the_nearest() -> None:
    assert round_numbers(0.4, 6.0) == [0.5, 1.0, 2.0, 5.0]
    assert round_numbers(3.1, 3.2) == [2.0]
