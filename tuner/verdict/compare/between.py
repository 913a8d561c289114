"""Variants against each other: the search is the unit.

What a search finds is luck, too, which no number of seeds averages away. So a claim is about the
searches' times at one registered level, the reference's; what is not confirmed, or rests on too few
searches, is a figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.files.plain import in_json
from tuner.settings import in_percent
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.registered import Groups, RegisteredLevel, SearchTime
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.stats.intervals import Interval, finite
from tuner.verdict.stats.searches import (
    LEAST_DRAWS,
    NOT_REACHED,
    Between,
    chance_at_least,
    compare_with_reference,
    least_searches,
    next_draw,
)

KNOWN_SPREAD = (0.19, 0.23)
"""Standard deviation of the logarithm of the time at one quality over searches of one variant, of
simulated searches of the reference job."""


AGAIN = (
    "were both retuned again, the ratio would lie within these limits in about nine cases of ten"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One variant against the reference at the reference's level."""

    a: str
    b: str
    """What the two are called."""
    level: RegisteredLevel
    found: Between | None
    """None where the time of a search is not known."""
    claimed: bool
    sentence: str
    why_not: str
    """Why no claim can follow; empty where one could."""
    why_briefly: str = ""

    def as_dict(self) -> dict[str, Any]:
        found = self.found
        return {
            **in_json(self, "a", "b", "sentence", "claimed", test_mql_at_most="level.mql"),
            "no_claim_because": self.why_not or None,
            **in_json(found, "searches", "reached", "p", "level"),
            "ratio": found and finite(found.ratio),
            "low": found and finite(found.low),
            "high": found and finite(found.high),
        }


def standings(
    groups: Groups, levels: Sequence[RegisteredLevel], names: Mapping[str, str]
) -> tuple[Standing, ...]:
    """Each other group against the first one, which is the reference: the registered comparisons.

    Empty where the reference has no level yet, or there is no other group. `names` are what the
    groups are called.
    """
    reference, *others = groups
    level = next((each for each in levels if each.group == reference), None)
    if level is None or not others:
        return ()
    times = {name: _times(level.searches[name]) for name in groups}
    known = {name: found for name, found in times.items() if found is not None}
    compared: dict[str, Between] = {}
    if reference in known:
        compared = {each.a: each for each in compare_with_reference(reference, known)}
    spread = spread_of(level)
    return tuple(
        _standing(name, reference, level, compared.get(name), groups, names, spread)
        for name in others
    )


def spread_of(level: RegisteredLevel) -> float | None:
    """The standard deviation of log time within variants, over searches that reach the level; None
    where no variant has two.
    """
    squares, free = 0.0, 0
    for times in level.searches.values():
        logs = np.log([each.seconds for each in times if each.seconds is not None])
        if len(logs) > 1:
            squares += float(((logs - logs.mean()) ** 2).sum())
            free += len(logs) - 1
    return math.sqrt(squares / free) if free else None


def in_short(standing: Standing) -> str:
    """The same for a table's cell."""
    found = standing.found
    if found is None or standing.why_not:
        return f"none: {standing.why_briefly}"
    if not standing.claimed:
        return "undecided"
    if found.ratio in (None, 0.0, math.inf):
        return "fewer searches reach it" if found.low > 1 else "more searches reach it"
    return f"{found.ratio:.2f} x the time"


def _times(searches: Sequence[SearchTime]) -> list[float] | None:
    if any(each.how == "unknown" for each in searches):
        return None
    return [NOT_REACHED if each.seconds is None else each.seconds for each in searches]


def _standing(
    name: str,
    reference: str,
    level: RegisteredLevel,
    found: Between | None,
    groups: Groups,
    names: Mapping[str, str],
    spread: float | None,
) -> Standing:
    a, b = names[name], names[reference]
    both = [*groups[reference], *groups[name]]
    why, briefly = _why_not(level, [*level.searches[name], *level.searches[reference]], both)
    if not why and found is not None and not found.possible:
        why, briefly = _too_few(found, len(groups) - 1, spread), "too few searches"
    claimed = found is not None and found.claimed and not why
    return Standing(
        a=a,
        b=b,
        level=level,
        found=found,
        claimed=claimed,
        sentence=_sentence(a, b, level, found, why),
        why_not=why,
        why_briefly=briefly,
    )


def _why_not(
    level: RegisteredLevel, times: Sequence[SearchTime], studies: Sequence[StudySnapshot]
) -> tuple[str, str]:
    """Why no claim can follow, whatever the times are, in a sentence and in a few words; nothing
    where one can.
    """
    devices = {study.device_model for study in studies}
    clocks = {study.definition.objectives[0] for study in studies}
    if len(devices) > 1:
        on = " and on ".join(sorted(map(str, devices)))
        return f"times were measured on {on}", "other devices"
    if len(clocks) > 1:
        return f"times are {' and '.join(sorted(clocks))}", "other clocks"
    warm = [
        each.name
        for each in studies
        if any(r.recorded.warm_start is not None for r in each.results.records)
    ]
    if 0 < len(warm) < len(studies):
        return (
            f"searches began with what other studies had found, and not all: {', '.join(warm)}",
            "unlike beginnings",
        )
    open_ = [each.study for each in times if not each.confirmed]
    if open_ or not level.confirmed:
        what = ", ".join(open_) or "the level"
        return f"not confirmed: {what}; tuner verify --confirm does it", "not confirmed"
    return "", ""


def _too_few(found: Between, comparisons: int, spread: float | None) -> str:
    low, high = KNOWN_SPREAD
    differ = (
        f"a standard deviation of {low:g} to {high:g} on the reference job"
        if spread is None
        else f"a standard deviation of {spread:.2f} here"
    )
    return (
        f"{_searches(found)} are too few: searches of one variant differ in log time by {differ}, "
        f"and a claim takes {least_searches(comparisons)} of each"
    )


def _sentence(a: str, b: str, level: RegisteredLevel, found: Between | None, why: str) -> str:
    """What may be said, without a full stop."""
    margin = in_percent(level.margin).replace("%", " %")
    where = " on the last block of the test split" if level.last_block else ""
    mql = f"At a test MQL of {level.mql:.4f}{where}"
    at = f"{mql} (the default of {b}{level.cut_in_words} with its margin of {margin})"
    if found is None:
        return f"{at} the time of {a} is not known: no claim follows ({why or 'too few trials'})"
    if found.claimed and not why and found.ratio in (0.0, math.inf):
        return f"{at} {_mostly_out_of_reach(a, b, found)}"
    limits = "" if why else _limits(found)
    if found.reached != found.searches:
        (one, other), (all_one, all_other) = found.reached, found.searches
        at += f", which {one} of {all_one} searches of {a} reach and {other} of {all_other} of {b},"
    if found.ratio in (None, 0.0, math.inf):
        said = f"{at} no ratio of times can be given{limits and f', but for its limits{limits}'}"
    else:
        said = f"{at} {a} takes {found.ratio:.2f}{limits} of the time of {b}"
    if why:
        return f"{said}: no claim follows ({why})"
    said += f", by {_searches(found)}"
    return f"{said}; {AGAIN}" if found.claimed else f"{said}: undecided"


def _mostly_out_of_reach(a: str, b: str, found: Between) -> str:
    """What is claimed where searches of one of them mostly do not reach the level."""
    (one, other), (all_one, all_other) = found.reached, found.searches
    of_a, of_b = (a, one, all_one), (b, other, all_other)
    (faster, reach, all_), (slower, few, of_all) = (of_b, of_a) if found.low > 1 else (of_a, of_b)
    return (
        f"{faster} is faster: {reach} of its {all_} searches reach it, and {few} of {of_all} of "
        f"{slower} (exact Mann-Whitney test, p = {found.p:.2g}), so no ratio of times can be given"
    )


def _limits(found: Between) -> str:
    low = f"{found.low:.2f}"
    high = "no limit" if math.isinf(found.high) else f"{found.high:.2f}"
    return f" [{low}, {high}]"


def _searches(found: Between) -> str:
    one, other = found.searches
    return f"{one} and {other} searches" if one + other > 2 else "single searches"  # noqa: PLR2004


# Would another search of the same variant say the same? What its confirmed searches tell of that.


@dataclass(frozen=True, slots=True, kw_only=True)
class AnotherSearch:
    """What one more search of a group, as long as these, would come to."""

    group: str
    searches: int
    """All of the group: one that had nothing to confirm has failed, too."""
    without: int
    """Of these without a complete confirmation: not yet, or with nothing to confirm."""
    confirmed: int
    ratios: tuple[Interval, ...]
    """Times over the default's, of the searches that are confirmed, each over its seeds; of fewer
    where timings were disturbed."""
    mqls: tuple[float, ...]
    """Mean test MQLs over the default's, of all that are confirmed."""
    cut_off: bool = False
    """The limit of epochs cuts off runs of that default."""

    @property
    def chance(self) -> float:
        """That another one is confirmed, at least, with 95 % confidence."""
        return chance_at_least(self.confirmed, self.searches)

    @property
    def expected(self) -> Interval | None:
        """The time over the default's of another one that is confirmed, and where it lies nine
        times out of ten; None where too few are.
        """
        return next_draw([each.estimate for each in self.ratios])

    @property
    def expected_mql(self) -> Interval | None:
        """The same of its MQL: how much of the margin another one would spend."""
        return next_draw(self.mqls)

    @property
    def held(self) -> tuple[int, int]:
        """How many times the interval of one search holds the ratio of another, and of how many."""
        count = 0
        for one in self.ratios:
            count += sum(one.covers(other.estimate) for other in self.ratios if other is not one)
        return count, len(self.ratios) * (len(self.ratios) - 1)

    def as_dict(self) -> dict[str, Any]:
        held, pairs = self.held
        return {
            **in_json(self, "group", "searches", "confirmed", without_confirmation="without"),
            **in_json(self, time_ratios="ratios", chance_at_least="chance", time_ratio="expected"),
            **in_json(self, mql_ratios="mqls", mql_ratio="expected_mql"),
            "intervals_that_hold_another": held,
            "pairs": pairs,
        }


def another_search_of(groups: Mapping[str, Sequence[StudySnapshot]]) -> tuple[AnotherSearch, ...]:
    """Of each group of enough searches of which one has a whole confirmation, all by one margin."""
    found = []
    for group, studies in groups.items():
        there = [each for each in map(confirmation_of, studies) if each and each.complete]
        margins = {each.frozen.margin for each in there}
        if len(margins) != 1 or len(studies) < LEAST_DRAWS:
            continue
        tests = [each.test for each in there if each.test is not None and each.holds]
        ratios = tuple(test.ratio for test in tests if test.ratio is not None)
        found.append(
            AnotherSearch(
                group=group,
                searches=len(studies),
                without=len(studies) - len(there),
                confirmed=len(tests),
                ratios=ratios,
                mqls=tuple(test.no_worse.ratio for test in tests if test.no_worse is not None),
                cut_off=any(each.default_cut_off for each in there),
            )
        )
    return tuple(found)


def another_search_sentences(found: AnotherSearch, name: str) -> list[str]:
    """What it comes to, of a variant called `name`, without full stops."""
    many = found.confirmed
    first = f"{name}: {many} of {found.searches} searches {'is' if many == 1 else 'are'} confirmed"
    lacks = ""
    if found.without:
        has, count = ("has", "counts") if found.without == 1 else ("have", "count")
        lacks = f"; {found.without} {has} no whole confirmation, and {count} as not confirmed"
    time = "the default's time" + (" to its limit" if found.cut_off else "")
    if not many:
        return [f"{first}: nothing says that another one would be{lacks}"]
    if found.ratios:
        first += f", in {_from_to([each.estimate for each in found.ratios])} of {time}"
    # Rounded down: at least so much.
    chance = f"a chance of at least {math.floor(found.chance * 100) / 100:.2f} (95 % confidence)"
    next_one = f"{name}: another search would be confirmed with {chance}"
    expected = found.expected
    if expected is None:
        few = f"it takes {LEAST_DRAWS} known times to say how fast it would be then"
        return [first + lacks, f"{next_one}; {few}"]
    next_one += f", and then take {expected:.2f} of {time}"
    if (mql := found.expected_mql) is not None:
        next_one += f", with {mql:.3f} of its MQL"
    next_one += ": within these limits in about nine cases of ten" + (" each" if mql else "")
    held, pairs = found.held
    of_one = (
        f"{name}: the interval of one search's time holds what another one measured in {held} of "
        f"{pairs} cases: it is of one configuration, over seeds"
    )
    return [first + lacks, next_one, of_one]


def _from_to(ratios: Sequence[float]) -> str:
    low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    return low if low == high else f"{low} to {high}"
