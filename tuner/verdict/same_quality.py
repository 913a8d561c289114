"""What a study recommends, as one answer: of the configurations that are surely enough as good as
the default the one that saves most time once confirmed, or the fastest that is as good as another
study's default; the default itself where nothing faster is.

Whatever shows a configuration as recommended asks here.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import UsageError
from tuner.search.history import configuration
from tuner.spec.margin import LEAST_RUNS
from tuner.storage.queue.verifications import is_confirmation
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import standing_trial
from tuner.verdict.known_runs import candidates_of, default_cut_at, default_of
from tuner.verdict.picks import UNBOUNDED, Bounds, excess
from tuner.verdict.recommendation import (
    NoAnswerError,
    limit_in_words,
    model_of,
    nothing_within,
    recommend,
    recommend_at,
    why_none,
)
from tuner.verdict.runs_model import Estimate, Quality, RunsModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another study's default configuration, whose quality is asked for."""

    study: str
    trial: int
    mql: float
    """Expected of it."""
    error: float
    """Its relative standard error."""
    cut_at: int | None = None
    """The epochs at which its study's limit cuts it off; None where it converges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a study recommends."""

    chosen: Estimate
    """The default where nothing faster is surely enough as good."""
    default: Estimate | None
    """The study's own; None where it has no run that counts and another's was asked for."""
    nearest: Estimate | None
    """Where the default stands: the one of the best chance that is faster, if there is any."""
    margin: float
    sure_enough: float
    """How surely something had to be as good."""
    least_runs: int
    """How often something had to have run itself."""
    against: Reference | None = None
    confirmed: bool = False
    """A confirmation showed it, and nothing has run since by which one may choose anew."""
    default_missed: bool = False
    """The default stands, although a run of it missed."""
    cut_at: int | None = None
    """The epochs at which the study's limit cuts off its default; None where that converges."""

    @property
    def default_stands(self) -> bool:
        return self.default is not None and self.chosen.trial == self.default.trial


def recommended(
    study: StudySnapshot, model: RunsModel | None, *, margin: float, bounds: Bounds = UNBOUNDED
) -> Answer:
    """What saves most time once it is confirmed, of all that is as good as the study's default.

    Args:
        study: as it is now.
        model: of its runs (`model_of`).
        margin: how much higher an MQL may be, relative.
        bounds: what is expected of a configuration must be within them.

    Raises:
        NoAnswerError: too few trials, a default that neither converged nor was cut off, or limits
            or bounds that neither the default keeps nor anything as good.
    """
    if model is None or model.default is None or study.results.infeasible:
        raise NoAnswerError(f"nothing to recommend: {why_none(study)}")
    may = _within(study, model, bounds)
    least, cut_at = least_runs(study), default_cut_at(study)
    found = recommend(model, margin=margin, least_runs=least, candidates=may)
    chosen = found.chosen or (found.default if _default_stands(study, model, bounds) else None)
    held = standing_trial(study, margin)
    if held in may & frozenset(model.trials):
        chosen = model.estimate(held, model.chance_of_default(margin))
    if chosen is None:
        own = f"its default{limit_in_words(cut_at)}"
        raise NoAnswerError(nothing_within(study, model, found, bounds, own, least))
    return Answer(
        chosen=chosen,
        default=found.default,
        nearest=found.nearest,
        margin=margin,
        sure_enough=found.chance,
        least_runs=least,
        confirmed=chosen.trial == held,
        default_missed=cut_at is None
        and model.default == chosen.trial
        and model.default not in may,
        cut_at=cut_at,
    )


def recommended_against(
    study: StudySnapshot,
    model: RunsModel | None,
    reference: StudySnapshot,
    *,
    margin: float,
    bounds: Bounds = UNBOUNDED,
    of_reference: RunsModel | None = None,
) -> Answer:
    """The fastest configuration that is as good as the default of another study, the `reference`.

    `of_reference` is the model of the reference's runs; it is fitted here where it is not given.

    Raises:
        UsageError: the reference is the same study, or its MQL is of other data or another split.
        NoAnswerError: too few trials of either, a default of the reference that did not converge,
            or nothing that is surely enough as good.
    """
    if reference.name == study.name:
        raise UsageError(f"--against: {study.name!r} is the study itself; name another one")
    own = quality_of(reference, of_reference, study)
    if model is None or study.results.infeasible:
        raise NoAnswerError(f"nothing to recommend: {why_none(study, default=False)}")
    found = recommend_at(
        model,
        own.mql * (1 + margin),
        error=own.error,
        least_runs=(least := least_runs(study)),
        candidates=_within(study, model, bounds),
    )
    held, cut_at = default_of(reference), default_cut_at(reference)
    assert held is not None, "or it had no quality"
    level = Reference(study=reference.name, trial=held, mql=own.mql, error=own.error, cut_at=cut_at)
    if found.chosen is None:
        left = limit_in_words(level.cut_at)
        named = f"the default of {level.study}{left}, whose MQL is {level.mql:.4f}"
        raise NoAnswerError(nothing_within(study, model, found, bounds, named, least))
    return Answer(
        chosen=found.chosen,
        default=found.default,
        nearest=None,
        margin=margin,
        sure_enough=found.chance,
        least_runs=least,
        against=level,
        cut_at=default_cut_at(study),
    )


def least_runs(study: StudySnapshot) -> int:
    """How often what is recommended must have run itself: some times, once a verification has run,
    or where the search itself runs configurations again. A confirmation is none: what it confirms
    has to stay what it is.
    """
    verified = (run.result for run in study.runs if not is_confirmation(run.plan))
    again = _runs_again(study) or any(result is not None for result in verified)
    return LEAST_RUNS if again else 1


def _runs_again(study: StudySnapshot) -> bool:
    """Whether any configuration but the default has trials of several seeds."""
    default = study.results.default
    usual = None if default is None else configuration(default.params)
    met = [configuration(record.params) for record in study.results.complete]
    others = [here for here in met if here != usual]
    return len(set(others)) < len(others)


def answer_of(study: StudySnapshot) -> Answer | str:
    """What the study recommends by its own margin; or why nothing."""
    if (reason := why_none(study)) is not None:
        return reason
    try:
        return recommended(study, model_of(study), margin=study.policy.counted_margin)
    except NoAnswerError as error:
        return str(error)


def recommended_trial(study: StudySnapshot) -> int | None:
    """The number of the trial that the study recommends, for what marks it; None while there is
    none.
    """
    answer = answer_of(study)
    return None if isinstance(answer, str) else answer.chosen.trial


def _within(study: StudySnapshot, model: RunsModel, bounds: Bounds) -> frozenset[int]:
    """The trials that may be recommended, within the bounds by what is expected of them."""
    return candidates_of(study) & _inside(model, bounds)


def _default_stands(study: StudySnapshot, model: RunsModel, bounds: Bounds) -> bool:
    """Whether the default may stand where nothing else is recommended: within the limits and the
    bounds, and however often it missed. It is what one trains with now.
    """
    default = study.results.default
    return (
        default is not None and bool(default.feasible) and model.default in _inside(model, bounds)
    )


def _inside(model: RunsModel, bounds: Bounds) -> frozenset[int | None]:
    points = zip(model.trials, model.seconds, model.mql, strict=True)
    return frozenset(n for n, *point in points if excess((point[0], point[1]), bounds) == 0)


def quality_of(
    reference: StudySnapshot, of_reference: RunsModel | None, study: StudySnapshot
) -> Quality:
    """Of the reference's default, which a study is held against; `of_reference` is the model of its
    runs, which is fitted here where it is not given.

    Raises:
        UsageError: the MQLs are of other data or another split.
        NoAnswerError: too few trials of the reference, or a default that did not converge.
    """
    for what, one, other in (
        ("data", study.definition.data_hash, reference.definition.data_hash),
        ("split", study.definition.mql_split, reference.definition.mql_split),
    ):
        if one != other:
            raise UsageError(
                f"--against: the MQL of study {reference.name!r} is of another {what} than that of "
                f"{study.name!r}; name a study of the same"
            )
    model = of_reference or model_of(reference)
    if model is None or model.default is None or reference.results.infeasible:
        raise NoAnswerError(f"--against {reference.name} is no reference: {why_none(reference)}")
    return model.quality_of_default()
