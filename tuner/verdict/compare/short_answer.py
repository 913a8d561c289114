"""What a comparison comes to, for somebody with ten seconds: what to do, how much faster, at what
price, how sure, and what it cost. Everything that shows a comparison says it in these words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.between import AnotherSearch, Standing
from tuner.verdict.compare.registered import Groups
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.retune_cost import RetuneCost, costs, duration, gain_in_words

ANSWER = "Answer"


def short_answer(
    groups: Groups,
    names: Mapping[str, str],
    between: Sequence[Standing],
    another: Sequence[AnotherSearch],
) -> tuple[str, ...]:
    """Sentences of 25 words at most: what to do, what each variant comes to, how sure that is, and
    what it cost. Of groups of searches, the reference first, and what they are called.
    """
    paid = costs(groups)
    again = {each.group: each for each in another}
    said = [apart(each) for each in between]
    said += [_own(each, groups[each.group], names[each.group]) for each in paid]
    said += [
        _sure(each, again.get(each.group), names[each.group], alone=len(paid) == 1)
        for each in paid
        if each.confirmation is not None
    ]
    spent = sum(each.spent.total_s for each in paid)
    said.append(f"Cost: {duration(spent)} of device time")
    return tuple(f"{each}." for each in said)


def apart(standing: Standing) -> str:
    """Which of two variants to take."""
    a, b, found = standing.a, standing.b, standing.found
    if found is None or standing.why_not:
        why = standing.why_briefly or "too few trials"
        return f"Not known yet whether {a} or {b} is faster at {b}'s quality: {why}"
    if not standing.claimed:
        high = "any number of" if math.isinf(found.high) else f"{found.high:.2f}"
        return (
            f"Undecided: {a} takes {found.low:.2f} to {high} times the time of {b} at its quality; "
            "more searches would tell"
        )
    (one, other), (all_one, all_other) = found.reached, found.searches
    better, kept = f"Take {a}, retuned", f"Keep {b}, retuned"
    if found.ratio in (None, 0.0, math.inf):
        if found.low > 1:
            return (
                f"{kept}: {other} of {all_other} searches reach its quality, of {a} {one} of "
                f"{all_one}{_promised(standing)}"
            )
        return f"{better}: {one} of {all_one} searches reach {b}'s quality, of {b} {other}"
    head = kept if found.low > 1 else better
    return f"{head}: {a} takes {found.ratio:.2f} times the time of {b} at its quality"


def _promised(standing: Standing) -> str:
    """What a variant that mostly does not reach the level promises at best."""
    for group, times in standing.level.searches.items():
        best = [each.promised for each in times if each.promised is not None]
        if best and group != standing.level.group and all(t.seconds is None for t in times):
            return f" (MQL {standing.level.mql:.4f}; at best {min(best):.4f})"
    return ""


def _own(paid: RetuneCost, studies: Sequence[StudySnapshot], name: str) -> str:
    """What retuning one variant gives over its default."""
    there = paid.confirmation
    if there is not None:
        return f"{name}: {gain_in_words(there)}"
    known = [each for each in map(confirmation_of, studies) if each and each.complete]
    if known:
        many = "1 search" if len(studies) == 1 else f"{len(studies)} searches"
        return f"{name}: keep its default; nothing faster is confirmed as good ({many})"
    return f"{name}: not known yet: nothing is confirmed (tuner verify --confirm does it)"


def _sure(paid: RetuneCost, again: AnotherSearch | None, name: str, *, alone: bool) -> str:
    """Whether another search would say so."""
    of = "How sure: " if alone else f"How sure: of {name} "
    said = f"{of}{paid.confirmed} of {paid.searches} searches agree"
    if paid.searches == 1:
        return f"{of}one search, confirmed on fresh seeds; another one may find something else"
    expected = None if again is None else again.expected
    if expected is None:
        return said
    low, high = 1 / expected.high, 1 / expected.low
    return f"{said}; another one would be {low:.1f} to {high:.1f} times as fast"
