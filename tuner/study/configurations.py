"""The configurations of a study's trials: several trials of one, each with its own seed, are one
point of the study.

The smallest of several draws is not what the next one will be. So time and MQL are the medians of a
configuration's trials, each for itself.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from optuna.trial import TrialState

from tuner.config import StopReason
from tuner.files import kinds
from tuner.pareto import Point
from tuner.record import MEANINGS, Recorded
from tuner.search.history import Configuration, configuration
from tuner.study.over_runs import over_runs
from tuner.study.trial_record import TrialRecord

_OF_TIME = frozenset(
    name
    for name, meaning in MEANINGS.items()
    if meaning.kind in (kinds.SECONDS, kinds.SECONDS_EACH, kinds.RATE)
) | {"contaminated", "contamination"}
"""What is of the runs alone whose timing nothing disturbed, where there are such."""
_MISSES = (StopReason.DIVERGED, StopReason.OUT_OF_MEMORY)
"""Ends without values that speak against the configuration. An error may be anything, and who was
pruned or set aside was not trained to its end."""


def configurations(records: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
    """Each configuration that has a complete trial, in the order of these.

    A configuration with one trial is that trial, unchanged. One with several has the medians of
    their values, and stands under the number of the first that converged, as in
    `tuner.verdict.known_runs`. It converged if all its trials did: who trains it next may be as
    unlucky as the one that did not, and the median of the others does not say so. A run of a
    verification that missed counts alike.
    """
    groups: dict[Configuration | int, list[TrialRecord]] = {}
    missed: dict[Configuration | int, list[TrialRecord]] = {}
    for record in records:
        # Of a trial without parameters nothing says that it repeats another.
        key = configuration(record.params) if record.params else record.number
        if record.state == TrialState.COMPLETE and record.values:
            groups.setdefault(key, []).append(record)
        elif is_miss(record.state, record.recorded):
            missed.setdefault(key, []).append(record)
    return tuple(_as_one(trials, missed.get(key, ())) for key, trials in groups.items())


def is_miss(state: TrialState, recorded: Recorded) -> bool:
    """Whether a trial, or a verification run, ended without values for a reason that is the
    configuration's own.
    """
    failed = state == TrialState.FAIL and recorded.stopped_by in _MISSES
    return failed or bool(recorded.target_missed)


def is_cut(recorded: Recorded) -> bool:
    """Whether the study's limit of epochs ended a training that else would have gone on: it has
    figures, of its best epoch until then.
    """
    return not recorded.converged and recorded.stopped_by == StopReason.EPOCH_LIMIT


def median_values(trials: Sequence[TrialRecord]) -> Point:
    """Medians of the trials' seconds and MQL. A disturbed timing counts where there is no other."""
    seconds = [trial.values[0] for trial in _timed(trials) if trial.values]
    mql = [trial.values[1] for trial in trials if trial.values]
    return float(statistics.median(seconds)), float(statistics.median(mql))


def _as_one(trials: Sequence[TrialRecord], missed: Sequence[TrialRecord]) -> TrialRecord:
    """The complete trials of one configuration, of which others `missed`."""
    if len(trials) == 1 and not missed:
        return trials[0]
    trials = sorted(trials, key=lambda trial: trial.number)
    first = next((trial for trial in trials if trial.converged), trials[0])
    ended = [trial.ended for trial in trials if trial.ended is not None]
    return dataclasses.replace(
        first,
        values=median_values(trials),
        recorded=_recorded(trials, missed),
        started=min((t.started for t in trials if t.started is not None), default=None),
        ended=max(ended, default=None),
        trials=tuple(trials),
    )


def _recorded(trials: Sequence[TrialRecord], missed: Sequence[TrialRecord]) -> Recorded:
    found = over_runs([trial.recorded for trial in trials])
    clean, times = _timed(trials), {}
    if len(clean) < len(trials):
        timed = over_runs([trial.recorded for trial in clean])
        times = {name: getattr(timed, name) for name in _OF_TIME}
    cut = next((t for t in (*trials, *missed) if not t.converged), None)
    # What is kept of each seed's training stays with its trial.
    own: dict[str, Any] = {"runs": None, "timings": None, "seeds": None}
    own["default"] = any(trial.is_default for trial in (*trials, *missed)) or None
    if cut is not None:
        own |= {"converged": False, "stopped_by": cut.recorded.stopped_by}
    return dataclasses.replace(found, **times, **own)


def _timed(trials: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    return [trial for trial in trials if not trial.recorded.contaminated] or trials
