"""Registered levels, and how fast each search reaches them.

A level is a quality that was said before: the MQL of a variant's default hyperparameters with the
margin. At a level each search has one time: of the last of what is tested for it, the surest first,
that is shown to be no worse than that default by more than the margin; else of its own default,
where that is shown; else none, which ranks last. It is one rule for all groups: a bolder one for
some would make them faster.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.config import MqlSplit
from tuner.files.plain import in_json
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import (
    Confirmation,
    confirmation_of,
    default_runs,
    mqls_of,
    tested_apart,
)
from tuner.verdict.known_runs import candidates_of
from tuner.verdict.recommendation import model_of, recommend_at
from tuner.verdict.runs_model import RunsModel
from tuner.verdict.stats.intervals import LEAST_RUNS
from tuner.verdict.verified import Verified

SEARCHED_ON_TEST = (MqlSplit.TEST, MqlSplit.ORIGINS)
"""The splits whose MQL a verdict is about."""
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
    promised: float | None = None
    """Where it does not reach the level: the lowest MQL that all its runs together promise of what
    may be recommended. Runs that were cut off promise nothing."""
    given_up_after: int | None = None
    """After so many trainings it looked no further, as none of them promised to reach it."""

    def as_dict(self) -> dict[str, Any]:
        return {
            **in_json(self, "study", "trial", "how", "confirmed", wall_clock_s="seconds"),
            "test_mql_promised": self.promised,
            "given_up_after": self.given_up_after,
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
    defaults: tuple[Verified, ...] = ()
    """Its runs, of each search."""
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
        named = in_json(self, of="group", test_mql_at_most="mql", default_test_mql="default_mql")
        own = ("margin", "runs", "confirmed", "last_block", "cut_off", "searches")
        return named | in_json(self, *own)


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
    models: dict[str, RunsModel | None] = {}
    levels = []
    for name, members in groups.items():
        defaults, confirmed = default_runs(members)
        runs = mqls_of(defaults)
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
            defaults=tuple(defaults),
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


def _time(
    study: StudySnapshot, level: RegisteredLevel, models: dict[str, RunsModel | None]
) -> SearchTime:
    """What a search takes to a level; `models` keeps what all runs of each study say."""
    there = confirmation_of(study)
    of_level = there is not None and there.last_block == level.last_block
    if there is not None and there.complete and of_level:
        found = _confirmed_time(study, there, level)
        return _promising(found, study, level, models) if found.how == "not reached" else found
    if level.last_block:
        return _unknown(study, "the level is of the last block, which only a confirmation opens")
    if study.definition.mql_split not in SEARCHED_ON_TEST:
        return _unknown(study, "it was not searched on the test MQL")
    model = _model(study, models)
    if model is None:
        return _unknown(study, "too few configurations converged")
    best = recommend_at(model, level.mql, error=level.error, candidates=candidates_of(study))
    if best.chosen is None:
        found = SearchTime(study=study.name, seconds=None, how="not reached", confirmed=False)
        return _promising(found, study, level, models)
    own = best.default is not None and best.default.trial == best.chosen.trial
    return SearchTime(
        study=study.name,
        seconds=best.chosen.seconds,
        trial=best.chosen.trial,
        how="default" if own else "recommended",
        confirmed=False,
    )


def _model(study: StudySnapshot, models: dict[str, RunsModel | None]) -> RunsModel | None:
    if study.name not in models:
        models[study.name] = model_of(study)
    return models[study.name]


def _promising(
    found: SearchTime,
    study: StudySnapshot,
    level: RegisteredLevel,
    models: dict[str, RunsModel | None],
) -> SearchTime:
    """With what the search promises, and when it looked no further."""
    if study.policy.against == level.group:
        found = dataclasses.replace(found, given_up_after=given_up_after(study))
    model = _model(study, models)
    may = model.among(candidates_of(study)) if model is not None else np.zeros(0, dtype=bool)
    if model is None or not may.any():
        return found
    return dataclasses.replace(found, promised=float(model.mql[may].min()))


def given_up_after(study: StudySnapshot) -> int | None:
    """How many trials there were before those of which none looked for the level any more."""
    after = None
    for record in study.results.records:
        if record.recorded.for_anothers:
            after = None
        elif record.recorded.for_anothers is False and after is None:
            after = record.number
    return after


def _unknown(study: StudySnapshot, why: str) -> SearchTime:
    return SearchTime(
        study=study.name, seconds=None, how="unknown", confirmed=False, why_unknown=why
    )


def _confirmed_time(
    study: StudySnapshot, there: Confirmation, level: RegisteredLevel
) -> SearchTime:
    """One rule for all groups: of what was frozen for the level, the last that is claimed against
    all runs of its default; else the study's own default.
    """
    own = study.membership.group == level.group
    # A reference that was confirmed by itself, before others were held against it, has its steps.
    asked = there.reference == level.group and bool(there.offers or not own)
    offers = there.offers if asked else there.steps
    found = _last_claimed(offers, level, there)
    if found is None and there.default is not None:
        at_its_own = own and there.default.mql is not None
        others = () if there.default.cut_off else (there.default,)
        found = there.default if at_its_own else _last_claimed(others, level, there)
    if found is None:
        return SearchTime(study=study.name, seconds=None, how="not reached", confirmed=True)
    if found.seconds is None:
        return _unknown(study, f"too many timings of trial {found.trial_number} were disturbed")
    return SearchTime(
        study=study.name,
        seconds=found.seconds.estimate,
        trial=found.trial_number,
        how="default" if found is there.default else "recommended",
        confirmed=True,
    )


def _last_claimed(
    offers: Sequence[Verified], level: RegisteredLevel, there: Confirmation
) -> Verified | None:
    """Of these, in their order, up to the first that is not: no worse than the level's default, and
    not surely missing more often.
    """
    found = None
    for each in offers:
        if not tested_apart(each, level.defaults, margin=level.margin, there=there).claimed:
            break
        found = each
    return found
