"""What a retune cost, what its budget bought and when it pays, in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.verdict.payback import Payback, Spent

MINUTE_S = 60.0
LITTLE_S = 90.0


def duration(seconds: float) -> str:
    """`42 s`, `4.1 min`, `2.3 h`."""
    if seconds < LITTLE_S:
        return f"{seconds:.2g} s"
    minutes = seconds / MINUTE_S
    return f"{minutes:.1f} min" if minutes < LITTLE_S else f"{minutes / MINUTE_S:.1f} h"


def payback_sentence(found: Payback, name: str) -> str:
    """Whether and when retuning a variant, called `name`, has paid, without a full stop."""
    spent = found.spent
    parts = [
        ("search", spent.search_s),
        ("re-evaluation", spent.reevaluation_s),
        ("confirmation", spent.confirmation_s),
    ]
    of = ", ".join(f"{what} {duration(seconds)}" for what, seconds in parts)
    cost = f"Retuning {name} cost {duration(spent.total_s)} of device time ({of})"
    trainings = found.trainings
    if trainings is None:
        if found.confirmation is None:
            why = "nothing faster than the default is confirmed"
        elif found.saved_s is None:
            why = "for too many timings of its confirmation were disturbed"
            return f"{cost}: when it pays is not known, {why}"
        else:
            why = "what is confirmed saves no time"
        return f"{cost}: it does not pay, {why}"
    estimate, low, high = trainings
    limits = f"[{low:,}, {'no limit' if math.isinf(high) else f'{int(high):,}'}]"
    said = f"{cost}: it pays after {estimate:,} {limits} trainings"
    if found.confirmation is not None and found.confirmation.default_cut_off:
        said += ", beside a default that its limit cuts off,"
    if found.searches > 1:
        assert found.confirmation is not None, "it pays"
        said += (
            f" with what {found.confirmation.study} recommends, the middle one of "
            f"{found.confirmed} confirmed of {found.searches} searches"
        )
    return said


def bought_sentence(spent: Spent, budget_s: float, searches: int) -> str:
    """What a budget was spent on, without a full stop."""
    return (
        f"The budget of {duration(budget_s)} bought {spent.trials} trials in {searches} "
        f"{'search' if searches == 1 else 'searches'} ({duration(spent.search_s)}) and "
        f"{spent.reevaluation_runs} runs of re-evaluation ({duration(spent.reevaluation_s)})"
    )


def retuned_lines(found: Sequence[Payback], names: Mapping[str, str]) -> list[str]:
    """A sentence for each variant; `names` are what the groups are called."""
    return [f"{payback_sentence(each, names[each.group])}." for each in found]
