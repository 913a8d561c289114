"""From what somebody asks of a study to one of its trials, with why it is that one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.trial import TrialState

from tuner.config import Values
from tuner.errors import TunerError, UsageError, unknown_name
from tuner.files.plain import in_json
from tuner.spec.margin import checked_margin
from tuner.spec.objectives import axis_title
from tuner.spec.pareto import Point, front_indices, knee_index
from tuner.study.results import StudyResults, TrialRecord
from tuner.study.snapshot import Group, StudySnapshot
from tuner.verdict.lacking import nothing_verified
from tuner.verdict.picks import UNBOUNDED, Bounds, bounds_in_words, excess, picks_expected
from tuner.verdict.reasons import because_of_answer, because_of_front
from tuner.verdict.recommendation import NoAnswerError, in_words, model_of, nothing_expected
from tuner.verdict.runs_model import (
    Estimate,
    Front,
    RunsModel,
    expected_front,
    front_of_runs,
    verified_front,
)
from tuner.verdict.same_quality import Answer, recommended, recommended_against

# Which trial of a study: the one that a pick names on a front within the bounds, or one by its
# number.


SAME_QUALITY = "same-quality"
"""The pick of what is recommended; the others name a point of the front."""
PICKS = (SAME_QUALITY, "mql", "time", "knee")


def choose(
    results: StudyResults,
    name: str,
    *,
    pick: str,
    bounds: Bounds = UNBOUNDED,
    front: Front | None = None,
) -> TrialRecord:
    """The trial that `pick` names among the trials within the bounds of a front, that of single
    runs if no other is given; `name` is the study's, for messages.

    Raises:
        TunerError: no finished trial yet, none that keeps the study's limits, or none within the
            bounds (the nearest is named).
    """
    refuse_nothing(results, name)
    front = front or front_of_runs(results)
    rows = [row for row, point in enumerate(front.points) if excess(point, bounds) == 0]
    if not rows:
        raise TunerError(_nobody_within(results, name, front, bounds))
    return front.trials[rows[_best([front.points[row] for row in rows], pick)]]


def refuse_nothing(results: StudyResults, name: str) -> None:
    """Raises TunerError where there is no trial yet to choose, or none that keeps the study's
    limits.
    """
    if not results.front:
        running = results.of_state(TrialState.RUNNING)
        ended = results.of_state(TrialState.PRUNED, TrialState.FAIL)
        raise TunerError(
            f"study {name!r} has no finished trial to choose from yet "
            f"({running} running, {ended} ended without a result); try again later"
        )
    if results.infeasible:
        raise TunerError(
            f"no trial of study {name!r} keeps the study's limits, {results.limits}; "
            "launch it again with other limits, or choose a trial with --trial"
        )


def trial_by_number(results: StudyResults, name: str, number: int) -> TrialRecord:
    """The complete trial of that number, on the front or not.

    Raises:
        UsageError: there is no such trial (the nearest complete one is named).
        TunerError: it has no result: it runs, waits, was pruned or failed.
    """
    complete = [record.number for record in results.complete]
    nearest = min(complete, key=lambda other: (abs(other - number), other), default=None)
    hint = (
        "no trial is complete yet"
        if nearest is None
        else f"the nearest complete one is trial {nearest}"
    )
    record = next((record for record in results.records if record.number == number), None)
    if record is None:
        raise UsageError(
            f"study {name!r} has no trial {number}; it has {len(results.records)}, and {hint}"
        )
    if record.number not in complete:
        how = record.recorded.failure or record.recorded.stopped_by or "it has not ended"
        raise TunerError(
            f"trial {number} of study {name!r} is {record.state.name}, not COMPLETE ({how}); {hint}"
        )
    return record


def _nobody_within(results: StudyResults, name: str, front: Front, bounds: Bounds) -> str:
    if not front.points:
        return f"no configuration of study {name!r} may be chosen: each missed on a fresh seed"
    row = min(range(len(front.points)), key=lambda each: excess(front.points[each], bounds))
    seconds, mql = front.points[row]
    return (
        f"no configuration of study {name!r} has {bounds_in_words(bounds, results.objectives)}; "
        f"the nearest is trial {front.trials[row].number} with {seconds:.3f} s and MQL {mql:.4f}"
    )


BY_NUMBER = "trial"
"""Stands for the pick of a trial that was named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody asks of a study, where it goes together.

    Raises:
        UsageError: an unknown word, no number, or words that exclude each other.
    """

    pick: str = SAME_QUALITY
    values: str | None = None
    """One of `Values`. None: expected ones, or where trials are too few for that, those of single
    runs, and it is said."""
    margin: float | None = None
    """None: the study's."""
    against: str | None = None
    bounds: Bounds = UNBOUNDED
    trial: int | None = None

    def __post_init__(self) -> None:
        pick, values = self.pick, self.values
        if pick not in PICKS:
            raise unknown_name("pick", pick, PICKS)
        if values is not None and values not in list(Values):
            raise unknown_name("kind of values", values, list(Values))
        if any(bound is not None and math.isnan(bound) for bound in self.bounds):
            raise UsageError("--max-time and --max-mql take a number; nan is none")
        if pick != SAME_QUALITY:
            for flag, said in (("--margin", self.margin), ("--against", self.against)):
                if said is not None:
                    raise UsageError(
                        f"{flag} goes with --pick {SAME_QUALITY}, not with --pick {pick}"
                    )
        elif values not in (None, Values.EXPECTED):
            raise UsageError(
                f"--pick {SAME_QUALITY} goes by the model of all runs; --values {values} goes with "
                "--pick mql, time or knee"
            )
        if self.margin is not None:
            checked_margin(self.margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What all runs of a study make of one configuration."""

    seconds: float
    mql: float
    runs: int
    """How often it ran itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """A trial, and why it is that one."""

    record: TrialRecord
    pick: str
    chosen_on: Values | None
    """None for a trial by its number."""
    why: str
    """A sentence."""
    expected: Expected | None = None
    answer: Answer | None = None
    own: Answer | None = None
    """The answer for the study's own default, where another's was asked for and there is one."""
    notes: tuple[str, ...] = ()
    """What is not as somebody who does not read `why` will think."""


def pick_of(
    study: StudySnapshot, wanted: Asked, read_reference: Callable[[str], StudySnapshot]
) -> Picked:
    """The trial that is wanted of a study.

    `read_reference` finds the study that `--against` names.

    Raises:
        UsageError: no such trial or study.
        TunerError: nothing to choose from yet, or nothing that is as it was asked for.
    """
    if wanted.trial is not None:
        record = trial_by_number(study.results, study.name, wanted.trial)
        return Picked(
            record=record,
            pick=BY_NUMBER,
            chosen_on=None,
            why="Chosen by its number.",
            notes=_one_of_several(study, record),
        )
    refuse_nothing(study.results, study.name)
    if wanted.pick == SAME_QUALITY:
        return _same_quality(study, wanted, read_reference)
    return _of_a_front(study, wanted)


def _same_quality(
    study: StudySnapshot, wanted: Asked, read_reference: Callable[[str], StudySnapshot]
) -> Picked:
    margin = study.policy.counted_margin if wanted.margin is None else float(wanted.margin)
    model = model_of(study)
    own: Answer | None = None
    if wanted.against is None:
        answer = recommended(study, model, margin=margin, bounds=wanted.bounds)
    else:
        with contextlib.suppress(NoAnswerError):
            own = recommended(study, model, margin=margin, bounds=wanted.bounds)
        try:
            reference = read_reference(wanted.against)
            answer = recommended_against(
                study, model, reference, margin=margin, bounds=wanted.bounds
            )
        except NoAnswerError as error:
            if own is None:
                raise
            raise NoAnswerError(
                f"{error}; for the quality of its own default it is {in_words(own.chosen)}"
            ) from None
    assert model is not None, "or there was no answer"
    why = because_of_answer(answer, own)
    return Picked(
        record=study.configuration(answer.chosen.trial),
        pick=SAME_QUALITY,
        chosen_on=Values.EXPECTED,
        why=why,
        expected=_expected(model, answer.chosen.trial),
        answer=answer,
        own=own,
        notes=(why,) if answer.default_stands or own is not None else (),
    )


def _of_a_front(study: StudySnapshot, wanted: Asked) -> Picked:
    chosen_on = Values(wanted.values or Values.EXPECTED)
    notes: tuple[str, ...] = ()
    model = model_of(study) if chosen_on is Values.EXPECTED else None
    noted = _noted(study, wanted) if chosen_on is Values.EXPECTED else None
    if chosen_on is Values.EXPECTED and model is None and noted is None:
        instead = nothing_expected(study)
        if wanted.values is not None:
            raise TunerError(f"{instead}; launch more trials, or say --values single")
        of = "the search's runs" if study.results.repeated else "single runs"
        chosen_on, notes = Values.SINGLE, (f"{instead}; this is of the front of {of}",)
    record = noted or choose(
        study.results,
        study.name,
        pick=wanted.pick,
        bounds=wanted.bounds,
        front=_front(study, chosen_on, model),
    )
    expected = None if model is None else _expected(model, record.number)
    return Picked(
        record=record,
        pick=wanted.pick,
        chosen_on=chosen_on,
        why=because_of_front(
            wanted.pick,
            chosen_on,
            expected=None if expected is None else (expected.seconds, expected.mql),
            noted=noted is not None,
            repeated=study.results.repeated,
        ),
        expected=expected,
        notes=(*notes, *_worse_than_the_default(study, record)),
    )


def _worse_than_the_default(study: StudySnapshot, record: TrialRecord) -> tuple[str, ...]:
    """That a point of a front forecasts worse than the default by more than the study's margin."""
    default, margin = study.results.default, study.policy.counted_margin
    if default is None or default.values is None or record.values is None:
        return ()
    mql, usual = record.values[1], default.values[1]
    if mql <= usual * (1 + margin):
        return ()
    error = axis_title(study.results.objectives[1])
    worse = f"{100 * (mql / usual - 1):.1f} % worse than the default's"
    said = f"the {error} of trial {record.number}, {mql:.4f}, is {worse}, {usual:.4f}"
    return (f"{said}; leave out --pick for one that is as good",)


def _noted(study: StudySnapshot, wanted: Asked) -> TrialRecord | None:
    """What a verification chose from the front that was expected then: that is what was verified,
    and what a comparison speaks of.
    """
    number = picks_expected(study).get(wanted.pick)
    if number is None or wanted.bounds != UNBOUNDED:
        return None
    trial_by_number(study.results, study.name, number)
    return study.configuration(number)


def _one_of_several(study: StudySnapshot, record: TrialRecord) -> tuple[str, ...]:
    """That a trial by its number is one run of a configuration that has others."""
    whole = study.configuration(record.number)
    if whole.runs == 1 or whole.values is None:
        return ()
    seconds, mql = whole.values
    numbers = ", ".join(map(str, whole.numbers))
    said = (
        f"trial {record.number} is one of {whole.runs} runs of its configuration (trials "
        f"{numbers}), whose medians are {seconds:.3f} s and MQL {mql:.4f}"
    )
    return (said,)


def _front(study: StudySnapshot, values: Values, model: RunsModel | None) -> Front:
    if model is not None:
        return expected_front(study, model)
    if values is Values.SINGLE:
        return front_of_runs(study.results)
    front = verified_front(study)
    if not front.points:
        raise TunerError(f"{nothing_verified(study)}. Or say --values expected")
    return front


def _expected(model: RunsModel, trial: int) -> Expected | None:
    if trial not in model.trials:  # it repeats another trial's configuration
        return None
    row = model.trials.index(trial)
    return Expected(
        seconds=float(model.seconds[row]), mql=float(model.mql[row]), runs=int(model.runs[row])
    )


# How a configuration was chosen, as the plain data that every written form carries.


def of_split(said: str, error: str) -> str:
    """With whose MQL it speaks of, where that is not the test split's."""
    if "MQL" not in said or error == "test_mql":
        return said
    return f"{said.removesuffix('.')}. Each MQL in this is a {axis_title(error)}."


def recommendation_of(picked: Picked, objectives: Sequence[str]) -> dict[str, Any] | None:
    """What it was held against; `objectives` are the study's, which name seconds and MQL."""
    answer, own = picked.answer, picked.own
    if answer is None:
        return None
    level = answer.against
    return {
        **in_json(answer, "margin", "sure_enough", "least_runs", "default_stands"),
        "chance": answer.chosen.chance,
        "default": _estimate(answer.default, objectives),
        "default_cut_at_epochs": answer.cut_at,
        "nearest": _estimate(answer.nearest, objectives),
        "against": level
        and in_json(level, "study", "trial", relative_error="error", cut_at_epochs="cut_at")
        | {objectives[1]: level.mql},
        "own": own
        and (_estimate(own.chosen, objectives) or {}) | {"default_stands": own.default_stands},
    }


def _estimate(found: Estimate | None, objectives: Sequence[str]) -> dict[str, Any] | None:
    if found is None:
        return None
    clock, error = objectives
    return {clock: found.seconds, error: found.mql} | in_json(found, "trial", "chance", "runs")


# Which trial of which search: what each search of a group gives, and the one of these.


def pick_of_group(
    group: Group[StudySnapshot], wanted: Asked, read_reference: Callable[[str], StudySnapshot]
) -> tuple[StudySnapshot, Picked]:
    """The trial that is wanted, and whose it is.

    Of several searches each one's own is found first. What is recommended is the fastest of these;
    of points of fronts it is the fastest, the best, or the knee.

    Raises:
        UsageError: a trial by its number, of several searches.
        TunerError: none of them has a trial to choose, for the reasons that they give.
    """
    if group.size == 1:
        return group.members[0], pick_of(group.members[0], wanted, read_reference)
    if wanted.trial is not None:
        names = ", ".join(each.name for each in group.members)
        raise UsageError(
            f"trial {wanted.trial} of which search? name it by --study; group {group.name!r} has: "
            f"{names}"
        )
    found: list[tuple[StudySnapshot, Picked]] = []
    errors: list[TunerError] = []
    for each in group.members:
        try:
            found.append((each, pick_of(each, wanted, read_reference)))
        except UsageError:
            raise
        except TunerError as error:
            errors.append(error)
    if not found:
        raise TunerError("; ".join(dict.fromkeys(str(error) for error in errors)))
    return found[_best([_point(picked) for _, picked in found], wanted.pick)]


def _best(points: Sequence[Point], pick: str) -> int:
    rows = range(len(points))
    if pick in (SAME_QUALITY, "time"):
        return min(rows, key=lambda row: points[row])
    if pick == "mql":
        return min(rows, key=lambda row: points[row][::-1])
    front = front_indices(points)
    return front[knee_index([points[row] for row in front])]


def _point(picked: Picked) -> Point:
    if picked.expected is not None:
        return picked.expected.seconds, picked.expected.mql
    assert picked.record.values is not None, "what is picked is complete"
    seconds, mql = picked.record.values
    return seconds, mql
