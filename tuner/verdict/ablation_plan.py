"""Planning an ablation: the recommendation of each study, with one value at a time set back to the
default, and the default itself, each run on a fresh seed of its own.

Seeds are not shared: on the reference job a seed is 2 % of the variance of an MQL, and a trial and
a seed name one run.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from tuner.storage.database import initialisation_lock
from tuner.storage.queue.plans import ABLATION, StoredAblation
from tuner.study.open import OpenStudy
from tuner.study.snapshot import snapshot
from tuner.verdict.ablation import ablation_of, set_back
from tuner.verdict.fresh_seeds import new_seeds
from tuner.verdict.interleaving import Turn, interleaved
from tuner.verdict.no_answer import NoAnswerError
from tuner.verdict.queue import verifications_of
from tuner.verdict.recommendation import model_of
from tuner.verdict.same_quality import recommended
from tuner.verdict.verification_plan import Planned, refuse_apart

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
