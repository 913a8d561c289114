"""What several searches of a variant tell of one more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.present import present
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare import between
from tuner.verdict.compare.between import (
    AnotherSearch,
    another_search_of,
    another_search_sentences,
)
from tuner.verdict.stats.intervals import Interval


def ratio(estimate: float, wide: float = 0.01) -> Interval:
    return Interval(estimate, estimate - wide, estimate + wide, 90)


def search(
    *,
    complete: bool = True,
    found: Interval | None = None,
    claimed: bool = True,
    margin: float = 0.01,
    mql: float = 1.005,
) -> Any:
    """A study as its confirmation is: complete or not, with a test or none."""
    no_worse = SimpleNamespace(ratio=mql)
    test = SimpleNamespace(claimed=claimed, ratio=found, no_worse=no_worse) if found else None
    holds = test is not None and claimed
    frozen = SimpleNamespace(margin=margin)
    return SimpleNamespace(
        complete=complete, test=test, holds=holds, frozen=frozen, default_cut_off=0
    )


@pytest.fixture(autouse=True)
def confirmations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(between, "confirmation_of", lambda study: study)


def found_of(*searches: Any) -> tuple[AnotherSearch, ...]:
    return another_search_of({"a": cast("list[StudySnapshot]", list(searches))})


def test_whatever_is_not_confirmed_counts_as_a_search_that_was_not() -> None:
    (found,) = found_of(
        search(found=ratio(0.5)),
        search(),
        search(found=ratio(0.3), claimed=False),
        search(found=ratio(0.4), complete=False),
        None,
    )
    assert (found.searches, found.confirmed, found.without) == (5, 1, 2)
    assert another_search_sentences(found, "it")[0] == (
        "it: 1 of 5 searches is confirmed, in 0.50 of the default's time; 2 have no whole "
        "confirmation, and count as not confirmed"
    )
    assert found_of(search(), search()) == (), "two searches"
    assert found_of(search(), search(), search(margin=0.05)) == (), "of other qualities"
    timeless = search(found=ratio(0.5))
    timeless.test.ratio = None
    (found,) = found_of(timeless, *(search(found=ratio(0.4)) for _ in range(3)))
    assert (found.confirmed, len(found.ratios)) == (4, 3), "its timings were disturbed"
    assert another_search_sentences(found, "it")[0].endswith("in 0.40 of the default's time")
    assert found_of(None, None, search(complete=False)) == (), "nothing is confirmed yet"


def test_five_confirmed_searches_say_what_another_one_would_take() -> None:
    times = (0.38, 0.39, 0.42, 0.36, 0.36)
    mqls = (1.0045, 1.0061, 1.0022, 1.0067, 1.0054)
    searches = [search(found=ratio(t), mql=mql) for t, mql in zip(times, mqls, strict=True)]
    (found,) = found_of(*searches)
    assert found.chance == pytest.approx(0.549, abs=1e-3)
    expected = present(found.expected)
    assert expected.low < min(times) < expected.estimate < max(times) < expected.high
    mql = present(found.expected_mql)
    assert mql.low < min(mqls) < mql.estimate < max(mqls) < mql.high
    # 0.36 twice hold each other, 0.38 and 0.39 touch.
    assert found.held == (4, 20)
    assert another_search_sentences(found, "original") == [
        "original: 5 of 5 searches are confirmed, in 0.36 to 0.42 of the default's time",
        (
            "original: another search would be confirmed with a chance of at least 0.54 (95 % "
            "confidence), and then take 0.38 [0.33, 0.44] of the default's time, with 1.005 "
            "[1.001, 1.009] of its MQL: within these limits in about nine cases of ten each"
        ),
        (
            "original: the interval of one search's time holds what another one measured in 4 of "
            "20 cases: it is of one configuration, over seeds"
        ),
    ]
    document = found.as_dict()
    assert document["chance_at_least"] == found.chance
    assert document["time_ratio"] == expected.as_estimate()
    assert (document["mql_ratio"], document["mql_ratios"]) == (mql.as_estimate(), list(mqls))
    assert (document["intervals_that_hold_another"], document["pairs"]) == (4, 20)


def test_where_one_or_none_is_confirmed_it_is_not_said_how_fast_another_would_be() -> None:
    (none,) = found_of(search(), search(), search())
    assert another_search_sentences(none, "it") == [
        "it: 0 of 3 searches are confirmed: nothing says that another one would be"
    ]
    (one,) = found_of(search(found=ratio(0.5)), search(), search())
    assert another_search_sentences(one, "it") == [
        "it: 1 of 3 searches is confirmed, in 0.50 of the default's time",
        (
            "it: another search would be confirmed with a chance of at least 0.01 (95 % "
            "confidence); it takes 3 known times to say how fast it would be then"
        ),
    ]
    assert one.as_dict()["time_ratio"] is None
