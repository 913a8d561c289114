from __future__ import annotations

import numpy as np

from tuner.report.figures.targets import MOST_PANELS, MOST_POINTS, Panel, targets_figure, thinned

HOURS = np.arange("2024-01-01", "2024-02-01", dtype="datetime64[h]")


def panel(title: str = "load", rows: int = 100) -> Panel:
    return Panel(
        title=title,
        times=HOURS[:rows],
        values=np.sin(np.arange(rows) / 5),
        ends=(rows * 6 // 10, rows * 8 // 10, rows),
    )


def test_each_target_has_a_panel_with_its_splits() -> None:
    figure = targets_figure([panel("a"), panel("b")], title="x")
    assert [trace.name for trace in figure.data] == ["a", "b"]
    spans = [(str(shape.x0)[:13], str(shape.x1)[:13]) for shape in figure.layout.shapes]
    assert spans[:3] == spans[3:]
    assert spans[1] == ("2024-01-03T12", "2024-01-04T08")
    texts = [each.text for each in figure.layout.annotations]
    assert texts == ["a", "b", "training", "validation", "test"]


def test_too_many_targets_are_said_to_be_some() -> None:
    figure = targets_figure([panel(str(n)) for n in range(MOST_PANELS + 3)], title="many")
    assert len(figure.data) == MOST_PANELS
    assert figure.layout.title.text == "many (the first 8 of 11 targets)"


def test_a_name_is_no_markup() -> None:
    figure = targets_figure([panel("<b>x</b>")])
    assert "<b>" not in figure.layout.annotations[0].text


def test_a_long_line_keeps_its_extremes() -> None:
    values = np.zeros(100_000)
    values[[33_333, 77_777]] = 9, -9
    kept = thinned(values, MOST_POINTS)
    assert len(kept) <= MOST_POINTS
    assert (np.diff(kept) > 0).all()
    assert {0, 33_333, 77_777, 99_999} <= set(kept.tolist())
