"""Would another search of the same variant say the same? What its confirmed searches tell of that.

The interval beside a confirmed time is of one configuration, over seeds. What another search would
recommend is another configuration, so that interval says nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.stats.intervals import Interval, in_json
from tuner.verdict.stats.searches import LEAST_DRAWS, chance_at_least, next_draw


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
        expected, mql = self.expected, self.expected_mql
        held, pairs = self.held
        return {
            **in_json(self, "group", "searches", "confirmed"),
            "without_confirmation": self.without,
            "time_ratios": [each.as_estimate() for each in self.ratios],
            "chance_at_least": self.chance,
            "time_ratio": expected and expected.as_estimate(),
            "mql_ratios": list(self.mqls),
            "mql_ratio": mql and mql.as_estimate(),
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
