"""What the gain of a recommendation is made of: the same configuration with one hyperparameter set
back to its default, in blocks in which each runs once on a fresh seed of its own.

An ablation (as of components by Fawcett and Hoos, "Analysing differences between algorithm
configurations through ablation", Journal of Heuristics 2016, here one value at a time). Its runs
choose nothing, and stand apart from those of other verifications.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.config import StopReason, Value
from tuner.display.text import shown, shown_value
from tuner.files.plain import harmless
from tuner.search.history import Configuration, configuration
from tuner.spec.space import SearchSpace
from tuner.storage.database import initialisation_lock
from tuner.storage.queue.verifications import ABLATION, StoredAblation, VerificationRun, is_ablation
from tuner.study.open import OpenStudy
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.no_answer import NoAnswerError
from tuner.verdict.recommendation import model_of
from tuner.verdict.same_quality import recommended
from tuner.verdict.stats.intervals import Interval, in_json
from tuner.verdict.stats.noninferiority import paired_ratio
from tuner.verdict.verification_plan import Planned, Turn, interleaved, new_seeds, refuse_apart
from tuner.verdict.verified import Verified, values_in, verifications_of

Params = Mapping[str, Value]
WHOLE = ""
"""In place of a hyperparameter's name: everything is set back."""
MANY_CUT = 0.25
"""Where so large a share of the runs was cut off, the others are no sample of them all."""


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
            **in_json(self, "value", "default", "time_ratio", "mql_ratio", "missed"),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """The recommendation with one value set back, where a limit of epochs or of time cut runs off
    before they converged, the slow ones: how long it takes at least.
    """

    name: str
    """The hyperparameter's; empty for the default configuration: everything set back."""
    value: Value | None
    default: Value | None
    least: float
    """How many times as long it takes at least (the lower end of the 95 % interval, with the times
    at which runs were cut off in place of those that they would have taken)."""
    cut: int
    """Of its runs beside undisturbed ones of the recommendation, those that a limit cut off."""
    runs: int
    """All of those."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "set_back": self.name or None,
            "value": self.value,
            "default": self.default,
            "time_ratio_at_least": self.least,
            "cut_off": self.cut,
            "runs": self.runs,
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
    cut_off: tuple[CutOff, ...]
    """What hardly ever converges, once it is set back; in the same order."""
    unsaid: tuple[str, ...]
    """The hyperparameters of which too few runs have converged so far, undisturbed, and too few
    were cut off."""

    def as_dict(self) -> dict[str, Any]:
        found = in_json(self, "trial", "seeds", "complete", "confirmed", "cut_off", "unsaid")
        return found | {"set_back": [row.as_dict() for row in self.rows]}


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


def what_made_most_first(row: SetBack | CutOff) -> tuple[bool, float]:
    """To sort by: how many times as long it takes, or takes at least; the whole default last."""
    times = row.least if isinstance(row, CutOff) else row.time_ratio.estimate
    return row.name == WHOLE, -times


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
    cut_off: list[CutOff] = []
    unsaid: list[str] = []
    each = set_back(study.definition.space, plan.recommended, plan.default)
    for name, params in (*each.items(), (WHOLE, plan.default)):
        match _found(of(params), base, name, plan):
            case SetBack() as row:
                rows.append(row)
            case CutOff() as row:
                cut_off.append(row)
            case None if name != WHOLE:
                unsaid.append(name)
    rows.sort(key=what_made_most_first)
    cut_off.sort(key=what_made_most_first)
    there = confirmation_of(study)
    return Ablation(
        study=study.name,
        trial=plan.trial,
        seeds=int(runs[0].plan.get("seeds", 0)),
        complete=all(run.state == "finished" for run in runs),
        confirmed=there is not None and there.holds and there.trial == plan.trial,
        rows=tuple(rows),
        cut_off=tuple(cut_off),
        unsaid=tuple(unsaid),
    )


def _verified(
    study: StudySnapshot, trial: int, params: Params, runs: Sequence[VerificationRun]
) -> Verified:
    def here(run: VerificationRun) -> bool:
        device = run.result.recorded.device if run.result else None
        return run.state == "finished" and device in (None, study.device_model or device)

    kept = tuple(run for run in runs if here(run))
    return Verified(study.name, trial, params, kept, len(runs))


def _found(
    one: Verified, base: Verified, name: str, plan: StoredAblation
) -> SetBack | CutOff | None:
    """What converged says more, unless many were cut off, or these show that it says too little:
    then only the quick ones converged.
    """
    row, cut_off = _row(one, base, name, plan), _cut_off(one, base, name, plan)
    if row is None or cut_off is None:
        return row or cut_off
    many = cut_off.cut >= MANY_CUT * cut_off.runs
    return cut_off if many or cut_off.least > row.time_ratio.low else row


def _row(one: Verified, base: Verified, name: str, plan: StoredAblation) -> SetBack | None:
    time_ratio = paired_ratio(_by_block(one.clean, 0), _by_block(base.clean, 0))
    mql_ratio = paired_ratio(_by_block(one.counted, 1), _by_block(base.counted, 1))
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


def _cut_off(one: Verified, base: Verified, name: str, plan: StoredAblation) -> CutOff | None:
    """A run that a limit cut off would have taken longer than that, so the mean with its time as it
    was cut is too small: what lies surely below that mean lies surely below the true one.
    """
    beside = _by_block(base.clean, 0)
    cut = {run.block: s for run in one.runs if run.block in beside and (s := _cut_at(run))}
    all_of_them = _by_block(one.clean, 0) | cut
    least = paired_ratio(all_of_them, beside)
    if least is None or not cut or least.low <= 1:  # it says nothing then
        return None
    return CutOff(
        name=name,
        value=plan.recommended.get(name),
        default=plan.default.get(name),
        least=least.low,
        cut=len(cut),
        runs=len(all_of_them.keys() & beside.keys()),
    )


def _cut_at(run: VerificationRun) -> float | None:
    """The seconds at which a limit cut it off, undisturbed; what diverged or failed says nothing of
    how long it takes.
    """
    if run.result is None or run.result.values is None or values_in(run) is not None:
        return None
    recorded = run.result.recorded
    if recorded.contaminated:
        return None
    limits = (StopReason.EPOCH_LIMIT, StopReason.TIME_LIMIT)
    return run.result.values[0] if recorded.stopped_by in limits else None


def _by_block(runs: Sequence[VerificationRun], which: int) -> dict[int, float]:
    """Seconds (0) or MQL (1) of runs that converged."""
    return {run.block: values[which] for run in runs if (values := values_in(run)) is not None}


# Planning an ablation: the recommendation of each study, with one value at a time set back to the
# default, and the default itself, each run on a fresh seed of its own.


SEEDS = 10
"""Of each configuration, unless somebody says otherwise."""


def plan_ablation(
    opened: Sequence[OpenStudy], *, seeds: int = SEEDS, shuffle_seed: int | None = None
) -> Planned:
    """Plan runs of what each study recommends, as it is and with one value set back at a time, and
    of its default: `seeds` of each, in blocks in which each has its turn in random order.

    What was planned stays: the same call again plans nothing new while the study recommends the
    same trial.

    Raises:
        UsageError: the studies are of different data or devices.
    """
    refuse_apart(opened)
    queue = verifications_of(opened)
    missing: list[str] = []
    notes: list[str] = []
    added = 0
    with initialisation_lock(opened[0].database.address):
        for each in opened:
            try:
                found = _to_ablate(each)
            except NoAnswerError as error:
                missing.append(f"{each.name}: {error}")
                continue
            if isinstance(found, str):
                notes.append(f"{each.name}: {found}")
            if not isinstance(found, StoredAblation):
                continue
            space = each.definition.space
            shapes = [
                found.recommended,
                *set_back(space, found.recommended, found.default).values(),
            ]
            if found.default not in shapes:  # else one value makes the whole difference
                shapes.append(found.default)
            drawn = iter(new_seeds(opened, seeds * len(shapes)))
            plan = {
                "kind": ABLATION,
                "ablates": {each.name: found.model_dump()},
                "seeds": seeds,
                "looks": [],
                "shuffle_seed": secrets.randbits(31) if shuffle_seed is None else shuffle_seed,
            }
            first = max((run.place for run in queue.runs()), default=-1) + 1
            blocks = [
                [Turn(each.study_id, found.trial, params, next(drawn)) for params in shapes]
                for _ in range(seeds)
            ]
            added += queue.add(interleaved(blocks, first=first, plan=plan))
    return Planned(added, tuple(missing), tuple(notes))


def taken_apart(study: OpenStudy) -> bool:
    """Whether the ablation of what a study recommends has run, or nothing is to be taken apart."""
    there = ablation_of(snapshot(study).with_runs_read())
    if there is not None and not there.complete:
        return False
    try:
        return not isinstance(_to_ablate(study), StoredAblation)
    except NoAnswerError:
        return True


def _to_ablate(study: OpenStudy) -> StoredAblation | str | None:
    """What is to be taken apart; or why there is nothing; None where that is planned already.

    Raises:
        NoAnswerError: nothing can be recommended.
    """
    now = snapshot(study).with_runs_read()
    answer = recommended(now, model_of(now), margin=now.policy.counted_margin)
    if answer.default_stands or answer.default is None:
        return "the default stands, so there is no gain to take apart"
    there = ablation_of(now)
    if there is not None and (not there.complete or there.trial == answer.chosen.trial):
        return None
    return StoredAblation(
        trial=answer.chosen.trial,
        recommended=now.record(answer.chosen.trial).params,
        default=now.record(answer.default.trial).params,
    )


# What a gain is made of, in words.


def ablation_sentence(found: Ablation) -> str:
    """What made most first: `learning_rate 0.0009 -> 0.0001: 2.92 [2.65, 3.21] x the time, ...`."""
    rows = said_of_each(found)
    if not rows:
        return too_few(found)
    each = "; ".join([*(f"{what}: {how_much}" for what, how_much in rows), *left_out(found)])
    name, what = harmless(found.study), as_set_back(found)
    return f"{name}, {what}, against itself {runs_of_each(found)}: {each}"


def said_of_each(found: Ablation) -> list[tuple[str, str]]:
    """What was set back, and how much slower and worse that is: what made most first, the whole
    default last.
    """
    rows: list[SetBack | CutOff] = [*found.cut_off, *found.rows]
    rows.sort(key=what_made_most_first)
    return [
        (what_is_set_back(row), at_least(row) if isinstance(row, CutOff) else ratios(row))
        for row in rows
    ]


def too_few(found: Ablation) -> str:
    """In place of figures, where there is none."""
    name = harmless(found.study)
    if found.complete:
        return f"{name}: of trial {found.trial}, taken apart, too few runs converged undisturbed"
    return f"{name}: trial {found.trial} is being taken apart; too few runs are finished"


def as_set_back(found: Ablation) -> str:
    """What is compared. A gain that nobody has confirmed is called so."""
    confirmed = "" if found.confirmed else " (not confirmed)"
    return f"trial {found.trial}{confirmed} with one value set back to the default"


def runs_of_each(found: Ablation) -> str:
    rest = "" if found.complete else ", not all finished"
    return f"({found.seeds} runs of each{rest}; 95 %)"


def left_out(found: Ablation) -> list[str]:
    """What can say nothing, once everything has run."""
    said = "too few of its runs converged undisturbed"
    return [f"{shown(name)}: {said}" for name in found.unsaid] if found.complete else []


def ratios(row: SetBack) -> str:
    """`2.92 [2.65, 3.21] x the time, 0.9961 [0.9885, 1.0039] x the MQL`."""
    missed = f", {row.missed} did not converge" if row.missed else ""
    return f"{row.time_ratio:.2f} x the time, {row.mql_ratio:.4f} x the MQL{missed}"


def at_least(row: CutOff) -> str:
    """`at least 5.70 x the time (9 of 10 runs cut off before they converged)`."""
    runs = f"{row.cut} of {row.runs} runs cut off before they converged"
    return f"at least {row.least:.2f} x the time ({runs})"


def what_is_set_back(row: SetBack | CutOff) -> str:
    """`learning_rate 0.0009 -> 0.0001`."""
    if row.name == WHOLE:
        return "all of them: the default"
    assert row.value is not None, "a value was set back"
    assert row.default is not None, "to the default's"
    return f"{shown(row.name)} {shown_value(row.value, 4)} -> {shown_value(row.default, 4)}"
