"""When a search stops by itself: never before something better than the default is known."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from tests.support.paths import REPOSITORY
from tuner.spec.policy import SearchPolicy
from tuner.storage.records import LittleLeft
from tuner.study.archive import read_archive
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.same_quality import Answer, answer_of
from tuner.verdict.until import LEAST_TRIALS, little_left, next_look


@pytest.fixture(scope="module")
def study() -> StudySnapshot:
    return snapshot(read_archive(REPOSITORY / "benchmarks" / "campaign" / "etth-rmsnorm.json.gz"))


@pytest.fixture(scope="module")
def answer(study: StudySnapshot) -> Answer:
    found = answer_of(study)
    assert not isinstance(found, str)
    return found


def asked(study: StudySnapshot, until: float | None) -> StudySnapshot:
    return dataclasses.replace(study, policy=SearchPolicy(until=until))


def test_a_search_is_looked_at_after_ten_trials_more_or_a_tenth_of_them() -> None:
    looks = [0]
    while looks[-1] < 3 * LEAST_TRIALS:
        looks.append(next_look(looks[-1]))
    assert looks[1:4] == [LEAST_TRIALS, 220, 242]
    assert next_look(LEAST_TRIALS - 1) == LEAST_TRIALS
    assert all(b - a == max(10, -(-a // 10)) for a, b in itertools.pairwise(looks[1:]))


def test_it_stops_where_at_most_as_much_is_left_as_was_asked_for(
    study: StudySnapshot, answer: Answer
) -> None:
    assert answer.left is not None
    left = answer.left.at_most
    assert 0 < left < 1
    assert little_left(asked(study, left)) == LittleLeft(
        until=left, at_most=left, trials=study.finished
    )
    assert little_left(asked(study, left * (1 - 1e-9))) is None
    assert little_left(asked(study, None)) is None


def test_it_never_stops_while_the_default_stands(
    study: StudySnapshot, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer.default is not None
    standing = dataclasses.replace(answer, chosen=answer.default)
    monkeypatch.setattr("tuner.verdict.until.answer_of", lambda _: answer)
    assert little_left(asked(study, 0.99)) is not None
    monkeypatch.setattr("tuner.verdict.until.answer_of", lambda _: standing)
    assert little_left(asked(study, 0.99)) is None


def test_it_never_stops_while_the_limit_cuts_off_the_default(
    study: StudySnapshot, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = dataclasses.replace(answer, cut_at=60)
    monkeypatch.setattr("tuner.verdict.until.answer_of", lambda _: cut)
    assert little_left(asked(study, 0.99)) is None


def test_it_never_stops_where_nothing_can_be_said_yet(
    study: StudySnapshot, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.verdict.until.answer_of", lambda _: "too few configurations")
    assert little_left(asked(study, 0.99)) is None
    monkeypatch.setattr("tuner.verdict.until.answer_of", lambda _: answer)
    assert little_left(asked(study, 0.99)) is not None


def test_it_never_stops_before_it_has_tried_enough(
    study: StudySnapshot, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.verdict.until.answer_of", lambda _: answer)
    for trials, stops in ((LEAST_TRIALS - 1, False), (LEAST_TRIALS, True)):
        first = [r for r in study.results.records if r.number < trials]
        results = dataclasses.replace(study.results, records=tuple(first))
        shorter = dataclasses.replace(asked(study, 0.99), results=results)
        assert shorter.finished == trials
        assert (little_left(shorter) is not None) == stops
