"""Verification where the answer is: rounds, each of the configurations that may be what is
recommended by all that is known so far.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.storage.queue.runs import VerificationRun
from tuner.study.results import TrialRecord
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import runs_to_learn_from
from tuner.verdict.expected_front import Choice
from tuner.verdict.known_runs import candidates_of
from tuner.verdict.recommendation import ROUNDS, model_of, to_verify

KNOWN = "known_trials"
"""In a round's plan: how many trials of each study had ended by then."""


def worth_verifying(study: StudySnapshot, count: int) -> list[TrialRecord] | None:
    """The default and the `count` configurations that are most worth running again; none where so
    many rounds were made that the search has to go on first, or one is under way. None where too
    little is known to say which.
    """
    model = model_of(study)
    if model is None or model.default is None:
        return None
    mine = rounds_of(study)
    if len(mine) >= ROUNDS or any(run.state in ("waiting", "running") for run in _last(mine)):
        return []
    numbers = to_verify(
        model,
        count,
        margin=study.policy.counted_margin,
        candidates=candidates_of(study),
    )
    return [study.record(number) for number in (model.default, *numbers)]


def known_trials(studies: Sequence[StudySnapshot]) -> dict[str, int]:
    """What a round's plan says under `KNOWN`."""
    return {study.name: study.finished for study in studies}


def rounds_of(study: StudySnapshot) -> list[list[VerificationRun]]:
    """The runs of each round since the search last went on."""
    found: dict[str, list[VerificationRun]] = {}
    for run in runs_to_learn_from(study):
        known = run.plan.get(KNOWN, {}).get(study.name)
        if run.plan.get("choice") == Choice.RECOMMENDED and known == study.finished:
            found.setdefault(run.session, []).append(run)
    return list(found.values())


def _last(rounds: Sequence[Sequence[VerificationRun]]) -> Sequence[VerificationRun]:
    return rounds[-1] if rounds else ()
