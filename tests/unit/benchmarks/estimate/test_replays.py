"""Replays of recorded searches hold the search itself, and its twins, out."""

from __future__ import annotations

import json

import pytest

from benchmarks.estimate import replays as subject
from benchmarks.estimate.recorded import path_of, same_trials, trials_of
from benchmarks.runs.table import archive
from tests.support.paths import REPOSITORY
from tuner.study.archive import Archive

OF_SHORT = "retune/h200-14m/etth-rmsnorm-3"
OF_TWINS = tuple(f"study_overhead/whole-gpu/{name}-gpu-h200.study" for name in ("one", "two"))
SHORT, ONE, TWIN = map(path_of, (OF_SHORT, *OF_TWINS))


def recorded(*exports: str) -> dict[str, Archive]:
    """These, by the names that replays have for them."""
    return {path_of(each): archive(each) for each in exports}


@pytest.fixture(scope="module")
def replayer() -> subject.Replayer:
    with pytest.MonkeyPatch.context() as patch:
        few = recorded(OF_SHORT, *OF_TWINS)
        patch.setattr(subject, "exports", lambda: few)
        return subject.Replayer()


def test_a_search_is_foretold_without_itself_and_its_twins(replayer: subject.Replayer) -> None:
    assert replayer.twins[ONE] == {ONE, TWIN}
    assert replayer.twins[SHORT] == {SHORT}
    made = replayer.replay(SHORT, 100, 20)
    assert made is not None
    assert made.low_s < made.high_s
    assert made.ratio < 2
    assert made.truth_s == pytest.approx(sum_of(replayer, 100), rel=1e-6)


def sum_of(replayer: subject.Replayer, trials: int) -> float:
    from tuner.storage.records import device_seconds

    records = trials_of(replayer.archives[SHORT])[:trials]
    return sum(device_seconds(each.recorded) for each in records)


def test_twins_have_the_same_configurations(replayer: subject.Replayer) -> None:
    archives = replayer.archives
    assert same_trials(archives[ONE], archives[TWIN])
    assert not same_trials(archives[ONE], archives[SHORT])
    row = subject.row([each for each in [replayer.replay(SHORT, n, 0) for n in (60, 100)] if each])
    assert row["replays"] == 2
    assert 0 <= row["covered"] <= 1


def test_of_few_measured_sizes_the_range_is_wider() -> None:
    with pytest.MonkeyPatch.context() as patch:
        few = recorded(OF_SHORT)
        patch.setattr(subject, "exports", lambda: few)
        ratios = []
        for measured in (None, 3, 1):
            made = subject.Replayer(measured=measured).replay(SHORT, 100, 0)
            assert made is not None
            ratios.append(made.ratio)
    assert ratios == sorted(ratios)
    assert ratios[0] < 1.5
    assert ratios[1] > 2


def test_the_searches_beside_it_may_be_left_out() -> None:
    exports = ("retune/h200-14m/etth-rmsnorm-4", "retune/h200-14m/etth-original")
    beside, other = map(path_of, exports)
    with pytest.MonkeyPatch.context() as patch:
        few = recorded(OF_SHORT, *exports)
        patch.setattr(subject, "exports", lambda: few)
        replayer = subject.Replayer(without_its_retune=True)
    assert replayer.twins[SHORT] == {SHORT, beside}
    assert replayer.twins[other] == {other}


def test_what_the_page_says_is_what_the_replays_came_to() -> None:
    folder = REPOSITORY / "benchmarks" / "estimate"
    rows = json.loads((folder / "replays.json").read_text(encoding="utf-8"))
    page = (folder / "README.md").read_text(encoding="utf-8")
    repeating = [each for each in rows if "a sampler that repeats" in each["searches_of"]]
    assert "\n".join(map(subject.line, repeating)) in page
    assert len(repeating) == len(subject.SEEN)
    for each in repeating:
        assert 0.75 <= each["covered"] <= 0.9
        assert each["at_most_1.5"] == 1.0
