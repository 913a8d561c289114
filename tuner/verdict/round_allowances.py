"""What a budget in time leaves for each round of a verification: how long its runs may take, and
how many configurations that is enough for.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.storage.queue.device_time import device_seconds
from tuner.storage.queue.plans import stands_apart
from tuner.storage.queue.runs import VerificationRun
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.allowance import ALLOWANCE
from tuner.verdict.recommendation import ROUNDS
from tuner.verdict.worth_verifying import rounds_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundAllowance:
    """Of one session: the round of the searches with one number."""

    device_s: float
    top: int
    """Configurations of each search beside its default."""


def allowances(
    by_number: Mapping[int, Sequence[StudySnapshot]], budget_s: float, *, top: int, seeds: int
) -> dict[int, RoundAllowance]:
    """What the next round of the searches of each number may have of what is left of `budget_s`
    seconds for all rounds of all of them; nothing where that is not enough for a seed.

    What is left is shared by the rounds that are left. So what one does not need, the next ones
    have. Fewer configurations rather than fewer seeds: what has run too few times is not
    recommended.

    Args:
        by_number: the searches that are verified together, by the number that they have.
        budget_s: seconds on devices; what rounds have had before, or were promised, counts.
        top: configurations of a round at most, beside the default.
        seeds: of each.
    """
    everything = [run for studies in by_number.values() for each in studies for run in each.runs]
    left_s = budget_s - committed_s(everything)
    rounds = {
        number: max(0, ROUNDS - max(len(rounds_of(each)) for each in studies))
        for number, studies in by_number.items()
    }
    sessions = sum(rounds.values())
    found = {}
    for number, studies in by_number.items():
        if not rounds[number] or left_s <= 0:
            continue
        device_s = left_s / sessions
        defaults, others = (sum(costs) for costs in zip(*map(_costs, studies), strict=True))
        if device_s >= defaults + others > 0:
            enough_for = int((device_s / seeds - defaults) / others) if others else top
            found[number] = RoundAllowance(device_s=device_s, top=min(max(1, enough_for), top))
    return found


def committed_s(runs: Iterable[VerificationRun]) -> float:
    """Seconds on devices that verifications other than confirmations have had, and what sessions
    with runs to come may have yet.
    """
    sessions: dict[str, list[VerificationRun]] = {}
    for run in runs:
        if not stands_apart(run.plan):
            sessions.setdefault(run.session, []).append(run)
    total = 0.0
    for mine in sessions.values():
        spent = run_seconds(mine)
        promised = mine[0].plan.get(ALLOWANCE)
        to_come = any(run.state in ("waiting", "running") for run in mine)
        total += max(spent, promised) if to_come and promised is not None else spent
    return total


def run_seconds(runs: Iterable[VerificationRun]) -> float:
    """Seconds that the finished ones of these runs had their devices for."""
    return sum(device_seconds(run.result.recorded) for run in runs if run.result is not None)


def _costs(study: StudySnapshot) -> tuple[float, float]:
    """Seconds of a run of the default, and of another configuration that converged, as the search
    had them.
    """
    converged = [record for record in study.results.complete if record.converged]
    defaults = [device_seconds(r.recorded) for r in converged if r.is_default]
    others = [device_seconds(r.recorded) for r in converged if not r.is_default]
    middle = statistics.median(others) if others else 0.0
    return (defaults[0] if defaults else middle), middle
