"""What a retune took, what it saves and what its budget bought, in plain sentences."""

from __future__ import annotations

from tuner.verdict.retune_cost import RetuneCost, Spent

MINUTE_S = 60.0
LITTLE_S = 90.0


def duration(seconds: float) -> str:
    """`42 s`, `4.1 min`, `2.3 h`."""
    if seconds < LITTLE_S:
        return f"{seconds:.2g} s"
    minutes = seconds / MINUTE_S
    return f"{minutes:.1f} min" if minutes < LITTLE_S else f"{minutes / MINUTE_S:.1f} h"


def cost_sentence(found: RetuneCost, name: str) -> str:
    """What retuning a variant, called `name`, took and saves, without a full stop."""
    took = f"The retune of {name} took {duration(found.spent.total_s)} of device time"
    if found.confirmation is None:
        return f"{took}; nothing faster than the default is confirmed"
    if found.saved_s is None:
        return f"{took}; what a training saves is not known: too many timings were disturbed"
    if found.saved_s <= 0:
        return f"{took}; what is confirmed saves no time"
    return (
        f"{took}; each training with what {found.confirmation.study} recommends saves "
        f"{duration(found.saved_s)}"
    )


def bought_sentence(spent: Spent, budget_s: float, searches: int) -> str:
    """What a budget was spent on, without a full stop."""
    return (
        f"The budget of {duration(budget_s)} bought {spent.trials} trials in {searches} "
        f"{'search' if searches == 1 else 'searches'} ({duration(spent.search_s)}) and "
        f"{spent.reevaluation_runs} runs of re-evaluation ({duration(spent.reevaluation_s)})"
    )
