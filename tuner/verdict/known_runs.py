"""All trainings of a study as one kind of record, whichever run they were: of its search, or of its
verification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optuna.trial import TrialState

from tuner.record import Recorded
from tuner.search.history import Configuration, configuration
from tuner.spec.objectives import values_of
from tuner.spec.pareto import Point
from tuner.storage.queue.verifications import VerificationRun
from tuner.study.results import TrialRecord, is_miss
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import runs_to_learn_from

Training = tuple[Recorded, Point | None]
"""What was recorded of one, and the study's objectives; None where one is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training that converged, whichever run of a study it was; or one of a default that is cut
    off, with what it came to.
    """

    trial: int
    """The number of the trial whose configuration it has."""
    where: tuple[float, ...]
    """Of the configuration in the unit cube (`SearchSpace.shares`)."""
    seconds: float | None
    """None where something disturbed the timing; one run of each configuration has it."""
    mql: float
    epochs: float | None = None


def candidates_of(study: StudySnapshot) -> frozenset[int]:
    """The configurations that may be recommended, by their first trials: those within the study's
    limits, of which no run missed, neither of the search nor on a fresh seed.
    """
    missed = {run.trial_number for run in runs_to_learn_from(study) if _missed(run)}
    found = set()
    for each in study.results.eligible:
        # Where nothing converged, what missed is eligible, too: a search shows what there is.
        mixed = bool(each.trials) and not each.converged
        if not mixed and missed.isdisjoint(each.numbers):
            found.add(each.number)
    return frozenset(found)


def _missed(run: VerificationRun) -> bool:
    """Whether it speaks against its configuration: it did not converge in its time, or ended for a
    reason of its own. An error may be anything.
    """
    if (result := run.result) is None:
        return False
    cut = result.state == TrialState.COMPLETE and not result.recorded.converged
    return cut or is_miss(result.state, result.recorded)


def default_of(study: StudySnapshot) -> int | None:
    """The number of the first trial of the default configuration that converged; where none did, of
    the first that the limit of epochs cut off; None where there is none of these.
    """
    there = _trials_of_default(study)
    converged = (trial.number for trial in there if trial.converged)
    cut = (trial.number for trial in there if trial.recorded.is_cut)
    return next(converged, next(cut, None))


def default_is_cut(study: StudySnapshot) -> bool:
    """Whether the study's limit of epochs cuts off its default, as far as the search can say: no
    trial of it converged, and some ended at the limit.

    What one has now is the default within that limit. So it is what others are held against
    (docs/decisions/0005).
    """
    there = _trials_of_default(study)
    return any(each.recorded.is_cut for each in there) and not any(
        trial.converged for trial in there
    )


def default_cut_at(study: StudySnapshot) -> int | None:
    """After how many epochs; None where its default is not cut off."""
    return study.definition.training.max_epochs if default_is_cut(study) else None


def _trials_of_default(study: StudySnapshot) -> list[TrialRecord]:
    return [each for c in study.results.configurations if c.is_default for each in c.each_trial]


def converged_configurations(study: StudySnapshot, runs: Sequence[Run]) -> int:
    """How many have a run that converged, on fresh seeds or not; `runs` are the study's."""
    there = {run.trial for run in runs}
    return len(there - {default_of(study)} if default_is_cut(study) else there)


def runs_of(study: StudySnapshot) -> tuple[Run, ...]:
    """All trainings of a study that converged, of its search and of its verification, each with
    the number of the first trial of its configuration. Where its default is cut off, trainings of
    that count with what they came to.

    The figures are the study's own objectives, so that what was searched on validation is chosen
    by validation.
    """
    names, space = study.definition.objectives, study.definition.space
    first: dict[Configuration, int] = {}
    found: dict[int, list[Training]] = {}
    where: dict[int, tuple[float, ...]] = {}
    cut_off = default_of(study) if default_is_cut(study) else None
    trials = () if cut_off is None else _trials_of_default(study)
    cut_trials = {trial.number for trial in trials if trial.recorded.is_cut}
    for record in study.results.complete:
        cut = record.number in cut_trials
        if record.converged or cut:
            number = first.setdefault(configuration(record.params), record.number)
            where[number] = tuple(space.shares(record.params))
            trainings = _trainings_of(record, names)
            kept = [each for each in trainings if not cut or _counts(each[0], cut=True)]
            found.setdefault(number, []).extend(kept)
    for run in runs_to_learn_from(study):
        known = first.get(configuration(run.params))
        if known is None or run.result is None:
            continue
        recorded = run.result.recorded
        here = study.device_model in (None, recorded.device)
        if here and _counts(recorded, cut=known == cut_off):
            found[known].append((recorded, values_of(recorded, names)))
    runs: list[Run] = []
    for number, trainings in found.items():
        runs += _runs_of_one(number, where[number], trainings)
    return tuple(runs)


def _counts(recorded: Recorded, *, cut: bool) -> bool:
    """Whether a training is a run of its configuration; `cut`: of a default that is cut off."""
    return bool(recorded.converged) or (cut and recorded.is_cut)


def _trainings_of(record: TrialRecord, objectives: Sequence[str]) -> list[Training]:
    """Those of each of a trial's seeds; of a trial with one its own, with the trial's values."""
    if record.recorded.runs:
        return [(each, values_of(each, objectives)) for each in record.recorded.each_seed]
    return [(record.recorded, record.values)]


def _runs_of_one(number: int, where: tuple[float, ...], trainings: Sequence[Training]) -> list[Run]:
    """The runs of one configuration; a disturbed timing counts where there is no other."""
    known = [(each, values) for each, values in trainings if values and min(values) > 0]
    disturbed = all(each.contaminated for each, _ in known)
    return [
        Run(
            trial=number,
            where=where,
            seconds=values[0] if disturbed or not each.contaminated else None,
            mql=values[1],
            epochs=each.epochs,
        )
        for each, values in known
    ]
