"""Registered levels, and how fast each search reaches them.

A level is a quality that was said before: the MQL of a variant's default hyperparameters with the
margin. At a level each search has one time: of the boldest of what it offers for it that is
confirmed; else of its default, where that is within the level; else none, which ranks last.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.config import MqlSplit
from tuner.storage.queue.verifications import is_confirmation
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.known_runs import candidates_of
from tuner.verdict.recommendation import first_within, model_of, recommend_at
from tuner.verdict.stats.intervals import LEAST_RUNS, in_json
from tuner.verdict.verified import Verified, as_configurations, verified_in

TEST = "test"
"""The split whose MQL a verdict is about."""
SEARCHED_ON_TEST = (TEST, MqlSplit.ORIGINS)
OF_MEDIAN = math.sqrt(math.pi / 2)
"""By how much the standard error of a median of many normal figures is above that of their mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTime:
    """What one search takes to a level."""

    study: str
    seconds: float | None
    """None where it does not reach the level, or nothing is known."""
    trial: int | None = None
    how: str
    """`recommended`, `default`, `not reached`, or `unknown`."""
    confirmed: bool
    """By its confirmation; else it is what the model of its runs expects."""
    why_unknown: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            **in_json(self, "study", "trial", "how", "confirmed"),
            "wall_clock_s": self.seconds,
            "unknown_because": self.why_unknown or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredLevel:
    """The MQL of a group's default with its margin, and the times of all groups' searches."""

    group: str
    mql: float
    default_mql: float
    """The median over fresh seeds."""
    margin: float
    runs: int
    confirmed: bool
    """The default's runs are those of a confirmation."""
    searches: Mapping[str, tuple[SearchTime, ...]]
    """By group."""
    error: float = 0.0
    """The relative standard error of `mql`."""
    last_block: bool = False
    """It is of the last block of the test split, of which trials and verifications say nothing."""
    cut_off: bool = False
    """The limit of epochs cut off runs of that default, which count with what they came to."""

    @property
    def cut_in_words(self) -> str:
        """Of its default, to be added to it in the middle of a sentence."""
        return ", cut off by its limit," if self.cut_off else ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "of": self.group,
            "test_mql_at_most": self.mql,
            "default_test_mql": self.default_mql,
            **in_json(self, "margin", "runs", "confirmed", "last_block", "cut_off"),
            "searches": {
                group: [each.as_dict() for each in times] for group, times in self.searches.items()
            },
        }


Groups = Mapping[str, Sequence[StudySnapshot]]


def groups_of(studies: Sequence[StudySnapshot]) -> dict[str, list[StudySnapshot]]:
    """The studies by their groups, in the order in which they were named; those of a group by the
    numbers of their searches.
    """
    found: dict[str, list[StudySnapshot]] = {}
    for study in studies:
        found.setdefault(study.membership.group, []).append(study)
    for members in found.values():
        members.sort(key=lambda each: each.membership.search)
    return found


def registered_levels(groups: Groups) -> tuple[RegisteredLevel, ...]:
    """One level a group whose default ran on fresh seeds, in their order; a level whose default was
    confirmed is the same whatever else was verified.

    Where the last block of the test split is kept for confirmations, a confirmed level is of that
    block, and another one of the blocks before it: a search is held against either by runs on the
    same windows.
    """
    models = _Models()
    levels = []
    for name, members in groups.items():
        defaults, confirmed = _default_runs(members)
        runs = [mql for each in defaults for mql in _mqls(each)]
        # A share of an MQL of 0 is no margin.
        if len(runs) < LEAST_RUNS or not (default := float(np.median(runs))) > 0:
            continue
        margin = members[0].policy.counted_margin
        level = (1 + margin) * default
        error = OF_MEDIAN * float(np.std(runs, ddof=1)) / len(runs) ** 0.5 / default
        found = RegisteredLevel(
            group=name,
            mql=level,
            default_mql=default,
            margin=margin,
            runs=len(runs),
            confirmed=confirmed,
            searches={},
            error=error,
            last_block=confirmed and members[0].definition.keeps_last_block,
            cut_off=any(each.cut_off for each in defaults),
        )
        times = {
            other: tuple(_time(each, found, models) for each in theirs)
            for other, theirs in groups.items()
        }
        levels.append(dataclasses.replace(found, searches=times))
    return tuple(levels)


def _default_runs(members: Sequence[StudySnapshot]) -> tuple[list[Verified], bool]:
    """Runs of the default over all searches of a group: of confirmations, else of other
    verifications; and whether it was the former.
    """
    confirmed: list[Verified] = []
    others: list[Verified] = []
    for each in members:
        if each.results.default is None:
            continue
        numbers = each.results.default.numbers
        of_confirmations = [run for run in each.runs if is_confirmation(run.plan)]
        found = as_configurations(each.name, of_confirmations, device_model=each.device_model)
        confirmed += [one for one in found if one.trial_number in numbers]
        others += [one for number, one in verified_in(each).items() if number in numbers]
    # What converges in one search is no default that is cut off in another.
    if not all(one.to_its_limit for one in confirmed):
        confirmed = [dataclasses.replace(one, to_its_limit=False) for one in confirmed]
    enough = sum(len(_mqls(one)) for one in confirmed) >= LEAST_RUNS
    return (confirmed, True) if enough else (others, False)


def _mqls(found: Verified) -> list[float]:
    return list(found.sample().mql.values())


class _Models:
    """What all runs of each study say, asked once of each."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}

    def of(self, study: StudySnapshot) -> Any:
        if study.name not in self._found:
            self._found[study.name] = model_of(study)
        return self._found[study.name]


def _time(study: StudySnapshot, level: RegisteredLevel, models: _Models) -> SearchTime:
    """What a search takes to a level."""
    there = confirmation_of(study)
    of_level = there is not None and there.last_block == level.last_block
    if there is not None and there.complete and of_level:
        return _confirmed_time(study, there, level.group, level.mql)
    if level.last_block:
        return _unknown(study, "the level is of the last block, which only a confirmation opens")
    if study.definition.mql_split not in SEARCHED_ON_TEST:
        return _unknown(study, "it was not searched on the test MQL")
    model = models.of(study)
    if model is None:
        return _unknown(study, "too few configurations converged")
    found = recommend_at(model, level.mql, error=level.error, candidates=candidates_of(study))
    if found.chosen is None:
        return SearchTime(study=study.name, seconds=None, how="not reached", confirmed=False)
    own = found.default is not None and found.default.trial == found.chosen.trial
    return SearchTime(
        study=study.name,
        seconds=found.chosen.seconds,
        trial=found.chosen.trial,
        how="default" if own else "recommended",
        confirmed=False,
    )


def _unknown(study: StudySnapshot, why: str) -> SearchTime:
    return SearchTime(
        study=study.name, seconds=None, how="unknown", confirmed=False, why_unknown=why
    )


def _confirmed_time(
    study: StudySnapshot, there: Confirmation, group: str, level: float
) -> SearchTime:
    offers = there.to_answer_with if there.reference == group else (there.recommended,)
    # At the quality of another default, one that is cut off is a miss, as everything else is.
    own = there.default is not None and (
        not there.default.cut_off or study.membership.group == group
    )
    asked = [each for each in (*offers, there.default if own else None) if each is not None]
    place = first_within(level, [_counted(each, there.default) for each in asked])
    if place is None:
        return SearchTime(study=study.name, seconds=None, how="not reached", confirmed=True)
    found = asked[place]
    if found.seconds is None:
        return _unknown(study, f"too many timings of trial {found.trial_number} were disturbed")
    return SearchTime(
        study=study.name,
        seconds=found.seconds.estimate,
        trial=found.trial_number,
        how="default" if found is there.default else "recommended",
        confirmed=True,
    )


def _counted(found: Verified, default: Verified | None) -> float | None:
    """Its median MQL; None where too few runs converged, or fewer than of the default. It is
    reached by its quality, whatever is known of its times.
    """
    missed = default is not None and found.missed > default.missed
    return None if found.mql is None or missed else found.mql.estimate
