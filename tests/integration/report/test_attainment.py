"""The figure of what whole searches attain, drawn of groups and of single searches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import chromium
from tests.support.forked_cli import run
from tests.support.recorded_studies import record_group
from tuner.report.figures.draw import draw
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, write_archive
from tuner.study.group import open_group
from tuner.study.snapshot import StudySnapshot, snapshot


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three searches of each of two variants, 14 trials each, and two of a third variant."""
    found = f"sqlite:///{tmp_path_factory.mktemp('attainment')}/tuner.db"
    for variant, searches in (("rmsnorm", 3), ("original", 3), ("simple", 2)):
        record_group(found, variant=variant, searches=searches, trials=14)
    return found


@pytest.fixture(scope="module")
def groups(url: str) -> dict[str, list[StudySnapshot]]:
    database = open_database(parse_url(url), create=False)
    return {
        name: [snapshot(each) for each in open_group(database, f"demo-{name}").members]
        for name in ("rmsnorm", "original", "simple")
    }


def named(figure: Any) -> list[str]:
    return [trace.name for trace in figure.data if trace.showlegend is not False]


def words(figure: Any) -> str:
    return " ".join(note.text for note in figure.layout.annotations)


def test_one_group_has_its_median_in_the_band_from_its_best_to_its_worst(
    groups: dict[str, list[StudySnapshot]],
) -> None:
    figure = draw("attainment", groups["rmsnorm"], title="the title")
    assert figure.layout.title.text == "the title"
    assert named(figure) == [
        "demo-rmsnorm: from some search to every search",
        "demo-rmsnorm: attained by 2 of 3 searches",
    ]
    by_name = {trace.name: trace for trace in figure.data}
    assert set(by_name) == {
        *named(figure),
        *(f"demo-rmsnorm: attained by {k} of 3 searches" for k in (1, 3)),
    }
    best, worst = (by_name[f"demo-rmsnorm: attained by {k} of 3 searches"] for k in (1, 3))
    assert (min(best.x), min(best.y)) <= (min(worst.x), min(worst.y))
    assert figure.layout.yaxis.title.text == "test MQL"
    assert words(figure) == ""


def test_two_groups_have_a_second_panel_that_three_have_not(
    groups: dict[str, list[StudySnapshot]],
) -> None:
    two = draw("attainment", [*groups["rmsnorm"], *groups["original"]])
    assert [trace.xaxis for trace in two.data].count("x2") >= 3
    assert any(
        name.startswith("demo-rmsnorm: attained by more of its searches (up to ")
        for name in named(two)
    )
    assert "where searches of one attain more often" in words(two)
    colours = [
        trace.line.color for trace in two.data if trace.showlegend is not False and trace.line.color
    ]
    assert len(set(colours)) == 2
    three = draw("attainment", [each for some in groups.values() for each in some])
    assert "x2" not in [trace.xaxis for trace in three.data]
    assert named(three)[-1] == "band: from some search to every search"


def test_one_search_of_each_shows_its_front_and_says_that_it_is_one_draw(
    groups: dict[str, list[StudySnapshot]],
) -> None:
    figure = draw("attainment", [groups["rmsnorm"][1], groups["original"][0]])
    assert named(figure) == [
        "demo-rmsnorm-2: front of one search",
        "demo-original: front of one search",
    ]
    assert words(figure).startswith("One search is one draw: another search of the same variant")
    assert "x2" not in [trace.xaxis for trace in figure.data]


def test_exported_searches_are_drawn_without_a_database(
    groups: dict[str, list[StudySnapshot]], url: str, tmp_path: Path
) -> None:
    database = open_database(parse_url(url), create=False)
    files = []
    for each in open_group(database, "demo-simple").members:
        files.append(f"{each.name}.json.gz")
        write_archive(archive_of(each), tmp_path / files[-1])
    arguments = ("plot", "attainment", "--study", ",".join(files), "--output", "found.html")
    done = run(*arguments, folder=tmp_path)
    assert done.code == 0, done.err
    text = (tmp_path / "found.html").read_text(encoding="utf-8")
    assert "demo-simple: attained by 1 of 2 searches" in text


def test_the_command_takes_groups_and_refuses_other_data_in_one_line(
    url: str, tmp_path: Path
) -> None:
    chromium()
    groups = ("--study", "group:demo-rmsnorm,group:demo-original", "--storage", url)
    done = run("plot", "attainment", *groups, "--output", "found.svg", folder=tmp_path)
    assert done.code == 0, done.err
    assert re.search(
        "demo-original: attained by 2 of 3", (tmp_path / "found.svg").read_text(encoding="utf-8")
    )
    campaign = Path(__file__).parents[3] / "benchmarks" / "campaign" / "etth-simple.json.gz"
    both = ("--study", f"demo-simple,{campaign}", "--storage", url)
    refused = run("plot", "attainment", *both, "--output", "no.svg", folder=tmp_path)
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "are on different data" in refused.err
    assert not (tmp_path / "no.svg").exists()
