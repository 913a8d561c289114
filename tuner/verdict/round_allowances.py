"""What a budget in time leaves for each round of a verification: how long its runs may take, and
how many configurations that is enough for.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.config import Choice
from tuner.storage.queue.verifications import VerificationRun, Verifications, is_confirmation
from tuner.storage.records import device_seconds
from tuner.study.results import TrialRecord
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import runs_to_learn_from
from tuner.verdict.known_runs import candidates_of
from tuner.verdict.recommendation import ROUNDS, model_of, to_verify

# How long the runs of a session of a verification may have devices: said with its plan.


ALLOWANCE = "device_s"
"""In a plan: seconds of devices for all runs of its session."""
SPENT = "the time on devices that its session had was spent"


def skip_what_is_too_late(queue: Verifications) -> int:
    """Take the runs that wait off the plan where their session has had its time. Returns how
    many.
    """
    skipped = 0
    for session, plan in queue.waiting_plans().items():
        may_take = plan.get(ALLOWANCE)
        if may_take is not None and queue.spent_s(session) >= may_take:
            skipped += queue.skip_waiting(session, SPENT)
    return skipped


def in_time(queue: Verifications, run: VerificationRun, beside: Mapping[int, float]) -> bool:
    """Whether a run that is claimed may still begin. `beside` are the seconds of runs that have
    ended and may not be stored yet, by their numbers.
    """
    may_take = run.plan.get(ALLOWANCE)
    return may_take is None or queue.spent_s(run.session, beside) < may_take


# Verification where the answer is: rounds, each of the configurations that may be what is
# recommended by all that is known so far.


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
        model, count, margin=study.policy.counted_margin, candidates=candidates_of(study)
    )
    return [study.record(number) for number in (model.default, *numbers)]


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
        defaults, others = (sum(each) for each in zip(*map(costs, studies), strict=True))
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
        if not is_confirmation(run.plan):
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


def costs(study: StudySnapshot) -> tuple[float, float]:
    """Seconds of a run of the default, and of another configuration that converged, as the search
    had them.
    """
    converged = [record for record in study.results.complete if record.converged]
    defaults = [device_seconds(r.recorded) for r in converged if r.is_default]
    others = [device_seconds(r.recorded) for r in converged if not r.is_default]
    middle = statistics.median(others) if others else 0.0
    return (defaults[0] if defaults else middle), middle
