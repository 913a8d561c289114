"""Confirmations that lack runs of their plan: an exported study holds only those that ended.

What is tested stays as it was frozen. A block that has begun goes on with its seed, so that its
configurations still stand side by side; the other blocks get seeds that nothing has seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.storage.queue.plans import StoredPlan, is_confirmation
from tuner.storage.queue.runs import PlannedRun, VerificationRun
from tuner.study.open import OpenStudy
from tuner.study.snapshot import snapshot
from tuner.verdict.fresh_seeds import new_seeds
from tuner.verdict.interleaving import Turn, interleaved


def missing_runs(
    opened: Sequence[OpenStudy], everything: Sequence[VerificationRun]
) -> list[PlannedRun]:
    """The runs that the studies' confirmations have planned and that are not there.

    Args:
        opened: studies, each once.
        everything: their verification runs, in the order of the plan.
    """
    sessions: dict[str, list[VerificationRun]] = {}
    for run in everything:
        if is_confirmation(run.plan):
            sessions.setdefault(run.session, []).append(run)
    first = max((run.place for run in everything), default=-1) + 1
    found: list[PlannedRun] = []
    for session, runs in sessions.items():
        blocks = _missing(opened, runs)
        plan = runs[0].plan
        found += interleaved(blocks, first=first + len(found), plan=plan, session=session)
    return found


def _missing(opened: Sequence[OpenStudy], runs: Sequence[VerificationRun]) -> list[list[Turn]]:
    """What each block lacks; searches with the same number share their seeds."""
    count = int(runs[0].plan["seeds"])
    there = {(run.study_id, run.trial_number, run.block) for run in runs}
    lacking: list[tuple[OpenStudy, int, int]] = []
    for study in opened:
        for trial in _asked(study, runs):
            lacking += [
                (study, trial, block)
                for block in range(count)
                if (study.study_id, trial, block) not in there
            ]
    seeds = _seeds(opened, runs)
    wanted = sorted({(study.membership.search, block) for study, _, block in lacking} - set(seeds))
    if wanted:
        fresh = new_seeds(opened, len(wanted))
        seeds |= dict(zip(wanted, fresh, strict=True))
    configurations = {study.study_id: snapshot(study) for study, _, _ in lacking}
    blocks: list[list[Turn]] = [[] for _ in range(count)]
    for study, trial, block in lacking:
        seed = seeds[study.membership.search, block]
        params = configurations[study.study_id].record(trial).params
        blocks[block].append(Turn(study.study_id, trial, params, seed))
    return blocks


def _asked(study: OpenStudy, runs: Sequence[VerificationRun]) -> Iterator[int]:
    """The trials of a study that the plan of these runs tests; of a reference, its default."""
    frozen = StoredPlan.model_validate(runs[0].plan).confirms.get(study.name)
    mine = {run.trial_number for run in runs if run.study_id == study.study_id}
    if mine:
        yield from sorted(mine) if frozen is None else frozen.trials()


def _seeds(
    opened: Sequence[OpenStudy], runs: Sequence[VerificationRun]
) -> dict[tuple[int, int], int]:
    """The seeds of blocks that have begun, by a search's number and the block's."""
    search_of = {study.study_id: study.membership.search for study in opened}
    return {
        (search_of[run.study_id], run.block): run.seed for run in runs if run.study_id in search_of
    }
