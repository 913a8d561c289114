"""From what somebody asks of a study to one of its trials, with why it is that one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tuner.errors import TunerError, UsageError, unknown_name
from tuner.export.choice import (
    PICKS,
    SAME_QUALITY,
    choose,
    refuse_nothing,
    trial_by_number,
)
from tuner.spec.margin import checked_margin
from tuner.study.results import TrialRecord
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.estimate_words import in_words
from tuner.verdict.expected_front import Front
from tuner.verdict.front_by_values import Values, expected_front, single_front, verified_front
from tuner.verdict.lacking import nothing_verified
from tuner.verdict.no_answer import NoAnswerError
from tuner.verdict.picks import picks_expected
from tuner.verdict.reasons import because_of_answer, because_of_front, nothing_expected
from tuner.verdict.recommendation import model_of
from tuner.verdict.runs_model import RunsModel
from tuner.verdict.same_quality import (
    Answer,
    recommended,
    recommended_against,
)
from tuner.verdict.upper_bounds import UNBOUNDED, Bounds

BY_NUMBER = "trial"
"""Stands for the pick of a trial that was named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody asks of a study."""

    pick: str = SAME_QUALITY
    values: Values | None = None
    """None: expected ones, or where trials are too few for that, those of single runs, and it is
    said."""
    margin: float | None = None
    """None: the study's."""
    against: str | None = None
    bounds: Bounds = UNBOUNDED
    trial: int | None = None


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


def asked(
    *,
    pick: str,
    values: str | None,
    margin: float | None,
    against: str | None,
    bounds: Bounds,
    trial: int | None,
) -> Asked:
    """The same, where it goes together.

    Raises:
        UsageError: an unknown word, no number, or words that exclude each other.
    """
    if pick not in PICKS:
        raise unknown_name("pick", pick, PICKS)
    if values is not None and values not in list(Values):
        raise unknown_name("kind of values", values, list(Values))
    if any(bound is not None and math.isnan(bound) for bound in bounds):
        raise UsageError("--max-time and --max-mql take a number; nan is none")
    if pick != SAME_QUALITY:
        for flag, said in (("--margin", margin), ("--against", against)):
            if said is not None:
                raise UsageError(f"{flag} goes with --pick {SAME_QUALITY}, not with --pick {pick}")
    elif values not in (None, Values.EXPECTED):
        raise UsageError(
            f"--pick {SAME_QUALITY} goes by the model of all runs; --values {values} goes with "
            "--pick mql, time or knee"
        )
    return Asked(
        pick=pick,
        values=None if values is None else Values(values),
        margin=None if margin is None else checked_margin(margin),
        against=against,
        bounds=bounds,
        trial=trial,
    )


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
    margin = study.policy.counted_margin if wanted.margin is None else wanted.margin
    model, own = model_of(study), None
    if wanted.against is None:
        answer = recommended(study, model, margin=margin, bounds=wanted.bounds)
    else:
        own = _own(study, model, margin, wanted.bounds)
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


def _own(
    study: StudySnapshot, model: RunsModel | None, margin: float, bounds: Bounds
) -> Answer | None:
    try:
        return recommended(study, model, margin=margin, bounds=bounds)
    except NoAnswerError:
        return None


def _of_a_front(study: StudySnapshot, wanted: Asked) -> Picked:
    chosen_on = wanted.values or Values.EXPECTED
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
        notes=notes,
    )


def _noted(study: StudySnapshot, wanted: Asked) -> TrialRecord | None:
    """What a verification chose from the front that was expected then: that is what was verified,
    and what a comparison speaks of.
    """
    number = picks_expected(study.results, study.runs, study.name).get(wanted.pick)
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
        return single_front(study)
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
