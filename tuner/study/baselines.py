"""What a study's network has to beat: forecasts without one, on the same windows and by the same
measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tuner.record import Recorded
from tuner.spec.objectives import axis_title
from tuner.study.results import TrialRecord

WORDS = {"last_value": "the last value", "seasonal_naive": "the value of a season ago"}
"""Of each baseline, as a forecast; a name that is not here stands for itself."""


def baselines_of(records: Iterable[TrialRecord], objective: str) -> dict[str, float]:
    """MQL of the baselines by name, the lowest first, on the split of a study's `objective`; empty
    where no default configuration recorded them.
    """
    for record in records:
        found = _in(record.recorded, objective)
        if found:
            return found
    return {}


def _in(recorded: Recorded, objective: str) -> dict[str, float]:
    scores: Mapping[str, float | None] = recorded.baseline_test_mql
    if objective == "val_mql":
        scores = recorded.baseline_val_mql
    known = {name: mql for name, mql in scores.items() if mql is not None}
    return dict(sorted(known.items(), key=lambda pair: pair[1]))


def in_words(name: str) -> str:
    """What a baseline forecasts."""
    return WORDS.get(name, name)


def loses(
    mql: float,
    baselines: Mapping[str, float],
    whose: str = "this configuration",
    *,
    error: str = "test_mql",
) -> str:
    """That what has this MQL is no better than a baseline, in a sentence; empty where it beats all
    of them. All are of the split that `error` names.
    """
    if not baselines:
        return ""
    name, best = min(baselines.items(), key=lambda pair: pair[1])
    if mql < best:
        return ""
    return (
        f"{whose[:1].upper()}{whose[1:]} loses to a baseline: {in_words(name)}, with the errors "
        f"that it had on the training windows, comes to {best:.4g}, {whose} to {mql:.4g} "
        f"({axis_title(error)}); forecast with the baseline, or give the network what it lacks"
    )
