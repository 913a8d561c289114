"""Would another search of the same variant say the same? What its confirmed searches tell of that.

The interval beside a confirmed time is of one configuration, over seeds. What another search would
recommend is another configuration, so that interval says nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.stats.intervals import Interval
from tuner.verdict.stats.next_search import LEAST_DRAWS, chance_at_least, next_draw


@dataclass(frozen=True, slots=True, kw_only=True)
class AnotherSearch:
    """What one more search of a group, as long as these, would come to."""

    group: str
    searches: int
    """All of the group: one that had nothing to confirm has failed, too."""
    without: int
    """Of these without a complete confirmation: not yet, or with nothing to confirm."""
    ratios: tuple[Interval, ...]
    """Times over the default's, of the searches that are confirmed, each over its seeds."""

    @property
    def confirmed(self) -> int:
        return len(self.ratios)

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
    def held(self) -> tuple[int, int]:
        """How many times the interval of one search holds the ratio of another, and of how many."""
        count = 0
        for one in self.ratios:
            count += sum(one.covers(other.estimate) for other in self.ratios if other is not one)
        return count, self.confirmed * (self.confirmed - 1)

    def as_dict(self) -> dict[str, Any]:
        expected = self.expected
        held, pairs = self.held
        return {
            "group": self.group,
            "searches": self.searches,
            "confirmed": self.confirmed,
            "without_confirmation": self.without,
            "time_ratios": [each.as_estimate() for each in self.ratios],
            "chance_at_least": self.chance,
            "time_ratio": expected and expected.as_estimate(),
            "intervals_that_hold_another": held,
            "pairs": pairs,
        }


def another_search_of(
    groups: Mapping[str, Sequence[StudySnapshot]],
) -> tuple[AnotherSearch, ...]:
    """Of each group of enough searches that a confirmation was made of."""
    found = []
    for group, studies in groups.items():
        there = [each for each in map(confirmation_of, studies) if each and each.complete]
        tests = [each.test for each in there if each.test is not None and each.test.claimed]
        ratios = tuple(test.ratio for test in tests if test.ratio is not None)
        if there and len(studies) >= LEAST_DRAWS:
            without = len(studies) - len(there)
            found.append(
                AnotherSearch(group=group, searches=len(studies), without=without, ratios=ratios)
            )
    return tuple(found)


def another_search_sentences(found: AnotherSearch, name: str) -> list[str]:
    """What it comes to, of a variant called `name`, without full stops."""
    many = found.confirmed
    first = f"{name}: {many} of {found.searches} searches {'is' if many == 1 else 'are'} confirmed"
    lacks = ""
    if found.without:
        has = "has" if found.without == 1 else "have"
        lacks = f"; {found.without} {has} no confirmation, and count as not confirmed"
    if not many:
        return [f"{first}: nothing says that another one would be{lacks}"]
    ratios = sorted(each.estimate for each in found.ratios)
    times = f"{ratios[0]:.2f}" if many == 1 else f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    first += f", in {times} of the default's time{lacks}"
    chance = f"a chance of at least {found.chance:.2f} (95 % confidence)"
    next_one = f"{name}: another search would be confirmed with {chance}"
    expected = found.expected
    if expected is None:
        few = f"{many} {'is' if many == 1 else 'are'} too few to say how fast it would be then"
        return [first, f"{next_one}; {few}"]
    next_one += (
        f", and then take {expected.estimate:.2f} [{expected.low:.2f}, {expected.high:.2f}] of the "
        "default's time: within these limits in about nine cases of ten"
    )
    held, pairs = found.held
    limits = (
        f"{name}: the interval of one search's time holds the time of another in {held} of {pairs} "
        "cases: it is of one configuration, over seeds"
    )
    return [first, next_one, limits]
