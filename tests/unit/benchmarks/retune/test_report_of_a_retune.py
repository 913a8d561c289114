"""The reports of committed retunes are what their command makes of the committed studies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.retune import report
from benchmarks.shared.marked_sections import replaced
from tests.support.paths import REPOSITORY
from tuner.verdict.compare.findings import compare

RETUNES = REPOSITORY / "benchmarks" / "retune"


@pytest.mark.parametrize(
    ("folder", "searches", "marker"),
    [("h200-14m", 10, report.ANSWER), ("campaign", 5, report.ALONE)],
)
def test_a_committed_report_and_the_readme_follow_from_the_studies(
    folder: str, searches: int, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path: Path = RETUNES / folder
    studies = report.read(path)
    found = compare(studies)  # once: it takes seconds
    monkeypatch.setattr(report, "compare", lambda given: found if given is studies else None)
    assert len(studies) == searches

    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert "\n".join(report.line(each) for each in studies) in text
    assert text.endswith("\n".join(report.sentences(studies)) + "\n")
    document = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert [each["study"] for each in document["searches"]] == [each.name for each in studies]

    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    emptied = replaced(readme, marker, [])
    assert len(emptied) < len(readme)
    for before in (readme, emptied):
        assert report.with_answer(before, studies) == readme
