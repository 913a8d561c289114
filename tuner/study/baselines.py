"""What a study's network has to beat: forecasts without one, on the same windows and by the same
measure; and whether it does, which is whether its training is worth anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter

from tuner.files.kinds import LARGEST_FIGURE
from tuner.files.plain import Label, Prose, Strict
from tuner.spec.objectives import axis_title

ATTRIBUTE = "tuner_baselines"
"""Of a study: what they came to once its search had ended."""
PLAIN = "last_value"
"""The one that is scored first, of any data."""
WORDS = {
    "last_value": "the last value",
    "seasonal_naive": "the value of a season ago",
    "rows_ago": "the value of {} rows ago",
    "last_lags": "a line through the last rows",
    "nlinear": "NLinear",
    "auto_ets": "AutoETS",
    "auto_theta": "AutoTheta",
    "mstl": "MSTL",
    "auto_arima": "AutoARIMA",
    "chronos": "Chronos",
}
"""Of each baseline, as a forecast, from the simplest on."""
SURE = 0.95
LEAST_RUNS = 4
"""Of windows: with fewer, nobody knows how much an error moves."""

Figure = Annotated[float, Field(ge=-LARGEST_FIGURE, le=LARGEST_FIGURE)]
Runs = Annotated[tuple[Figure, ...], Field(max_length=1000)]


class Scored(Strict):
    """What one baseline came to, or why it was not run."""

    name: Label
    test_mql: Figure | None = None
    val_mql: Figure | None = None
    test_runs: Runs = ()
    val_runs: Runs = ()
    """MQL of runs of the objective's windows (`Evaluation.test_runs`)."""
    setup_s: Figure | None = None
    fit_s: Figure | None = None
    forecast_s: Figure | None = None
    lacks: tuple[Figure, ...] = ()
    """Scored levels that it does not give: the nearest that it gives stand for them."""
    not_run: Prose = ""
    would_take_s: Figure | None = None
    """Of one that was not run for want of time."""

    @property
    def took_s(self) -> float:
        """All of it."""
        return sum(each or 0.0 for each in (self.setup_s, self.fit_s, self.forecast_s))

    def by(self, error: str) -> float | None:
        """Its MQL of one split."""
        return self.val_mql if error == "val_mql" else self.test_mql

    def runs_by(self, error: str) -> Runs:
        """The same of its runs of windows."""
        return self.val_runs if error == "val_mql" else self.test_runs

    def stored(self) -> dict[str, Any]:
        """As a study keeps it."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def told(self, error: str) -> str:
        """Its score in words, marked where levels are lacking."""
        mql = self.by(error)
        if mql is None:
            return f"{in_words(self.name)} not run: {self.not_run}"
        levels = ", ".join(f"{each:g}" for each in self.lacks)
        return f"{in_words(self.name)} {mql:.4g}" + (f" (gives no {levels})" if levels else "")


_STORED = TypeAdapter(tuple[Scored, ...])


def in_words(name: str) -> str:
    """What a baseline forecasts; a name that has no words stands for itself."""
    kind, _, number = name.rpartition("_")
    return WORDS[kind].format(number) if kind in WORDS else WORDS.get(name, name)


def read(stored: Any) -> tuple[Scored, ...]:
    """As a study keeps them, which anybody may have written; nothing of what cannot be read."""
    try:
        return _STORED.validate_json(json.dumps(stored), strict=True)
    except (TypeError, ValueError):
        return ()


# Whether a network is better than the best of them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Whether a training is worth it, in a sentence; `better` is None where that is not shown.
    `named` is the baseline that the sentence speaks of; of several, the simplest.
    """

    sentence: str
    better: bool | None
    named: str


def difference(
    ours: Sequence[float], theirs: Sequence[float], *, sure: float = SURE
) -> tuple[float, float] | None:
    """How far our error is below theirs, at least and at most, as a share of theirs: Student's
    interval of the runs' differences. None where the runs are too few, or not the same.

    >>> difference([1.0, 1.1, 0.9, 1.0], [2.0, 2.1, 1.9, 2.0])
    (0.5, 0.5)
    """
    if len(ours) != len(theirs) or len(ours) < LEAST_RUNS:
        return None
    from scipy.stats import t

    gains = np.asarray(theirs) - np.asarray(ours)
    width = t.ppf((1 + sure) / 2, len(gains) - 1) * gains.std(ddof=1) / math.sqrt(len(gains))
    level = float(np.mean(theirs))
    if not level > 0:
        return None
    return float((gains.mean() - width) / level), float((gains.mean() + width) / level)


def equals(baselines: Sequence[Scored], error: str) -> list[Scored]:
    """The best, and those that are not shown to be worse, from the simplest on; none without
    scores.
    """
    best = _best(baselines, error)
    if best is None:
        return []
    found, sure = [best], 1 - (1 - SURE) / len(baselines)  # the luckiest is better by chance
    for each in baselines:
        apart = difference(best.runs_by(error), each.runs_by(error), sure=sure)
        if apart is not None and each is not best and apart[0] <= 0:
            found.append(each)
    return sorted(found, key=lambda each: _place(each.name))


def _best(baselines: Sequence[Scored], error: str) -> Scored | None:
    there = [(mql, each) for each in baselines if (mql := each.by(error)) is not None]
    return min(there, key=lambda pair: pair[0])[1] if there else None


def _place(name: str) -> int:
    kinds = list(WORDS)
    kind = name if name in WORDS else name.rpartition("_")[0]
    return kinds.index(kind) if kind in kinds else len(kinds)


def worth(
    mql: float | None,
    runs: Sequence[float],
    baselines: Sequence[Scored],
    whose: str = "this configuration",
    *,
    error: str = "test_mql",
) -> Worth | None:
    """Whether what has this MQL, of these runs of windows, is better than every forecast without a
    network. All are of the split that `error` names. None where none was scored.
    """
    best = _best(baselines, error)
    if best is None or mql is None:
        return None

    as_good = equals(baselines, error)

    def against(one: Scored, sure: float = SURE) -> str:
        share = share_in_words(difference(runs, one.runs_by(error), sure=sure))
        return f"{mql:.4g} against {one.by(error):.4g} {axis_title(error)}{share}"

    def gain(one: Scored, sure: float = SURE) -> tuple[float, float]:
        apart = difference(runs, one.runs_by(error), sure=sure)
        return apart or (-math.inf, math.inf if mql < (one.by(error) or 0.0) else -math.inf)

    def surer(one: Scored) -> float:
        """To lose to one of several by chance is easier than to lose to the simplest of them."""
        return SURE if one is as_good[0] else 1 - (1 - SURE) / len(baselines)

    for one in as_good:
        if gain(one, surer(one))[1] < 0:
            said = f"Not worth the training: {whose} loses to a baseline, {in_words(one.name)}"
            said += f": {against(one, surer(one))}"
            if one is not as_good[0]:
                said += f"; {in_words(as_good[0].name)} is simpler, and not shown to be worse"
            return Worth(sentence=said, better=False, named=as_good[0].name)
    unbeaten = _best([each for each in baselines if gain(each)[0] <= 0], error)
    if unbeaten is None:
        said = f"Worth the training: {whose} beats every forecast without a network"
        said += f", {in_words(best.name)} too: {against(best)}"
        return Worth(sentence=said, better=True, named=best.name)
    name = in_words(unbeaten.name)
    told = against(unbeaten, surer(unbeaten))
    said = f"No difference shown: {whose} and {name}, which needs no training: {told}"
    return Worth(sentence=said, better=None, named=unbeaten.name)


SHOWN_WHOLE = 0.1
"""A share from which on a tenth of a per cent says nothing."""


def share_in_words(apart: tuple[float, float] | None) -> str:
    """A `difference`, as what follows two errors."""
    if apart is None:
        return " (too few windows say how surely)"
    low, high = (f"{abs(100 * each):.{0 if abs(each) >= SHOWN_WHOLE else 1}f}" for each in apart)
    if apart[1] < 0:
        return f" ({high} to {low} % more)"
    return f" ({low}{' % more' * (apart[0] < 0)} to {high} % less)"


def told_all(baselines: Sequence[Scored], error: str) -> list[str]:
    """All in words, the best first."""
    ordered = sorted(baselines, key=lambda each: each.by(error) or math.inf)
    return [each.told(error) for each in ordered]
