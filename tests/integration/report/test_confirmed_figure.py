"""The figure of confirmations: what is drawn of confirmed searches, and of those that are not."""

from __future__ import annotations

import dataclasses
import html
import itertools
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from tests.support.browser import chromium, photographed
from tests.support.drawn_verifications import verify_all
from tests.support.forked_cli import run
from tests.support.paths import BENCHMARKS
from tests.support.planned_confirmations import SEEDS, known, last, opened
from tests.support.present import present
from tuner.errors import UsageError
from tuner.report.comparison_files import page
from tuner.report.figures.confirmed_figure import (
    LINE_OF_TEXT,
    ConfirmedSeries,
    Found,
    confirmed_figure,
    confirmed_series,
    first_level,
)
from tuner.report.figures.draw import draw
from tuner.report.figures.front import VerifiedPoint
from tuner.storage import schema
from tuner.storage.database import Database
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.registered import groups_of
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.confirmation_plan import plan_confirmation
from tuner.verdict.retune_cost import costs
from tuner.verdict.stats.intervals import Interval

GROUPS = ("demo-original", "demo-original-2"), ("demo-rmsnorm", "demo-rmsnorm-2")


@pytest.fixture(scope="module")
def exported(searched: Database, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What is recommended of `original` is as good as its default, of `rmsnorm` it is not."""
    with searched.engine.begin() as connection:
        connection.execute(delete(schema.work).where(schema.work.c.kind == "run"))
    for names, mql in zip(GROUPS, (0.8, 0.83), strict=True):
        studies = opened(searched, *names)
        plan_confirmation(studies, seeds=SEEDS, margin=0.01)
        verify_all(studies, known(mql=mql))
    files, folder = [], tmp_path_factory.mktemp("confirmed")
    for each in opened(searched):
        files.append(folder / f"{each.name}.json.gz")
        write_archive(archive_of(each), files[-1])
    return files


@pytest.fixture(scope="module")
def confirmed(exported: list[Path]) -> list[StudySnapshot]:
    return [snapshot(read_archive(path)) for path in exported]


def traces(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data if trace.name}


def arrows(figure: Any) -> list[Any]:
    return [each for each in figure.layout.annotations if each.axref == "x" and not each.text]


def test_what_is_confirmed_is_in_ink_and_what_is_not_is_hollow(
    confirmed: list[StudySnapshot],
) -> None:
    figure = draw("confirmed", confirmed)
    by_name = traces(figure)
    assert set(by_name) == {
        f"{variant}: {what}"
        for variant, found in (
            ("original", "recommended, confirmed"),
            ("rmsnorm", "recommended, not shown to be as good"),
        )
        for what in (
            "as its searches saw configurations",
            "default hyperparameters",
            found,
        )
    }
    strong = by_name["original: recommended, confirmed"]
    hollow = by_name["rmsnorm: recommended, not shown to be as good"]
    assert strong.marker.color == strong.marker.line.color != "white"
    assert hollow.marker.color == "white"
    # Of the second search of original the default stands: it recommends nothing.
    for trace, searches, seconds, mql in ((strong, 1, 6.0, 0.8), (hollow, 2, 3.0, 0.83)):
        assert list(trace.x) == pytest.approx([seconds] * searches, rel=0.05)
        assert list(trace.y) == pytest.approx([mql] * searches, abs=0.01)
        assert all(low > 0 for low in trace.error_x.arrayminus)
    grey = by_name["original: as its searches saw configurations"]
    assert len(grey.x) == sum(len(each.results.points) for each in confirmed[:2])
    assert grey.marker.opacity < 0.5
    star = by_name["original: default hyperparameters"]
    assert star.x[0] == pytest.approx(10.0, rel=0.05)
    assert f"{SEEDS} seeds" in star.text[0], "both searches share them"


def test_an_arrow_leads_to_each_from_what_its_search_saw(confirmed: list[StudySnapshot]) -> None:
    figure = draw("confirmed", confirmed)
    assert figure.layout.xaxis.type == "log"
    found = [one for each in confirmed_series(confirmed) for one in each.found]
    assert len(arrows(figure)) == len(found) == 3
    for arrow, one in zip(arrows(figure), found, strict=True):
        seen = present(one.seen)
        assert (arrow.ax, arrow.ay) == pytest.approx((math.log10(seen[0]), seen[1]))
        assert (arrow.x, arrow.y) == pytest.approx(
            (math.log10(one.at.time.estimate), one.at.mql.estimate)
        )
        low, high = figure.layout.yaxis.range
        assert low < seen[1] < high


def test_the_answer_is_labelled_and_the_first_level_is_a_line(
    confirmed: list[StudySnapshot],
) -> None:
    figure = draw("confirmed", confirmed)
    words = [html.unescape(each.text) for each in figure.layout.annotations if each.text]
    ratio = present(present(present(confirmation_of(confirmed[0])).test).ratio).estimate
    labels = [each for each in words if "of its default's time" in each]
    assert len(labels) == 1  # nothing of rmsnorm is confirmed
    assert labels[0] == f"original: {ratio:.2f} of its default's time"
    said, mql = present(first_level(confirmed))
    assert f"original's default + 1%: {mql:.4f}" == said
    assert said in words
    (line,) = figure.layout.shapes
    assert line.y0 == line.y1 == mql == pytest.approx(0.808, abs=0.006)


def renamed(series: ConfirmedSeries, name: str) -> ConfirmedSeries:
    return dataclasses.replace(series, name=name, says=f"{name}: 0.60 of its default's time")


def test_labels_of_several_variants_stand_beside_what_was_found_and_apart(
    confirmed: list[StudySnapshot],
) -> None:
    series = confirmed_series(confirmed[:2])
    figure = confirmed_figure([renamed(series[0], name) for name in ("one", "two", "three")])
    labels = [each for each in figure.layout.annotations if "0.60 of its" in str(each.text)]
    assert len(labels) == 3
    low, high = figure.layout.yaxis.range
    places = sorted(each.ay for each in labels)
    for below, above in itertools.pairwise(places):
        assert above - below >= 0.99 * LINE_OF_TEXT * (high - low)
    right = max(one.at.time.high for one in series[0].found)
    assert all(each.ax > math.log10(right) for each in labels)


def test_labels_stay_in_the_figure_where_something_was_found_near_the_default(
    confirmed: list[StudySnapshot],
) -> None:
    (series,) = confirmed_series(confirmed[:1])
    (found,) = series.found
    late = Interval(10.0, 9.9, 10.1, 5)
    at = dataclasses.replace(found.at, time=late, mql=Interval(0.9, 0.89, 0.91, 5))
    near = dataclasses.replace(series, found=[found, dataclasses.replace(found, at=at)], answer=1)
    figure = confirmed_figure([renamed(near, name) for name in ("one", "two", "three")])
    first, last = figure.layout.xaxis.range
    _, top = figure.layout.yaxis.range
    labels = [each for each in figure.layout.annotations if "0.60 of its" in str(each.text)]
    assert all(each.ax <= first + 0.75 * (last - first) for each in labels)
    assert all(each.ay <= top + 1e-9 for each in labels)


def test_the_legend_of_many_variants_explains_each_mark_once(
    confirmed: list[StudySnapshot],
) -> None:
    one, _ = confirmed_series(confirmed)
    assert all(each.confirmed for each in one.found)
    named = [renamed(one, name) for name in ("one", "two", "three")]
    shown = [each.name for each in confirmed_figure(named).data if each.showlegend is not False]
    assert shown == [
        *(f"{name}: default hyperparameters" for name in ("one", "two", "three")),
        "recommended, confirmed",
        "as searches saw configurations",
    ]
    assert all(each.showlegend is None for each in confirmed_figure(named[:2]).data)


def test_nothing_confirmed_is_said_in_the_figure(unverified: Database) -> None:
    studies = [snapshot(each).with_runs_read() for each in opened(unverified)]
    figure = draw("confirmed", studies)
    assert [each.text for each in figure.layout.annotations] == ["nothing has been confirmed yet"]
    assert {trace.name.partition(": ")[2] for trace in figure.data} == {
        "as its searches saw configurations"
    }
    assert first_level(studies) is None
    assert "What was confirmed" not in page(compare(studies))


def test_a_confirmation_that_is_under_way_is_not_drawn(confirmed: list[StudySnapshot]) -> None:
    whole = confirmed[0]
    (last, *before) = reversed(whole.runs)
    open_again = dataclasses.replace(last, state="waiting", result=None)
    runs = (*reversed(before), open_again)
    now = dataclasses.replace(whole, read_runs=lambda: runs)
    there = present(confirmation_of(now))
    assert not there.complete
    assert len(present(there.default).runs) >= SEEDS - 1
    (series,) = confirmed_series([now])
    assert (series.default, list(series.found), series.answer) == (None, [], None)
    assert first_level([now]) is None
    assert first_level([whole]) is not None


def test_the_label_stands_at_the_search_whose_ratio_it_is(
    confirmed: list[StudySnapshot],
) -> None:
    """Another study of the same name does not take it."""
    first = confirmed[0]
    runs = tuple(dataclasses.replace(run, session="another") for run in first.runs)
    twin = dataclasses.replace(first, read_runs=lambda: runs)
    for studies in ([first, twin], [twin, first]):
        (series,) = confirmed_series(studies)
        assert len(series.found) == 2
        assert series.answer is not None
        answer = present(costs(groups_of(studies))[0].confirmation)
        place = [confirmation_of(each) for each in studies].index(answer)
        assert series.answer == place


def test_other_devices_and_other_data_are_refused(confirmed: list[StudySnapshot]) -> None:
    folder = BENCHMARKS / "runs" / "confirmed"
    files = [folder / f"{device}-original.json.gz" for device in ("h200", "h100")]
    two = [snapshot(read_archive(path)) for path in files]
    with pytest.raises(UsageError, match="on NVIDIA H100 80GB HBM3 and NVIDIA H200: their times"):
        draw("confirmed", two)
    assert "What was confirmed" not in page(compare(two))
    other = confirmed[2]
    elsewhere = dataclasses.replace(
        other.definition, data_hash="0" * len(other.definition.data_hash)
    )
    apart = dataclasses.replace(other, definition=elsewhere)
    with pytest.raises(UsageError, match="are on different data"):
        draw("confirmed", [*confirmed[:2], apart])


def test_marks_without_spread_and_times_that_are_none_have_a_frame() -> None:
    point = Interval(0.8, 0.8, 0.8, 5)
    at = VerifiedPoint(label="a", time=Interval(-1.0, -1.0, -1.0, 5), mql=point)
    series = ConfirmedSeries(
        name="a", seen=[], default=None, found=[Found(at=at, seen=(-1.0, 0.8), confirmed=False)]
    )
    figure = confirmed_figure([series])
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        low, high = axis.range
        assert low < high
    assert not figure.layout.annotations  # no arrow of no length, and something is there


def test_a_default_that_stands_is_a_star_alone(
    unverified: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.verdict.confirmation_plan.confirmation_steps", lambda *_, **__: ())
    (study,) = opened(unverified, "demo-original")
    plan_confirmation([study], seeds=SEEDS)
    verify_all([study])
    assert last(study).default_stands
    figure = draw("confirmed", [snapshot(study).with_runs_read()])
    assert [trace.name.partition(": ")[2] for trace in figure.data] == [
        "as its searches saw configurations",
        "default hyperparameters",
    ]
    assert arrows(figure) == []


def test_the_page_of_a_comparison_shows_it_where_something_is_confirmed(
    confirmed: list[StudySnapshot],
) -> None:
    text = page(compare(confirmed))
    assert text.index('aria-label="Large marks ran') < text.index("Time against error")
    assert "original: recommended, confirmed" in text
    assert "0.60 of its default" in text  # the label of what is recommended


def test_the_page_of_a_comparison_opens_from_a_mail(
    confirmed: list[StudySnapshot], tmp_path: Path, screenshots: Path
) -> None:
    text = page(compare(confirmed))
    assert len(text.encode()) < 1_000_000
    assert "<script" not in text
    assert not re.search(r"(?:src|href)=.?(?:https?:|/)", text)
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    for width, dark in ((1440, False), (390, True)):
        where = screenshots / f"frozen-{width}.png"
        address = f"file://{tmp_path}/page.html"
        found = photographed(address, where, width=width, dark=dark, wait_s=0.5)
        assert found["width"] <= width
        assert found["figures"] >= 3
        assert found["ground"] == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")


def test_without_matplotlib_the_page_says_what_pictures_need(
    confirmed: list[StudySnapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = page(compare(confirmed))
    assert "pictures need matplotlib: pip install &#39;tuner[pictures]&#39;." in text
    assert "<svg" not in text


def test_the_command_draws_exported_searches(exported: list[Path], tmp_path: Path) -> None:
    chromium()
    named = ("--study", ",".join(map(str, exported)))
    done = run("plot", "confirmed", *named, "--output", "a.svg", folder=tmp_path)
    assert done.code == 0, done.err
    assert "original: recommended, confirmed" in (tmp_path / "a.svg").read_text(encoding="utf-8")
