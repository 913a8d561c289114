"""The trainings of a search as they were recorded and as another stopping rule would have ended
them: the same trainings both ways, so that like is set against like.

These are trainings whose epochs are recorded, that the rule would have ended, and of which it keeps
the same weights: of others the MQL under the rule is not known. Runs of a verification have no
recorded epochs and are in neither.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from tuner.search.history import Configuration, configuration
from tuner.study.results import TrialRecord
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.known_runs import Run, Training, runs_of_one, trainings_of
from tuner.verdict.stopping_rule import Replayed, StoppingRule, replay_study


@dataclass(frozen=True, slots=True, kw_only=True)
class BothWays:
    """Trainings of one search, with seconds and epochs as recorded, and as replayed."""

    trainings: int
    """Whose epochs are recorded."""
    kept: int
    """Those of them whose figures under the rule are known."""
    recorded: tuple[Run, ...]
    replayed: tuple[Run, ...]

    @property
    def configurations(self) -> int:
        """How many configurations are known both ways."""
        return len({run.trial for run in self.recorded})


def both_ways(study: StudySnapshot, rule: StoppingRule) -> BothWays:
    """The trainings of a search whose time is its clock at the end of the last epoch."""
    replays = replay_study(study, rule)
    space = study.definition.space
    first: dict[Configuration, int] = {}
    pairs: dict[int, list[tuple[Training, Training]]] = {}
    trainings, recorded, replayed = 0, [], []
    for record in study.results.complete:
        if record.converged:
            number = first.setdefault(configuration(record.params), record.number)
            known = replays.get(record.number, ())
            trainings += len(known)
            pairs.setdefault(number, []).extend(_pairs(record, study, known))
    for number, both in pairs.items():
        where = tuple(space.shares(study.record(number).params))
        recorded += runs_of_one(number, where, [one for one, _ in both])
        replayed += runs_of_one(number, where, [other for _, other in both])
    return BothWays(
        trainings=trainings,
        kept=sum(map(len, pairs.values())),
        recorded=tuple(recorded),
        replayed=tuple(replayed),
    )


def _pairs(
    record: TrialRecord, study: StudySnapshot, replays: tuple[Replayed, ...]
) -> list[tuple[Training, Training]]:
    """Of each of a trial's seeds that is known under the rule; of none where some seeds have no
    epochs, because nothing says which.
    """
    trainings = trainings_of(record, study.definition.objectives)
    if len(trainings) != len(replays):
        return []
    found: list[tuple[Training, Training]] = []
    for (recorded, values), replay in zip(trainings, replays, strict=True):
        usable = math.isfinite(replay.seconds) and replay.seconds > 0  # a stranger's record
        if values is not None and usable and replay.reached and replay.same_weights:
            shorter = dataclasses.replace(recorded, epochs=replay.epochs)
            found.append(((recorded, values), (shorter, (replay.seconds, values[1]))))
    return found
