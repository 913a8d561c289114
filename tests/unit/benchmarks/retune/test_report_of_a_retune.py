"""The report of the committed retune is what its command makes of the committed studies."""

from __future__ import annotations

import json

import pytest

from benchmarks.retune import report
from tests.support.paths import REPOSITORY
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.findings import compare

FOLDER = REPOSITORY / "benchmarks" / "retune" / "h200-14m"


@pytest.fixture(scope="module")
def studies() -> list[StudySnapshot]:
    return report.read(FOLDER)


def test_the_committed_sentences_and_table_follow_from_the_studies(
    studies: list[StudySnapshot],
) -> None:
    text = FOLDER.with_suffix(".md").read_text(encoding="utf-8")
    table = "\n".join(report.line(each) for each in studies)
    assert table in text
    assert text.endswith("\n".join(report.sentences(studies)) + "\n")
    document = json.loads(FOLDER.with_suffix(".json").read_text(encoding="utf-8"))
    assert [each["study"] for each in document["searches"]] == [each.name for each in studies]
    assert len(studies) == 10


def test_the_readme_has_the_same_answer(
    studies: list[StudySnapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = compare(studies)  # once: it takes seconds
    monkeypatch.setattr(report, "compare", lambda given: found if given is studies else None)
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert report.with_answer(text, studies) == text
    emptied = report.ANSWER.sub(r"\1\2", text)
    assert len(emptied) < len(text)
    assert report.with_answer(emptied, studies) == text
