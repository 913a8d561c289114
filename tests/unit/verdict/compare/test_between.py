"""What is said of two variants, by the times of their searches at a registered level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.report.comparison_files import _at_level
from tuner.verdict.compare.between import Standing, in_short, spread_of, standings
from tuner.verdict.compare.registered import RegisteredLevel, SearchTime
from tuner.verdict.compare.short_answer import apart

FIVE = [1.0, 1.05, 1.1, 1.15, 1.2]


def level(confirmed: bool = True, **times: Sequence[float | None]) -> RegisteredLevel:
    searches = {
        group: tuple(
            SearchTime(
                study=f"{group}-{number}",
                seconds=seconds,
                how="not reached" if seconds is None else "recommended",
                confirmed=confirmed,
            )
            for number, seconds in enumerate(found, start=1)
        )
        for group, found in times.items()
    }
    return RegisteredLevel(
        group=next(iter(times)),
        mql=0.8156,
        default_mql=0.8075,
        margin=0.01,
        runs=150,
        confirmed=confirmed,
        searches=searches,
    )


def judged(
    found: RegisteredLevel, *, devices: str = "H200", warm: Sequence[str] = ()
) -> tuple[Standing, ...]:
    groups: dict[str, list[Any]] = {
        group: [
            SimpleNamespace(
                name=f"{group}-{number}",
                results=SimpleNamespace(
                    records=[
                        SimpleNamespace(
                            recorded=SimpleNamespace(warm_start="it" if group in warm else None)
                        )
                    ]
                ),
                device_model=devices if index else "H200",
                definition=SimpleNamespace(objectives=("wall_clock_s", "test_mql")),
            )
            for number, _ in enumerate(times, start=1)
        ]
        for index, (group, times) in enumerate(found.searches.items())
    }
    return standings(groups, [found], {group: group for group in groups})


def test_five_searches_that_are_all_faster_are_claimed_with_an_interval_that_says_so() -> None:
    (found,) = judged(level(original=FIVE, rmsnorm=[0.5 * each for each in FIVE]))
    assert found.claimed
    assert found.found is not None
    assert found.found.ratio == pytest.approx(0.5, rel=0.01)
    assert found.found.high < 1
    assert found.sentence.startswith(
        "At a test MQL of 0.8156 (the default of original with its margin of 1 %) rmsnorm takes "
        "0.50 [0.4"
    )
    assert "of the time of original, by 5 and 5 searches; were both retuned again" in found.sentence
    assert in_short(found) == "0.50 x the time"


def test_searches_that_overlap_are_undecided() -> None:
    (found,) = judged(level(original=FIVE, rmsnorm=[1.02, 1.07, 1.12, 1.01, 1.3]))
    assert not found.claimed
    assert found.sentence.endswith("by 5 and 5 searches: undecided")
    assert in_short(found) == "undecided"


def test_what_is_not_reached_ranks_last_and_can_be_claimed() -> None:
    (found,) = judged(level(original=FIVE, rmsnorm=[None] * 5))
    assert found.claimed
    assert found.found is not None
    assert found.found.low > 1
    assert found.sentence == (
        "At a test MQL of 0.8156 (the default of original with its margin of 1 %) original is "
        "faster: 5 of its 5 searches reach it, and 0 of 5 of rmsnorm (exact Mann-Whitney test, p = "
        "0.0079), so no ratio of times can be given"
    )
    assert in_short(found) == "fewer searches reach it"
    (turned,) = judged(level(original=[None] * 5, rmsnorm=FIVE))
    assert "rmsnorm is faster: 5 of its 5 searches reach it, and 0 of 5" in turned.sentence
    (open_,) = judged(level(original=[1.0, None, None], rmsnorm=[None] * 3))
    assert "which 0 of 3 searches of rmsnorm reach and 1 of 3 of original" in open_.sentence
    assert found.as_dict()["ratio"] is None


def test_few_searches_or_none_confirmed_give_figures_and_the_reason() -> None:
    (one,) = judged(level(original=[1.0], rmsnorm=[0.5]))
    assert not one.claimed
    assert "rmsnorm takes 0.50 of the time of original: no claim follows" in one.sentence
    assert "(single searches are too few" in one.sentence
    assert "a standard deviation of 0.19 to 0.23 on the reference job" in one.sentence
    assert "a claim takes 5 of each" in one.sentence
    (two,) = judged(level(original=[1.0, 1.2], rmsnorm=[0.5, 0.6]))
    assert "a standard deviation of 0.13 here" in two.sentence
    (expected,) = judged(level(confirmed=False, original=FIVE, rmsnorm=[0.1] * 5))
    assert not expected.claimed
    assert "not confirmed: rmsnorm-1" in expected.sentence
    assert in_short(expected) == "none: not confirmed"
    (apart,) = judged(level(original=FIVE, rmsnorm=[0.1] * 5), devices="H100")
    assert not apart.claimed
    assert "times were measured on H100 and on H200" in apart.sentence
    (unlike,) = judged(level(original=FIVE, rmsnorm=[0.1] * 5), warm=("rmsnorm",))
    assert not unlike.claimed
    assert "began with what other studies had found, and not all: rmsnorm-1, " in unlike.sentence
    assert in_short(unlike) == "none: unlike beginnings"
    (alike,) = judged(level(original=FIVE, rmsnorm=[0.1] * 5), warm=("original", "rmsnorm"))
    assert alike.claimed


def test_each_other_variant_is_held_against_the_first_and_no_pair_more() -> None:
    found = judged(level(a=FIVE, b=[0.5] * 5, c=[2.0] * 5, d=FIVE, e=FIVE))
    assert [(each.a, each.b) for each in found] == [("b", "a"), ("c", "a"), ("d", "a"), ("e", "a")]
    assert [each.claimed for each in found] == [True, True, False, False]


def test_the_spread_is_within_variants() -> None:
    assert spread_of(level(a=[1.0], b=[5.0])) is None
    assert spread_of(level(a=[1.0, 1.0], b=[5.0, 5.0, None])) == 0.0


NONE = [None] * 5


@pytest.mark.parametrize(
    ("original", "rmsnorm", "said"),
    [
        (
            FIVE,
            [0.5 * s for s in FIVE],
            "Use rmsnorm with new settings: at the same error rmsnorm takes 0.50",
        ),
        (
            FIVE,
            [2.0 * s for s in FIVE],
            "Use original with new settings: at the same error rmsnorm takes 2.00",
        ),
        (
            FIVE,
            NONE,
            "Use original with new settings: 0 of 5 searches of",
        ),
        (
            NONE,
            FIVE,
            "Use rmsnorm with new settings: 5 of 5 searches",
        ),
        (
            FIVE,
            [*FIVE[:3], 0.9, 1.3],
            "Undecided: at the same error rmsnorm takes 0.78 to 1.24",
        ),
        (FIVE[:2], FIVE[:2], "Not known yet whether rmsnorm or original is faster at original's"),
    ],
)
def test_in_short_it_is_said_what_to_do(
    original: Sequence[float | None], rmsnorm: Sequence[float | None], said: str
) -> None:
    (found,) = judged(level(original=original, rmsnorm=rmsnorm))
    (sentence,) = apart([found])
    assert sentence.startswith(said)
    assert len(sentence.split()) <= 25


def test_what_does_not_reach_a_quality_says_how_near_it_comes() -> None:
    asked = level(original=FIVE, rmsnorm=NONE)
    promising = tuple(
        replace(each, promised=0.8246, given_up_after=after)
        for each, after in zip(asked.searches["rmsnorm"], (90, None, 31, 44, 60), strict=True)
    )
    asked = replace(asked, searches={**asked.searches, "rmsnorm": promising})
    (said,) = apart(judged(asked))
    assert said.endswith("come within 1 % of its error (nearest 0.8246, asked 0.8156)")
    assert _at_level(asked, {each: each for each in asked.searches}).endswith(
        "rmsnorm 0 of 5 searches, the best that one promises is 0.8246, "
        "4 looked no further after 31 to 90 trainings"
    )


def test_all_that_fall_short_are_named_together() -> None:
    found = judged(level(original=FIVE, rmsnorm=NONE, simple=FIVE, batchnorm=NONE))
    first, second = apart(found)
    assert first.startswith("Use original with new settings: 0 of 10 searches of rmsnorm and batch")
    assert second.startswith("Undecided: at the same error simple takes")
