"""What the gain of a recommendation is made of: the same configuration with one hyperparameter set
back to its default, in blocks in which each runs once on a fresh seed of its own.

An ablation (as of components by Fawcett and Hoos, "Analysing differences between algorithm
configurations through ablation", Journal of Heuristics 2016, here one value at a time). Its runs
choose nothing, and stand apart from those of other verifications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.config import Value
from tuner.search.history import Configuration, configuration
from tuner.spec.space import SearchSpace
from tuner.storage.queue.plans import StoredAblation, is_ablation
from tuner.storage.queue.runs import VerificationRun
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.stats.intervals import Interval
from tuner.verdict.stats.noninferiority import paired_ratio
from tuner.verdict.verified import Verified, values_in

Params = Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBack:
    """The recommendation with one value set back, against the recommendation, block by block."""

    name: str
    """The hyperparameter's; empty for the default configuration: everything set back."""
    value: Value | None
    """In the recommendation."""
    default: Value | None
    time_ratio: Interval
    """How many times as long it takes, with its interval of 95 % (geometric means)."""
    mql_ratio: Interval
    """The same of its MQL."""
    missed: int
    """Of its runs, those that did not converge: they are in neither ratio."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "set_back": self.name or None,
            "value": self.value,
            "default": self.default,
            "time_ratio": self.time_ratio.as_estimate(),
            "mql_ratio": self.mql_ratio.as_estimate(),
            "missed": self.missed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """The last ablation of a study."""

    study: str
    trial: int
    """The one that was recommended when it was planned."""
    seeds: int
    """That the plan has for each configuration."""
    complete: bool
    """Every planned run is finished."""
    confirmed: bool
    """A confirmation has shown that trial to be as good as the default."""
    rows: tuple[SetBack, ...]
    """What made most first, by time; the whole default last."""
    unsaid: tuple[str, ...]
    """The hyperparameters of which too few runs have converged so far, undisturbed."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "trial": self.trial,
            "seeds": self.seeds,
            "complete": self.complete,
            "confirmed": self.confirmed,
            "unsaid": list(self.unsaid),
            "set_back": [row.as_dict() for row in self.rows],
        }


def set_back(
    space: SearchSpace, recommended: Params, default: Params
) -> dict[str, dict[str, Value]]:
    """The recommendation with one value set back, by the name of that hyperparameter; those in
    which the two agree are left out. What is there only with that value comes along, as in the
    default.
    """
    found: dict[str, dict[str, Value]] = {}
    for name, value in default.items():
        if name in recommended and recommended[name] != value:
            found[name] = space.nearest({**recommended, name: value}, default)
    return found


def ablation_of(study: StudySnapshot) -> Ablation | None:
    """What the last ablation of a study has found so far; None where there is none."""
    mine = [run for run in study.runs if is_ablation(run.plan) and run.state != "skipped"]
    if not mine:
        return None
    runs = [run for run in mine if run.session == mine[-1].session]
    plan = StoredAblation.model_validate(runs[0].plan["ablates"][study.name])
    by_params: dict[Configuration, list[VerificationRun]] = {}
    for run in runs:
        by_params.setdefault(configuration(run.params), []).append(run)

    def of(params: Params) -> Verified:
        return _verified(study, plan.trial, params, by_params.get(configuration(params), ()))

    base = of(plan.recommended)
    rows: list[SetBack] = []
    unsaid: list[str] = []
    for name, params in set_back(study.definition.space, plan.recommended, plan.default).items():
        row = _row(of(params), base, name, plan)
        if row is None:
            unsaid.append(name)
        else:
            rows.append(row)
    rows.sort(key=lambda row: -row.time_ratio.estimate)
    whole = _row(of(plan.default), base, "", plan)
    there = confirmation_of(study)
    return Ablation(
        study=study.name,
        trial=plan.trial,
        seeds=int(runs[0].plan.get("seeds", 0)),
        complete=all(run.state == "finished" for run in runs),
        confirmed=there is not None and there.holds and there.trial == plan.trial,
        unsaid=tuple(unsaid),
        rows=(*rows, *([] if whole is None else [whole])),
    )


def _verified(
    study: StudySnapshot, trial: int, params: Params, runs: Sequence[VerificationRun]
) -> Verified:
    def here(run: VerificationRun) -> bool:
        device = run.result.recorded.device if run.result else None
        return run.state == "finished" and device in (None, study.device_model or device)

    kept = tuple(run for run in runs if here(run))
    return Verified(study.name, trial, params, kept, len(runs))


def _row(one: Verified, base: Verified, name: str, plan: StoredAblation) -> SetBack | None:
    time_ratio = paired_ratio(_by_block(one.clean, 0), _by_block(base.clean, 0))
    mql_ratio = paired_ratio(_by_block(one.converged, 1), _by_block(base.converged, 1))
    if time_ratio is None or mql_ratio is None:
        return None
    return SetBack(
        name=name,
        value=plan.recommended.get(name),
        default=plan.default.get(name),
        time_ratio=time_ratio,
        mql_ratio=mql_ratio,
        missed=one.missed,
    )


def _by_block(runs: Sequence[VerificationRun], which: int) -> dict[int, float]:
    """Seconds (0) or MQL (1) of runs that converged."""
    return {run.block: values[which] for run in runs if (values := values_in(run)) is not None}
