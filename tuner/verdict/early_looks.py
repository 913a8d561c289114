"""Stopping a verification early, at its planned looks, once its answer is clear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuner.spec.margin import MARGIN
from tuner.storage.queue.verifications import VerificationRun
from tuner.study.open import OpenStudy
from tuner.verdict.stats.effects import Comparison, questions
from tuner.verdict.stats.pairs import judge, judge_at_look
from tuner.verdict.verified import Verified, group_runs, verifications_of


def stop_if_clear(opened: Sequence[OpenStudy]) -> bool:
    """Take what is left of a verification off the plan, where it was planned to stop early and its
    answer is clear.

    Only at its planned looks, each once all runs before it are finished. True when runs were taken
    off.
    """
    queue = verifications_of(opened)
    sessions = [
        session for session, plan in queue.waiting_plans().items() if len(plan.get("looks", ())) > 1
    ]
    if not sessions:  # nearly always, and workers ask before every run
        return False
    by_session = _sessions(queue.runs())
    stopped = False
    for session in sessions:
        look = _clear_at(by_session[session], {each.study_id: each for each in opened})
        if look is not None:
            stopped |= bool(
                queue.skip_waiting(session, f"the answer was clear after {look} seeds", look=look)
            )
    return stopped


def _clear_at(runs: Sequence[VerificationRun], opened: Mapping[int, OpenStudy]) -> int | None:
    """The look after which a session's answer is clear;
    None where it is not, or there are no early looks.
    """
    plan = runs[0].plan
    looks = tuple(int(look) for look in plan.get("looks", ()))
    done = _complete_blocks(runs)
    current = [look for look in looks[:-1] if look <= done]
    if not current or set(plan.get("picks", {})) - {each.name for each in opened.values()}:
        return None  # a worker of some of the studies cannot judge for all of them
    groups = {each.name: each.membership.group for each in opened.values()}
    asked = questions(plan.get("picks", {}), groups)
    verified = {
        each.name: each
        for study_id, study in opened.items()
        for each in group_runs(
            study.name,
            [run for run in runs if run.study_id == study_id],
            device_model=study.device_model(),
        )
    }
    margin = min(each.policy().counted_margin for each in opened.values())
    for look in current:
        answers = compare_at(verified, asked, look=look, looks=looks, margin=margin)
        if answers and all(answer.decided for answer in answers):
            return look
    return None


def compare_at(
    verified: Mapping[str, Verified],
    asked: Sequence[Any],
    *,
    look: int | None,
    looks: tuple[int, ...],
    margin: float = MARGIN,
) -> tuple[Comparison, ...]:
    """Answer questions by verified configurations: at a look of a design with `looks`, or as
    planned without looks. MQLs that differ by less than the `margin`, relative, are close.
    """
    if look is None:
        return judge([each.sample() for each in verified.values()], asked, margin=margin)
    samples = [each.sample(blocks=look) for each in verified.values()]
    return judge_at_look(samples, asked, look=look, looks=looks, margin=margin)


def _sessions(runs: Iterable[VerificationRun]) -> dict[str, list[VerificationRun]]:
    sessions: dict[str, list[VerificationRun]] = {}
    for run in runs:
        sessions.setdefault(run.session, []).append(run)
    return sessions


def _complete_blocks(runs: Sequence[VerificationRun]) -> int:
    """How many of the first blocks have all their runs finished."""
    unfinished = [run.block for run in runs if run.state != "finished"]
    return min(unfinished) if unfinished else max(run.block for run in runs) + 1
