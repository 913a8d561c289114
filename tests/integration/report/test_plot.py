"""`tuner plot` and what it draws of recorded studies."""

from __future__ import annotations

from pathlib import Path

import PIL.Image
import pytest

from tests.support.finished_runs import finished_run
from tests.support.forked_cli import run
from tests.support.paths import BENCHMARKS
from tests.support.recorded_studies import RecordedDatabase
from tuner.cli.replace import is_figure
from tuner.files.durable import MARK
from tuner.record import Recorded
from tuner.report.figures.draw import KINDS, draw
from tuner.report.figures.front import pareto_figure
from tuner.report.figures.save import save
from tuner.report.figures.series import front_series, learning_curves, volume_series
from tuner.study.archive import archive_of, write_archive
from tuner.study.open import OpenStudy, open_study
from tuner.study.results import read_results
from tuner.study.snapshot import snapshot
from tuner.verdict.verified import Verified

# -- one trial -------------------------------------------------------------------------------------
CAMPAIGN = BENCHMARKS / "campaign" / "etth-simple.json.gz"


@pytest.fixture(scope="module")
def studies(recorded_database: RecordedDatabase) -> list[OpenStudy]:
    from tuner.storage.database import open_database
    from tuner.storage.url import parse_url

    database = open_database(parse_url(recorded_database.url), create=False)
    return [open_study(database, name) for name in recorded_database.studies]


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_draws_one_study_and_several_and_exported_ones(
    kind: str, studies: list[OpenStudy]
) -> None:
    stored = [snapshot(each) for each in studies]
    exported = [snapshot(archive_of(each)) for each in studies]
    for some in (stored[:1], stored, exported):
        figure = draw(kind, some)
        assert figure.data
        assert not [a for a in figure.layout.annotations if a.text.startswith("no ")]


def test_the_last_hypervolume_is_the_one_that_status_shows(studies: list[OpenStudy]) -> None:
    results = read_results(studies[0])
    series = volume_series(results, "a", results.reference)
    assert series.volume[-1] == pytest.approx(results.hypervolume)
    assert list(series.volume) == sorted(series.volume)
    assert series.finished[-1] <= len(results.records)


def test_curves_in_colour_are_the_default_and_the_front_s(studies: list[OpenStudy]) -> None:
    results = read_results(studies[0])
    curves = learning_curves(results, studies[0].epochs.of_trials)
    emphasised = [curve.label for curve in curves if curve.emphasis]
    assert "default hyperparameters" in emphasised
    assert any(label.endswith("knee of the front") for label in emphasised)
    assert len(emphasised) <= 5
    assert len(curves) == len(results.records)


def test_the_default_s_star_is_where_the_default_is(studies: list[OpenStudy]) -> None:
    results = read_results(studies[0])
    series = front_series(results, "a")
    assert series.default is not None
    assert series.points[series.default] == next(r for r in results.records if r.is_default).values


def test_plot_writes_what_its_name_says_without_a_browser(
    recorded_database: RecordedDatabase, tmp_path: Path
) -> None:
    picture = tmp_path / "front.svg"
    done = run(
        "plot",
        "front",
        "--output",
        str(picture),
        "--storage",
        recorded_database.url,
        folder=tmp_path,
    )
    assert done.code == 0, done.err
    assert done.out == ""
    text = picture.read_text(encoding="utf-8")
    assert "<svg" in text
    assert "demo-original: default hyperparameters" in text
    assert is_figure(picture)


def test_pictures_are_known_as_ours_and_read_by_whoever_reads_such(tmp_path: Path) -> None:
    figure = pareto_figure([])
    for kind, begins in (("png", b"\x89PNG"), ("pdf", b"%PDF-")):
        path = save(figure, tmp_path / f"one.{kind}", width=300, height=200)
        content = path.read_bytes()
        assert content.startswith(begins)
        assert is_figure(path)
        path.write_bytes(content.replace(MARK, b"another's figure."))
        assert not is_figure(path)
    with PIL.Image.open(save(figure, tmp_path / "two.png", width=300, height=200)) as picture:
        picture.load()
        assert picture.size == (600, 400)
        assert picture.info["Software"] == MARK.decode()


def test_importances_of_several_studies_stand_beside_each_other(
    recorded_database: RecordedDatabase, tmp_path: Path
) -> None:
    done = run(
        "plot",
        "importances",
        "--output",
        "i.html",
        "--storage",
        recorded_database.url,
        folder=tmp_path,
    )
    assert done.code == 0, done.err
    text = (tmp_path / "i.html").read_text(encoding="utf-8")
    for study in recorded_database.studies:
        assert f'"name":"{study}: wall_clock_s"' in text


def test_an_exported_study_is_drawn_without_a_database(
    studies: list[OpenStudy], tmp_path: Path
) -> None:
    write_archive(archive_of(studies[0]), tmp_path / "exported.json.gz")
    done = run(
        "plot", "trade", "--study", "exported.json.gz", "--output", "trade.html", folder=tmp_path
    )
    assert done.code == 0, done.err
    assert "demo-rmsnorm: front" in (tmp_path / "trade.html").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exported.json.gz", "trade.html"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fronts", "--output", "x.svg"), "'front'"),
        (("front", "--output", "x.gif"), "end the name with one of them"),
        (("front", "--output", "x.svg", "--study", "demo-rmsnrm"), "did you mean 'demo-rmsnorm'"),
        (("front", "--output", "x.svg", "--study", "none.json"), "there is no file none.json"),
        (("front",), "--output"),
        (("front", "--output", "x.html", "--study", f"demo-rmsnorm,{CAMPAIGN}"), "different data"),
        (
            ("hypervolume", "--output", "x.html", "--study", f"demo-rmsnorm,{CAMPAIGN}"),
            "different data",
        ),
    ],
)
def test_a_wrong_plot_is_one_line_and_writes_nothing(
    arguments: tuple[str, ...],
    words: str,
    recorded_database: RecordedDatabase,
    tmp_path: Path,
) -> None:
    done = run("plot", *arguments, "--storage", recorded_database.url, folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert words in line
    assert list(tmp_path.iterdir()) == []


def test_verified_configurations_stand_on_the_front_with_their_intervals(
    studies: list[OpenStudy],
) -> None:
    runs = tuple(
        finished_run(1, seed, (3.0 + seed / 10, 1.0 + seed / 100), Recorded(converged=True))
        for seed in range(7)
    )
    enough = Verified(study="a", trial_number=1, params={}, runs=runs, planned=7)
    too_few = Verified(study="a", trial_number=2, params={}, runs=runs[:2], planned=7)
    series = front_series(read_results(studies[0]), "a", verified=[enough, too_few])
    (point,) = series.verified
    assert point.label == "trial 1, 7 seeds"
    assert series.interval == "95 % intervals of 7 seeds"
    assert point.time.estimate == pytest.approx(3.3)
    assert point.mql.estimate == pytest.approx(1.03)
    assert point.mql.low < point.mql.estimate < point.mql.high
