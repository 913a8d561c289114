from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import plotly.io
import pytest

from tests.support.figure_parts import LABELS, POINTS, traces
from tuner.errors import TunerError, UsageError
from tuner.report.figures.curves import (
    Curve,
    Pace,
    VolumeSeries,
    curves_figure,
    hypervolume_figure,
    throughput_figure,
)
from tuner.report.figures.draw import importances_figure
from tuner.report.figures.front import FrontSeries, pareto_figure
from tuner.report.figures.save import save
from tuner.report.figures.static import for_page
from tuner.report.figures.style import BOTH, COLOURS, VARIANTS, looks, titled
from tuner.report.figures.trade import TradeSeries, trade_figure


def test_curves_draw_a_few_in_colour_and_all_others_as_one_faint_trace() -> None:
    curves = [
        Curve(
            label=f"trial {i}",
            epochs=range(1, 501),
            elapsed_s=[0.1 * e for e in range(1, 501)],
            losses=[None if i == 1 and e == 7 else 1.0 / e for e in range(1, 501)],
            emphasis=i == 0,
        )
        for i in range(5)
    ]
    found = traces(curves_figure(curves))
    assert set(found) == {"other trials", "trial 0"}
    assert len(found["trial 0"].x) <= 150
    assert (found["trial 0"].x[0], found["trial 0"].x[-1]) == (1, 500)
    assert sum(x is None for x in found["other trials"].x) == 4
    assert curves_figure(curves, over="time").data[-1].x[-1] == pytest.approx(50.0)


def test_curves_look_at_what_is_in_colour_and_leave_out_nothing_lower() -> None:
    def curve(losses: list[float], *, emphasis: bool) -> Curve:
        return Curve(
            label="",
            epochs=range(1, len(losses) + 1),
            elapsed_s=losses,
            losses=losses,
            emphasis=emphasis,
        )

    axis = curves_figure(
        [curve([0.37, 0.23], emphasis=True), curve([5.0, 0.21], emphasis=False)]
    ).layout.yaxis
    low, high = (10**end for end in axis.range)
    assert 0.19 < low < 0.21
    assert 0.37 < high < 0.4
    assert len([text for text in axis.ticktext if low < float(text) < high]) >= 5


def test_a_training_that_slows_down_stands_out_from_the_steady_ones() -> None:
    steady = [
        Pace(label="steady trials", epochs=range(2, 9), throughput=[1.0, 1.1] * 3 + [9.0])
        for _ in range(3)
    ]
    slow = Pace(
        label="trial 7: slowed", epochs=range(2, 9), throughput=[1.0] * 6 + [0.2], slowed=True
    )
    figure = throughput_figure([*steady, slow])
    found = traces(figure)
    assert set(found) == {"steady trials", "trial 7: slowed"}
    assert found["trial 7: slowed"].y[-1] == 0.2
    assert figure.layout.yaxis.range[0] == 0
    alone = throughput_figure(steady)
    assert [note.text for note in alone.layout.annotations] == ["throughput fell in none of them"]


def test_importances_order_hyperparameters_by_their_largest_share() -> None:
    figure = importances_figure(
        {"time": {"batch": 0.7, "rate": 0.3}, "error": {"batch": 0.1, "rate": 0.9}}
    )
    assert [trace.name for trace in figure.data] == ["time", "error"]
    assert list(figure.data[0].y) == ["batch", "rate"]  # bars go up from the bottom
    assert list(figure.data[1].x) == [0.1, 0.9]
    assert figure.data[0].marker.pattern.shape != figure.data[1].marker.pattern.shape


def test_a_hyperparameter_that_a_study_does_not_have_has_no_bar_there() -> None:
    figure = importances_figure({"one": {"batch": 0.7, "rate": 0.0}, "other": {"batch": 1.0}})
    one, other = figure.data
    assert list(one.y) == list(other.y) == ["rate", "batch"]
    assert (list(one.x), list(one.text)) == ([0.0, 0.7], ["0%", "70%"])
    assert (list(other.x), list(other.text)) == ([None, 1.0], ["", "100%"])


NAME = "<b>a</b><a href='javascript:x'>y</a> $x$ \x1b[31m"


def test_no_name_is_read_as_html_or_as_a_formula() -> None:
    series = FrontSeries(name=NAME, points=POINTS, labels=LABELS, default=0)
    figures = [
        pareto_figure([series]),
        hypervolume_figure([VolumeSeries(name=NAME, finished=[1], hours=[0.1], volume=[1.0])]),
        throughput_figure([Pace(label=NAME, epochs=[2], throughput=[1.0], slowed=True)]),
        curves_figure(
            [Curve(label=NAME, epochs=[1], elapsed_s=[0.1], losses=[1.0], emphasis=True)]
        ),
        importances_figure({NAME: {NAME: 1.0}}),
        trade_figure([TradeSeries(name=NAME, points=[(3, 0.1)], labels=["0"], default=0)]),
    ]
    for figure in figures:
        document = json.loads(figure.to_json())
        said = "\n".join(strings_of([document["data"], document["layout"].get("yaxis")]))
        assert "&lt;a href=" in said
        for words in ("<a", "</a", "$", "\x1b"):
            assert words not in said


def strings_of(value: Any) -> list[str]:
    """All that may be shown: a legend's group is a key, which nobody sees."""
    if isinstance(value, dict):
        value = [each for key, each in value.items() if key != "legendgroup"]
    if isinstance(value, list):
        return [text for each in value for text in strings_of(each)]
    return [value] if isinstance(value, str) else []


def test_a_very_long_name_leaves_room_to_the_figure() -> None:
    figure = hypervolume_figure(
        [VolumeSeries(name="a" * 500 + "-17", finished=[1], hours=[0.1], volume=[1.0])]
    )
    (trace,) = figure.data
    assert len(trace.name) <= 60
    assert trace.name.endswith("-17")


@pytest.mark.parametrize(
    "figure",
    [
        pareto_figure([FrontSeries(name="a", points=[], labels=[])]),
        hypervolume_figure([VolumeSeries(name="a", finished=[], hours=[], volume=[])]),
        curves_figure([]),
        throughput_figure([]),
        importances_figure({}),
        trade_figure([TradeSeries(name="a", points=[], labels=[])]),
    ],
)
def test_an_empty_figure_says_why(figure: Any) -> None:
    (note,) = figure.layout.annotations
    assert note.text


def test_a_page_needs_no_network(tmp_path: Path) -> None:
    path = save(
        pareto_figure([FrontSeries(name="a", points=POINTS, labels=LABELS)]),
        tmp_path / "new" / "front.html",
    )
    text = path.read_text(encoding="utf-8")
    assert looks(["a"])[0].colour in text
    assert "<script src=" not in text
    assert len(text) > 1_000_000  # plotly.js itself


def test_a_figure_survives_being_stored_as_json() -> None:
    figure = pareto_figure([FrontSeries(name="a", points=POINTS, labels=LABELS, default=0)])
    assert "bdata" not in figure.to_json()  # older browsers' plotly.js cannot read packed arrays
    again = plotly.io.from_json(json.dumps(json.loads(figure.to_json())))
    assert [trace.name for trace in again.data] == [trace.name for trace in figure.data]


def test_a_name_that_says_no_kind_of_figure_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.pdf, \.html"):
        save(curves_figure([]), tmp_path / "front.jpeg2000")
    assert list(tmp_path.iterdir()) == []


def contrast(colour: str, ground: str) -> float:
    """As the Web Content Accessibility Guidelines count it."""
    lights = []
    for each in (colour, ground):
        parts = [int(each[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)
    return max(lights) / min(lights)


def test_every_colour_is_legible_on_white_ground_and_on_dark_ground() -> None:
    assert min(contrast(c, g) for c in (*COLOURS, BOTH) for g in ("#ffffff", "#1e1e1e")) >= 3


def test_a_variant_has_one_colour_in_every_figure_and_no_two_of_a_figure_share_one() -> None:
    mine = [look.colour for look in looks([*VARIANTS, "mine"])]
    assert len(set(mine)) == 6
    assert [look.colour for look in looks(["batchnorm", "original"])] == [mine[4], mine[0]]
    assert looks(["mine"])[0].colour == looks(["original", "mine"])[1].colour
    first, second = looks(["rmsnorm", "rmsnorm"])  # two searches of one
    assert first.colour == second.colour
    assert (first.symbol, first.dash) != (second.symbol, second.dash)


def test_a_picture_of_a_page_has_the_page_s_colours_and_its_texts(tmp_path: Path) -> None:
    series = FrontSeries(name="<b>$a$", points=POINTS, labels=LABELS, default=3)
    figure = titled(pareto_figure([series]), "What $x$ costs")
    text = for_page(figure, width=700, height=400, says='a "front"')
    assert text.startswith('<svg role="img" aria-label="a &quot;front&quot;"')
    assert "var(--ink)" in text
    assert "#222222" not in text
    assert "&lt;b&gt;$a$: default hyperparameters" in text
    assert "What $x$ costs" in text
    assert 'id="figure' not in text


def test_a_picture_without_matplotlib_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(TunerError, match=r"pip install 'tuner\[pictures\]'"):
        save(curves_figure([]), tmp_path / "front.png")


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TunerError, match=r"cannot write .*front\.html"):
        save(curves_figure([]), tmp_path / "file" / "front.html")
