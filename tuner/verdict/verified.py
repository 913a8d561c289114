"""What verification found: fresh-seed figures of configurations,
and whether they are ready to judge by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.trial import TrialState

from tuner.config import Value
from tuner.record import Recorded
from tuner.spec.margin import MARGIN
from tuner.storage.queue.plans import stands_apart
from tuner.storage.queue.runs import VerificationRun
from tuner.study.open import OpenStudy
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.questions import questions, sample_name
from tuner.verdict.queue import verifications_of
from tuner.verdict.stats.effects import Comparison, Sample
from tuner.verdict.stats.intervals import Interval, median_interval
from tuner.verdict.stats.pairs import judge, judge_at_look


@dataclass(frozen=True, slots=True)
class Verified:
    """The verification runs of one configuration:
    the finished ones, and how many are planned in all.

    Only runs on the study's own device model are among them. Times are those of the study's time
    objective; the MQL is always that of the test split, which is what a verdict is about, whatever
    the search selected on; where its last block is kept, of the windows that these runs forecast.
    """

    study: str
    trial_number: int
    params: Mapping[str, Value]
    runs: tuple[VerificationRun, ...]
    planned: int

    @property
    def name(self) -> str:
        return sample_name(self.study, self.trial_number)

    @property
    def converged(self) -> tuple[VerificationRun, ...]:
        return tuple(run for run in self.runs if values_in(run) is not None)

    @property
    def clean(self) -> tuple[VerificationRun, ...]:
        """Converged runs whose timing nothing else disturbed."""
        return tuple(run for run in self.converged if not _recorded(run).contaminated)

    @property
    def misses(self) -> dict[str, int]:
        """How often a run did not converge, by how it ended."""
        return dict(
            Counter(str(_recorded(run).stopped_by) for run in self.runs if values_in(run) is None)
        )

    @property
    def missed(self) -> int:
        """How many runs did not converge."""
        return len(self.runs) - len(self.converged)

    @property
    def seconds(self) -> Interval | None:
        return median_interval([values[0] for run in self.clean if (values := values_in(run))])

    @property
    def mql(self) -> Interval | None:
        return median_interval([values[1] for run in self.converged if (values := values_in(run))])

    def of_converged(self, figure: Callable[[Recorded], float | None]) -> Interval | None:
        """Median and interval of a recorded figure of the converged runs."""
        return _interval_of(self.converged, figure)

    def of_clean(self, time: Callable[[Recorded], float | None]) -> Interval | None:
        """The same of a time, which counts where nothing disturbed it."""
        return _interval_of(self.clean, time)

    def sample(self, *, blocks: int | None = None) -> Sample:
        """For comparison with others; `blocks` takes only
        the first ones of a session that stopped early.
        """
        runs = [run for run in self.runs if blocks is None or run.block < blocks]
        pairs = [(run, values_in(run)) for run in runs]
        return Sample(
            name=self.name,
            seconds={r.seed: v[0] for r, v in pairs if v and not _recorded(r).contaminated},
            mql={run.seed: values[1] for run, values in pairs if values},
            runs=len(runs),
            misses=sum(values is None for _, values in pairs),
        )

    def as_dict(self) -> dict[str, Any] | None:
        """`{"seeds", "wall_clock_s": {"median", "low", "high"}, "test_mql": {...}, ...}`; None
        before there are enough.

        `seeds` counts the finished runs; misses and disturbed timings are among them and not in the
        intervals.
        """
        seconds, mql = self.seconds, self.mql
        if seconds is None or mql is None:
            return None
        clock = self.of_clean(lambda run: run.wall_clock_s)
        return {
            "seeds": len(self.runs),
            "wall_clock_s": (clock or seconds).as_dict(),
            "test_mql": mql.as_dict(),
            "planned": self.planned,
            "converged": len(self.converged),
            "misses": self.misses,
            "contaminated": len(self.converged) - len(self.clean),
        }


def read_verified(opened: OpenStudy) -> tuple[Verified, ...]:
    """All configurations of a study with verification runs, by trial number."""
    return group_runs(
        opened.name, verifications_of([opened]).runs(), device_model=opened.device_model()
    )


def verified_in(study: StudySnapshot) -> dict[int, Verified]:
    """A study's configurations with verification runs, by trial number."""
    found = group_runs(study.name, study.runs, device_model=study.device_model)
    return {each.trial_number: each for each in found}


def group_runs(
    study: str, runs: Iterable[VerificationRun], *, device_model: str | None
) -> tuple[Verified, ...]:
    """The runs of one study as configurations, but for those of confirmations: what is told by
    these stands apart. Runs on another device model than the study's are left out.
    """
    kept = (run for run in runs if not stands_apart(run.plan))
    return as_configurations(study, kept, device_model=device_model)


def as_configurations(
    study: str, runs: Iterable[VerificationRun], *, device_model: str | None
) -> tuple[Verified, ...]:
    """All of these runs of one study as configurations, by trial number."""
    by_trial: dict[int, list[VerificationRun]] = {}
    for run in runs:
        if run.state != "skipped":
            by_trial.setdefault(run.trial_number, []).append(run)
    return tuple(
        Verified(
            study=study,
            trial_number=number,
            params=mine[0].params,
            runs=tuple(run for run in mine if run.state == "finished" and _on(device_model, run)),
            planned=len(mine),
        )
        for number, mine in sorted(by_trial.items())
    )


def verified_of(opened: OpenStudy, trial_number: int) -> dict[str, Any] | None:
    """The fresh-seed figures of one trial's configuration (`BestConfig.verified`); None while there
    are too few.
    """
    found = next(
        (each for each in read_verified(opened) if each.trial_number == trial_number), None
    )
    return found.as_dict() if found else None


def progress(runs: Iterable[VerificationRun]) -> dict[str, int]:
    """Runs by state."""
    states = Counter(run.state for run in runs)
    return {state: states.get(state, 0) for state in ("waiting", "running", "finished", "skipped")}


# -- stopping early --------------------------------------------------------------------------------


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


def _recorded(run: VerificationRun) -> Recorded:
    return run.result.recorded if run.result else Recorded()


def _interval_of(
    runs: Sequence[VerificationRun], figure: Callable[[Recorded], float | None]
) -> Interval | None:
    return median_interval([found for run in runs if (found := figure(_recorded(run))) is not None])


def values_in(run: VerificationRun) -> tuple[float, ...] | None:
    """(seconds, test MQL) of a run that converged; None for a miss, which is also one whose test
    MQL was no number.
    """
    result = run.result
    if result is None or result.state != TrialState.COMPLETE or not result.recorded.converged:
        return None
    assert result.values is not None, "a complete run has values"
    mql = result.recorded.test_mql
    if "test_mql" in result.recorded.nulls:
        return None
    return result.values[0], float(result.values[1] if mql is None else mql)


def _on(device_model: str | None, run: VerificationRun) -> bool:
    """A run set aside has no device: it counts as a miss."""
    where = _recorded(run).device
    return where is None or device_model is None or where == device_model
