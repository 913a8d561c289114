"""What retuning took, and what a training saves with what it found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.storage.queue.device_time import device_seconds
from tuner.storage.queue.plans import is_confirmation, stands_apart
from tuner.storage.queue.runs import VerificationRun
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import Confirmation, confirmation_of, confirmed_studies
from tuner.verdict.round_allowances import run_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Seconds on devices, and what they were for: all but an ablation, on which nothing rests."""

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
        there = self.confirmation
        return {
            "group": self.group,
            "spent": self.spent.as_dict(),
            "searches": self.searches,
            "confirmed": self.confirmed,
            "study": there and there.study,
            "trial": there and there.trial,
            "saved_s": self.saved_s,
        }


def spent_on(studies: Sequence[StudySnapshot], others: Sequence[StudySnapshot] = ()) -> Spent:
    """What all trials and all verification runs of these studies took that have ended; and the runs
    of `others`, as of a reference's default, that were made for these.
    """
    trials = [r.recorded for each in studies for r in each.results.records if r.state.is_finished()]
    again = [run for each in studies for run in _finished(each) if not stands_apart(run.plan)]
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
    return [run for run in study.runs if run.state == "finished"]


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
        confirmed = sorted(filter(_holds, map(confirmation_of, studies)), key=_seconds)
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


def _holds(there: Confirmation | None) -> bool:
    return there is not None and there.holds


def _seconds(there: Confirmation | None) -> float:
    found = there.recommended.seconds if there and there.recommended else None
    return math.inf if found is None else found.estimate
