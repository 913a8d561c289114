"""What retuning took, and what a training saves with what it found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.files.plain import in_json
from tuner.record import Recorded
from tuner.storage.queue.verifications import VerificationRun, is_confirmation
from tuner.storage.records import device_seconds
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import Confirmation, confirmation_of, confirmed_studies
from tuner.verdict.known_runs import candidates_of
from tuner.verdict.recommendation import model_of, recommend
from tuner.verdict.round_allowances import run_seconds
from tuner.verdict.stats.intervals import Interval
from tuner.verdict.stats.noninferiority import paired_ratio
from tuner.verdict.verified import Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Seconds on devices, and what they were for."""

    search_s: float
    reevaluation_s: float
    confirmation_s: float
    trials: int
    reevaluation_runs: int
    confirmation_runs: int

    @property
    def total_s(self) -> float:
        return self.search_s + self.reevaluation_s + self.confirmation_s

    def as_dict(self) -> dict[str, Any]:
        return {
            "search": {"trials": self.trials, "device_s": self.search_s},
            "reevaluation": {"runs": self.reevaluation_runs, "device_s": self.reevaluation_s},
            "confirmation": {"runs": self.confirmation_runs, "device_s": self.confirmation_s},
            "device_s": self.total_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneCost:
    """Of one variant: what its searches and all their runs cost, and what a training saves with
    what is recommended.

    Of several searches it is the middle one of those that were confirmed, by their times; of an
    even number the slower one of the two.
    """

    group: str
    spent: Spent
    confirmation: Confirmation | None
    """Of that search; None where none was confirmed."""
    confirmed: int
    """How many of the searches were."""
    searches: int

    @property
    def saved_s(self) -> float | None:
        """Seconds that a training saves; None where nothing is confirmed, or too few of its timings
        are undisturbed.
        """
        there = self.confirmation
        if there is None or there.default is None or there.default.seconds is None:
            return None
        assert there.test is not None, "it is confirmed"
        if there.test.ratio is None:
            return None
        return there.default.seconds.estimate * (1 - there.test.ratio.estimate)

    def as_dict(self) -> dict[str, Any]:
        plain = in_json(self, "group", "spent", "searches", "confirmed", "saved_s")
        return plain | in_json(self.confirmation, "study", "trial")


def spent_on(studies: Sequence[StudySnapshot], others: Sequence[StudySnapshot] = ()) -> Spent:
    """What all trials and all verification runs of these studies took that have ended; and the runs
    of `others`, as of a reference's default, that were made for these.
    """
    trials = [r.recorded for each in studies for r in each.results.records if r.state.is_finished()]
    again = [run for each in studies for run in _finished(each) if not is_confirmation(run.plan)]
    own = {each.name for each in studies}
    confirming = [
        run
        for each in {each.name: each for each in (*studies, *others)}.values()
        for run in _finished(each)
        if is_confirmation(run.plan) and _made_for(run, each.name) in own
    ]
    return Spent(
        search_s=sum(map(device_seconds, trials)),
        reevaluation_s=run_seconds(again),
        confirmation_s=run_seconds(confirming),
        trials=len(trials),
        reevaluation_runs=len(again),
        confirmation_runs=len(confirming),
    )


def _finished(study: StudySnapshot) -> list[VerificationRun]:
    """What another search has made is paid for there."""
    return [run for run in study.runs if run.state == "finished" and not run.copied]


def _made_for(run: VerificationRun, study: str) -> str:
    """The study whose confirmation needs this run of `study`: itself, where it is confirmed by it;
    of several others the first, so that no run is paid for twice.
    """
    confirmed = confirmed_studies(run)
    return study if study in confirmed or not confirmed else min(confirmed)


def costs(groups: Mapping[str, Sequence[StudySnapshot]]) -> tuple[RetuneCost, ...]:
    """Of each group of searches, in their order."""
    found = []
    whole = [each for studies in groups.values() for each in studies]
    for name, studies in groups.items():
        there = filter(None, map(confirmation_of, studies))
        confirmed = sorted((each for each in there if each.holds), key=_seconds)
        found.append(
            RetuneCost(
                group=name,
                spent=spent_on(studies, whole),
                confirmation=confirmed[len(confirmed) // 2] if confirmed else None,
                confirmed=len(confirmed),
                searches=len(studies),
            )
        )
    return tuple(found)


def _seconds(there: Confirmation | None) -> float:
    found = there.recommended.seconds if there and there.recommended else None
    return math.inf if found is None else found.estimate


# What a retune took, what it saves and what its budget bought, in plain sentences.


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


PRICED = (0.0, 0.002, 0.005, 0.01)
"""Margins."""


def price_sentence(study: StudySnapshot, name: str) -> str:
    """What a stricter margin costs a variant called `name`, and what a seed does, without a full
    stop; empty where nothing can be expected.
    """
    model = model_of(study)
    if model is None or model.default is None:
        return ""
    shares = []
    for margin in PRICED:
        found = recommend(model, margin=margin, candidates=candidates_of(study))
        assert found.default is not None, "it is held against it"
        seconds = found.default.seconds if found.chosen is None else found.chosen.seconds
        shares.append(f"{seconds / found.default.seconds:.2f}")
    by_seed = math.sqrt(model.quality_of_default().noise)
    return (
        f"With an MQL at most 0, 0.2, 0.5 or 1 % above its default's, {name} is expected to take "
        f"{', '.join(shares[:-1])} or {shares[-1]} of its time; a seed alone moves an MQL by "
        f"{100 * by_seed:.1f} %, beside which 1 % is little"
    )


# What the time of a recommendation is made of: fewer epochs, or faster ones.


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsOf:
    """Of what is recommended and of the default, on the seeds on which both count."""

    study: str
    trial: int
    epochs: Interval
    """The ratio: recommended over default."""
    s_per_epoch: Interval
    """The same of seconds an epoch, of timings that nothing disturbed."""
    medians: tuple[tuple[float, float], tuple[float, float]]
    """Epochs, and seconds an epoch, of what is recommended; then of the default."""
    cut_off: bool = False
    """The limit of epochs cut off runs of the default."""

    def as_dict(self) -> dict[str, Any]:
        (epochs, seconds), (default_epochs, default_seconds) = self.medians
        return {
            **in_json(self, "study", "trial", default_cut_off="cut_off"),
            **in_json(self, epochs_ratio="epochs", s_per_epoch_ratio="s_per_epoch"),
            "recommended": {"epochs": epochs, "s_per_epoch": seconds},
            "default": {"epochs": default_epochs, "s_per_epoch": default_seconds},
        }

    @property
    def sentence(self) -> str:
        """Without a full stop."""
        (epochs, seconds), (default_epochs, default_seconds) = self.medians
        cut = ", where its limit cuts it off" if self.cut_off else ""
        return (
            f"Trial {self.trial} of {self.study} takes {self.epochs:.2f} times the epochs "
            f"of its default ({epochs:g} against {default_epochs:g}{cut}), and "
            f"{self.s_per_epoch:.2f} times the seconds an epoch ({seconds:.3g} against "
            f"{default_seconds:.3g})"
        )


def epochs_of(there: Confirmation | None) -> EpochsOf | None:
    """Of a confirmation; None where it has nothing to hold against the default, or too few runs."""
    if there is None or there.recommended is None or there.default is None:
        return None
    one, other = there.recommended, there.default
    epochs = paired_ratio(_by_seed(one, _epochs), _by_seed(other, _epochs))
    pace = paired_ratio(_by_seed(one, _pace), _by_seed(other, _pace))
    medians = [
        (epochs_.estimate, pace_.estimate)
        for each in (one, other)
        if (epochs_ := each.of_counted(_epochs)) and (pace_ := each.of_clean(_pace))
    ]
    if epochs is None or pace is None or len(medians) < 2:  # noqa: PLR2004 - of both
        return None
    return EpochsOf(
        study=there.study,
        trial=one.trial_number,
        epochs=epochs,
        s_per_epoch=pace,
        medians=(medians[0], medians[1]),
        cut_off=other.cut_off > 0,
    )


def _by_seed(found: Verified, figure: Callable[[Recorded], float | None]) -> dict[int, float]:
    return {
        run.seed: value
        for run in found.clean
        if run.result is not None and (value := figure(run.result.recorded))
    }


def _epochs(recorded: Recorded) -> float | None:
    return recorded.epochs


def _pace(recorded: Recorded) -> float | None:
    return recorded.s_per_epoch


# What somebody gains who takes what is confirmed, in a few words.


def gain_in_words(there: Confirmation) -> str:
    """`2.7 times as fast as its default (0.36 s, was 0.98; 18 epochs, were 51) for 0.5 % more error
    (MQL 0.811, was 0.808)`.
    """
    best, default = there.recommended, there.default
    assert there.holds, "nothing is said of what is not confirmed"
    assert best is not None, "it holds for that"
    assert default is not None, "against that"
    assert there.test is not None, "by this"
    made_of, times = epochs_of(there), there.test.ratio
    epochs = ""
    if made_of is not None:
        (mine, _), (usual, _) = made_of.medians
        epochs = f"; {mine:g} epochs, were {usual:g}"
    found = there.test.no_worse
    worse = 0.0 if found is None else 100 * (found.ratio - 1)
    price = f"{worse:.1f} % more error" if worse >= _NO_MORE else "no more error"
    mqls = ""
    if best.mql is not None and default.mql is not None:
        mqls = f" (MQL {best.mql.estimate:.4f}, was {default.mql.estimate:.4f})"
    if times is None or best.seconds is None or default.seconds is None:
        return f"{price}{mqls}; its time is not known, too many timings were disturbed"
    clock = f"({_in_s(best.seconds.estimate)} s, was {_in_s(default.seconds.estimate)}{epochs})"
    return f"{1 / times.estimate:.1f} times as fast as its default {clock} for {price}{mqls}"


def _in_s(seconds: float) -> str:
    low, high = _TWO_DIGITS
    return f"{seconds:.2f}" if low <= seconds < high else f"{seconds:.3g}"


_TWO_DIGITS = 0.1, 10.0
"""Seconds that are written with two digits after the point."""


_NO_MORE = 0.05
"""Percent: less rounds to nothing."""
