"""What verification found: fresh-seed figures of configurations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optuna.trial import TrialState

from tuner.config import Value
from tuner.files.plain import in_json
from tuner.record import Recorded
from tuner.spec.objectives import axis_title
from tuner.storage.queue.gpu_hours import GpuHours
from tuner.storage.queue.verifications import (
    VerificationRun,
    Verifications,
    cut_default,
    is_confirmation,
)
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults, TrialRecord
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.stats.intervals import LEAST_RUNS, Interval, median_interval

# The verification runs of several studies as one queue.


def verifications_of(opened: Sequence[OpenStudy]) -> Verifications:
    """The verification runs of these studies, which must be in one database."""
    engine, ids = opened[0].database.engine, [each.study_id for each in opened]
    known = {each.study_id: (each.name, each.made_at) for each in opened}
    return Verifications(engine, ids, known=known, limits=limits_of(opened))


def limits_of(opened: Sequence[OpenStudy]) -> Mapping[int, GpuHours]:
    """The limits of device time that they have, by the number of the study: one for all that share
    it.
    """
    known: dict[tuple[tuple[str, ...], float], GpuHours] = {}
    found = {}
    for each in opened:
        hours = GpuHours.of(each.database.engine, each.policy(), each.name)
        if hours is not None:
            found[each.study_id] = known.setdefault(hours.limit, hours)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The figures of one configuration by the seeds of its runs, of which `misses` have none.

    Of a contaminated timing `mql` alone has one.
    """

    seconds: Mapping[int, float]
    mql: Mapping[int, float]
    runs: int
    misses: int


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
    to_its_limit: bool = False
    """A default that the study's limit of epochs cuts off: a run that it ended counts, too."""

    def values(self, run: VerificationRun) -> tuple[float, ...] | None:
        """(seconds, test MQL) of a run that counts; None of a miss."""
        return values_in(run, to_its_limit=self.to_its_limit)

    def until(self, blocks: int, session: str | None = None) -> Verified:
        """With its first so many blocks alone, of one session or of all."""
        kept = [r for r in self.runs if r.block < blocks or session not in (None, r.session)]
        return replace(self, runs=tuple(kept))

    @property
    def counted(self) -> tuple[VerificationRun, ...]:
        """The runs that are no misses: those that converged, or were let go to their limit."""
        return tuple(run for run in self.runs if self.values(run) is not None)

    @property
    def clean(self) -> tuple[VerificationRun, ...]:
        """Of these, those whose timing nothing else disturbed."""
        return tuple(run for run in self.counted if not _recorded(run).contaminated)

    @property
    def cut_off(self) -> int:
        """How many of these the limit of epochs cut off."""
        return sum(not _recorded(run).converged for run in self.counted)

    @property
    def misses(self) -> dict[str, int]:
        """How often a run did not count, by how it ended."""
        return dict(
            Counter(str(_recorded(run).stopped_by) for run in self.runs if self.values(run) is None)
        )

    @property
    def missed(self) -> int:
        """How many runs did not count."""
        return len(self.runs) - len(self.counted)

    @property
    def contaminated(self) -> int:
        """How many runs that are no misses had their timing disturbed."""
        return len(self.counted) - len(self.clean)

    @property
    def timings(self) -> str:
        """How many timings count, and why others do not: `3 of 5 (2 contaminated)`."""
        why = ((self.contaminated, "contaminated"), (self.missed, "missed"))
        others = ", ".join(f"{count} {word}" for count, word in why if count)
        return f"{len(self.clean)} of {len(self.runs)}" + (f" ({others})" if others else "")

    @property
    def mql_is(self) -> str:
        """The name of what `mql` is: `val_mql` of a program's runs that told no other, where that
        stands for it.
        """
        told = [(run.result.values, _recorded(run)) for run in self.counted if run.result]
        instead = bool(told) and all(
            values and recorded.test_mql is None and values[1] == recorded.val_mql
            for values, recorded in told
        )
        return "val_mql" if instead else "test_mql"

    @property
    def seconds(self) -> Interval | None:
        return median_interval([values[0] for run in self.clean if (values := self.values(run))])

    @property
    def mql(self) -> Interval | None:
        return median_interval([values[1] for run in self.counted if (values := self.values(run))])

    def of_counted(self, figure: Callable[[Recorded], float | None]) -> Interval | None:
        """Median and interval of a recorded figure of the runs that count."""
        return _interval_of(self.counted, figure)

    def of_clean(self, time: Callable[[Recorded], float | None]) -> Interval | None:
        """The same of a time, which counts where nothing disturbed it."""
        return _interval_of(self.clean, time)

    def sample(self) -> Sample:
        """For comparison with others."""
        pairs = [(run, self.values(run)) for run in self.runs]
        return Sample(
            seconds={r.seed: v[0] for r, v in pairs if v and not _recorded(r).contaminated},
            mql={run.seed: values[1] for run, values in pairs if values},
            runs=len(self.runs),
            misses=sum(values is None for _, values in pairs),
        )

    @property
    def without_figures(self) -> str:
        """Why runs on fresh seeds give no figures, in words; empty where they do, or none ran."""
        n = len(self.runs)
        if not n or self.as_dict() is not None:
            return ""
        if self.missed == n:
            how = ", ".join(f"{by.replace('_', ' ')} {c}" for by, c in sorted(self.misses.items()))
            return f"{n} of {n} runs on fresh seeds missed ({how})"
        if self.mql is not None:
            timings = (
                f"of the timings {self.timings} count, and a median takes {LEAST_RUNS}"
                if self.clean
                else "every timing was disturbed"
            )
            return (
                f"on {n} fresh seeds, of which {self.missed} missed, its {axis_title(self.mql_is)} "
                f"is {self.mql:.4f}; {timings}"
            )
        return (
            f"of the timings on fresh seeds {self.timings} count, and a median takes {LEAST_RUNS}"
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
            "converged": len(self.counted) - self.cut_off,
            **in_json(self, "planned", "cut_off", "misses", "contaminated"),
            **({} if self.mql_is == "test_mql" else {"mql_is": self.mql_is}),
        }


def verified_in(study: StudySnapshot) -> dict[int, Verified]:
    """A study's configurations with verification runs, by trial number; without those of
    confirmations: what is told by these stands apart.
    """
    kept = (run for run in study.runs if not is_confirmation(run.plan))
    found = as_configurations(study.name, kept, device_model=study.device_model)
    return {each.trial_number: each for each in found}


def as_configurations(
    study: str, runs: Iterable[VerificationRun], *, device_model: str | None
) -> tuple[Verified, ...]:
    """All of these runs of one study as configurations, by trial number; those on another device
    model than the study's are left out.
    """
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
            to_its_limit=any(cut_default(run.plan, study) == number for run in mine),
        )
        for number, mine in sorted(by_trial.items())
    )


def progress(runs: Iterable[VerificationRun]) -> dict[str, int]:
    """Runs by state."""
    states = Counter(run.state for run in runs)
    return {state: states.get(state, 0) for state in ("waiting", "running", "finished", "skipped")}


def _recorded(run: VerificationRun) -> Recorded:
    return run.result.recorded if run.result else Recorded()


def _interval_of(
    runs: Sequence[VerificationRun], figure: Callable[[Recorded], float | None]
) -> Interval | None:
    return median_interval([found for run in runs if (found := figure(_recorded(run))) is not None])


def values_in(run: VerificationRun, *, to_its_limit: bool = False) -> tuple[float, ...] | None:
    """(seconds, test MQL) of a run that converged, or, with `to_its_limit`, that the limit of
    epochs cut off; None for a miss, which is also one whose test MQL was no number.
    """
    result = run.result
    if result is None or result.state != TrialState.COMPLETE:
        return None
    if not result.recorded.converged and not (to_its_limit and result.recorded.is_cut):
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


# What the search saw of a configuration, to stand beside its runs on fresh seeds: a table of both
# shows the MQL of one and the same split, whatever the search minimised.


def split_shown(verified: Sequence[Verified]) -> str:
    """The name of the MQL that these runs have: that of the test split unless none of them told
    it.
    """
    found = {each.mql_is for each in verified if each.counted}
    return "val_mql" if found == {"val_mql"} else "test_mql"


def mql_of_search(record: TrialRecord | None, name: str) -> float | None:
    """The search's MQL of that name; None where it did not record one."""
    if record is None or record.named_values is None:
        return None
    value = record.named_values.get(name)
    return value if value is not None else _number(record.recorded.named(name))


def verified_as_dict(each: Verified, results: StudyResults) -> dict[str, Any]:
    """For JSON: how its runs ended, and all that a table shows of it, null where that is not known.

    `verified` takes a time and an MQL; `fresh_seeds` has either, as soon as enough runs count for
    it, under the names of the study's time and of the split.
    """
    clock, split = results.objectives[0], each.mql_is
    record = results.configuration_of(each.trial_number)
    seen = record.named_values if record else None
    epochs = each.of_counted(lambda run: run.epochs)
    return {
        "runs": {
            "planned": each.planned,
            "finished": len(each.runs),
            "converged": len(each.counted) - each.cut_off,
            "missed": each.missed,
            "contaminated": each.contaminated,
        },
        "misses": each.misses,
        "late": [json.loads(result.to_json()) for run in each.runs for result in run.late],
        "search": seen and (seen | {split: mql_of_search(record, split)}),
        "fresh_seeds": {
            clock: _spread(each.seconds),
            split: _spread(each.mql),
            "epochs": _spread(epochs),
        },
        "verified": each.as_dict(),
    }


def _spread(found: Interval | None) -> dict[str, float] | None:
    return None if found is None else found.as_dict() | {"runs": found.runs}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
