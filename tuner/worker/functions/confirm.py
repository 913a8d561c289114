"""A finished study of anybody's confirmed: what our rule recommends of its stored trials
(`tuner.verdict.recommendation`), and what it reports as best, run again on fresh seeds beside a
reference. Stored values and durations only guide what is tested; what is claimed rests on our runs.

Three questions share the level: whether what is recommended is no worse than the reference by more
than the margin, several one after the other; whether it saves anything; and whether the reported
best is better than the reference.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from optuna.trial import Trial
from pydantic import TypeAdapter

from tuner.errors import UsageError
from tuner.files.plain import digest_of
from tuner.spec.margin import LEAST_RUNS, LEVEL, MARGIN, Question
from tuner.storage.database import Database
from tuner.verdict.confirmation_plan import confirmation_steps
from tuner.verdict.known_runs import Run
from tuner.verdict.recommendation import recommend
from tuner.verdict.retune_cost import duration
from tuner.verdict.runs_model import LEAST_CONFIGURATIONS, RunsModel
from tuner.verdict.stats.intervals import Interval, mean_interval
from tuner.verdict.stats.noninferiority import misses_more, p_below, paired_ratio, shared
from tuner.worker.functions.called import Source
from tuner.worker.functions.calls import CalledStudy, Crew, seeds_of
from tuner.worker.functions.foreign import Configuration, ForeignStudy

Array = np.ndarray[Any, Any]
Params = Mapping[str, Any]

REFERENCE = 0
"""Its place among the configurations of a plan."""
_TYPED = -1
"""The number of a reference that the study never ran."""
_LOG_RANGE = 100
"""Numbers above 0 that are farther apart than this lie on a logarithmic scale."""
_MOST_COORDINATES = 60
_FARTHEST = 50.0
"""Of a figure's logarithm from the reference's."""
_SHORTEST_S = 1e-6
SEEDS = 30
"""Of each configuration, unless somebody says otherwise."""
ALIKE = 5
"""Seeds with the same bits, after which no noise is believed in: an accuracy may be the same
twice."""
DETERMINISTIC = "no noise seen; the function is deterministic, or it sets its own seed"
_PLAN = "tuner_plan"
"""The attribute of a study of ours: what was frozen before its first run."""
SAVED_LEVEL = 0.005
"""Of what is saved; the other questions have the rest (`tuner.spec.margin.Question`)."""


# What is worth running.


@dataclass(frozen=True, slots=True)
class Margin:
    """How much higher is still as good: a share of the reference's value, or so much in the value's
    own units. Values are those that are good when low (`ForeignStudy.low`).
    """

    relative: float = 0.0
    absolute: float = 0.0

    @classmethod
    def of(cls, said: str | float | None, study: ForeignStudy) -> Margin:
        """What `1%` or `0.002` means for a study; 1 % where nobody said.

        Raises:
            UsageError: a share where values are maximised or not positive, or no number.
        """
        text = f"{100 * MARGIN:g}%" if said is None else str(said).strip()
        percent = text.endswith("%")
        if percent and min(map(study.low_value, study.trials)) <= 0:
            raise UsageError(
                f"a margin in % needs values that are positive and minimised, which those of study "
                f"{study.name!r} are not; say one in their own units, such as --margin 0.002"
            )
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number >= 0):
            raise UsageError(f"--margin {text!r}: expected 1%, or a number in the value's units")
        return cls(relative=number / 100) if percent else cls(absolute=number)

    @property
    def in_words(self) -> str:
        return f"{100 * self.relative:g} %" if self.relative else f"{self.absolute:g}"

    def beyond(self, a: Array, b: Array) -> Array:
        """By how much `a` is above `b` beyond the margin: below 0 is as good."""
        return a - (1 + self.relative) * b - self.absolute

    def figures(self, values: Array, centre: float) -> tuple[Array, float]:
        """Positive figures to be minimised, and the relative margin that is the margin on them."""
        if self.relative:
            return values, self.relative
        unit = self.absolute / math.log1p(MARGIN) or float(np.std(values)) or 1.0
        return _exponential((values - centre) / unit), MARGIN if self.absolute else 0.0


def _exponential(logs: Array) -> Array:
    found: Array = np.exp(np.clip(logs, -_FARTHEST, _FARTHEST))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is tested, frozen before the first run on a seed that tests."""

    configurations: tuple[Configuration, ...]
    """The reference is the first."""
    steps: tuple[int, ...] = ()
    """Places of what may be as good and faster, in the order in which it is tested."""
    best: int = REFERENCE
    """The place of the reported best."""


_STORED_PLAN = TypeAdapter(Plan)
"""Of what `dataclasses.asdict` gave of one."""


def reference_of(study: ForeignStudy, against: int | None, default: Params | None) -> Configuration:
    """What everything is held against: a trial somebody names, else a configuration, else the first
    trial that was enqueued, else the reported best.

    Raises:
        UsageError: there is no such complete trial.
    """
    by_number = {each.trial: each for each in study.trials}
    if against is not None and against not in by_number:
        raise UsageError(f"trial {against} of study {study.name!r} is none that is complete")
    if against is None and default is not None:
        same = (each for each in study.trials if each.params == default)
        return next(same, Configuration(trial=None, params=default))
    number = study.enqueued if against is None else against
    return study.reported_best() if number is None else by_number[number]


def planned(
    study: ForeignStudy,
    reference: Configuration,
    margin: Margin,
    seeds: int,
    screened: Sequence[Configuration] = (),
) -> Plan:
    """What to run: the reference, what our rule recommends against it, in the order in which it is
    tested (nothing where too few ran), and the reported best. `screened` are runs of a reference
    that the study never ran.
    """
    best = study.reported_best()
    steps = _steps(study, (*study.trials, *screened), reference, margin, seeds)
    of = {each.trial: each for each in study.trials}
    there = list(dict.fromkeys([reference.trial, *steps, best.trial]))
    return Plan(
        configurations=(reference, *(of[number] for number in there[1:])),
        steps=tuple(there.index(number) for number in steps),
        best=there.index(best.trial),
    )


def _steps(
    study: ForeignStudy,
    tried: Sequence[Configuration],
    reference: Configuration,
    margin: Margin,
    seeds: int,
) -> list[int]:
    """Numbers of trials."""
    first: dict[str, int] = {}
    for each in tried:
        first.setdefault(_key(each), _TYPED if each.trial is None else each.trial)
    default = first.get(_key(reference))
    if default is None or len(first) < LEAST_CONFIGURATIONS:
        return []
    numbers = [first[_key(each)] for each in tried]
    values = np.array(list(map(study.low_value, tried)))
    figures, relative = margin.figures(values, float(values[numbers.index(default)]))
    costs = np.array([1.0 if each.cost is None else each.cost for each in tried])
    lower = np.maximum(costs, _SHORTEST_S)
    if costs.min() < 0:
        lower = _exponential((costs - np.median(costs)) / (float(costs.std()) or 1.0))
    where = coordinates([each.params for each in tried])
    rows = zip(numbers, where, lower.tolist(), figures.tolist(), strict=True)
    runs = [Run(trial=number, where=at, seconds=s, mql=figure) for number, at, s, figure in rows]
    model = RunsModel(runs, default)
    chosen = recommend(model, margin=relative).chosen
    began = chosen.trial if chosen else None
    return [e.trial for e in confirmation_steps(model, began, margin=relative, seeds=seeds)]


def _key(configuration: Configuration) -> str:
    return json.dumps(configuration.params, sort_keys=True, default=str)


def coordinates(configurations: Sequence[Params]) -> list[tuple[float, ...]]:
    """Where configurations lie in a unit cube: numbers between the least and the greatest that ran,
    choices each with a coordinate, and one more for each parameter that some have not.
    """
    import pandas as pd

    table = pd.DataFrame(list(map(dict, configurations))).convert_dtypes()
    columns: list[Array] = []
    for _, column in sorted(table.items()):
        columns.append(column.notna().to_numpy(float))
        if column.dtype.kind not in "iuf":
            choices = column.astype(str)
            columns.extend((choices == each).to_numpy(float) for each in choices.unique())
            continue
        numbers = column.to_numpy(float, na_value=math.nan)
        if 0 < _LOG_RANGE * np.nanmin(numbers) < np.nanmax(numbers):
            numbers = np.log(numbers)
        low, high = np.nanmin(numbers), np.nanmax(numbers)
        columns.append(np.nan_to_num((numbers - low) / ((high - low) or 1.0), nan=0.5))
    differing = [each for each in columns if np.ptp(each) > 0][:_MOST_COORDINATES]
    whole = np.stack(differing, axis=1) if differing else np.zeros((len(configurations), 1))
    return [tuple(row) for row in whole.tolist()]


# What runs on fresh seeds say.


@dataclass(frozen=True, slots=True)
class Ran:
    """The runs of one configuration that ended: figures by seed, low ones being good."""

    values: Mapping[int, float]
    saved: Mapping[int, float]
    """Seconds, or the second objective."""
    runs: int
    seconds: float
    """All of them together."""

    @property
    def failed(self) -> int:
        return self.runs - len(self.values)

    @property
    def mean(self) -> Interval | None:
        """Of the values; None of fewer than two."""
        return mean_interval(sorted(self.values.values()))

    def alike(self, *, both: bool) -> bool:
        """Whether all seeds gave the same bits; of `both` figures, or of the values alone."""
        figures = [self.values, self.saved] if both else [self.values]
        return all(len(set(each.values())) == 1 for each in figures)

    def is_good(self, other: Ran, margin: Margin, question: Question) -> bool:
        """Whether it is claimed that this is not above the other by more than the margin."""
        x, y = shared(self.values, other.values)
        p = p_below(margin.beyond(x, y)) if len(x) >= LEAST_RUNS else 1.0
        fails_more = misses_more((self.failed, self.runs), (other.failed, other.runs))
        return p < LEVEL * question.share and not fails_more

    def saves(self, other: Ran) -> bool:
        """Whether it is claimed that this takes less."""
        x, y = shared(self.saved, other.saved)
        if len(x) < LEAST_RUNS:
            return False
        positive = min(x.min(), y.min()) > 0
        less = np.log(x) - np.log(y) if positive else x - y
        interval = mean_interval(less)  # which is shown: a tail of slow calls is no saving
        return p_below(less) < SAVED_LEVEL and interval is not None and interval.high < 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a confirmation comes to."""

    study: ForeignStudy
    record: str
    """The study in our database that has the runs."""
    margin: Margin
    plan: Plan
    ran: tuple[Ran, ...]
    """Of each configuration of the plan."""
    why_not: str
    """Nothing may be confirmed at all; else empty."""

    @property
    def better(self) -> bool | None:
        """Whether the reported best is; None where it is the reference itself."""
        best, usual = self.ran[self.plan.best], self.ran[REFERENCE]
        same = self.plan.best == REFERENCE
        return None if same else best.is_good(usual, Margin(), Question.ANOTHERS)

    @property
    def faster(self) -> int | None:
        """The place of the last step of the chain that is claimed, and saves something."""

        def is_claimed(place: int) -> bool:
            return self.ran[place].is_good(self.ran[REFERENCE], self.margin, Question.MARGIN)

        claimed = list(itertools.takewhile(is_claimed, self.plan.steps))
        saving = (each for each in claimed[::-1] if self.ran[each].saves(self.ran[REFERENCE]))
        return next(saving, None)

    @property
    def confirmed(self) -> int | None:
        """The place of what may be taken in the reference's place."""
        return self.plan.best if self.better else self.faster

    @property
    def best(self) -> Configuration:
        """What is confirmed, else the reference."""
        return self.plan.configurations[self.confirmed or REFERENCE]

    @property
    def answer(self) -> tuple[str, ...]:
        """Sentences of 25 words at most."""
        if self.why_not:
            return (f"Nothing is confirmed: {self.why_not}.",)
        runs, seconds = (sum(each.runs for each in self.ran), sum(e.seconds for e in self.ran))
        sure = "of 100 such answers fewer than 4 are wrong"
        said = [*self._take(), *self._luck()]
        said.append(f"How sure: up to {self.ran[REFERENCE].runs} fresh seeds each; {sure}.")
        return *said, f"Cost: {duration(seconds)}, {runs} runs."

    def _take(self) -> list[str]:
        reference, best = map(self._named, (REFERENCE, self.plan.best))
        said, better, faster = [], self.better, self.faster
        if better:
            one, other = (self._mean(self.ran[e].values) for e in (self.plan.best, REFERENCE))
            said.append(
                f"Take {best}: its value is better than {reference}'s, {one:.5g} against "
                f"{other:.5g}."
            )
        if faster is not None and not (better and faster == self.plan.best):
            head = "Or take" if said else "Take"
            said.append(
                f"{head} {self._named(faster)}: no worse than {reference} by more than "
                f"{self.margin.in_words}, {self._saving(faster)}."
            )
        if not said:
            how = "with a better second value" if self.study.directions[1:] else "in less time"
            said.append(f"Keep {reference}: nothing is shown to be as good {how}.")
        if better is False:
            said.append(f"Not shown: that {best}, the reported best, is better than {reference}.")
        return said

    def _named(self, place: int) -> str:
        return self.plan.configurations[place].in_words

    def _mean(self, figures: Mapping[int, float], objective: int = 0) -> float:
        """As the study has it."""
        return self.study.low(float(np.mean(list(figures.values()))), objective)

    def _saving(self, place: int) -> str:
        mine, usual = self.ran[place].saved, self.ran[REFERENCE].saved
        what = "second value" if self.study.directions[1:] else "time"
        if ratio := paired_ratio(mine, usual):
            return f"at {ratio.estimate:.2f} times its {what} ({ratio.low:.2f} to {ratio.high:.2f})"
        return f"with a {what} of {self._mean(mine, 1):.4g} against {self._mean(usual, 1):.4g}"

    def _luck(self) -> list[str]:
        """What the reported best truly comes to."""
        there, mean = self.plan.configurations[self.plan.best], self.ran[self.plan.best].mean
        if mean is None or there.reported is None:
            return []
        luck = ": the rest was luck" if self.study.low(there.reported) < mean.low else ""
        has = "{estimate:.4g} ({low:.4g} to {high:.4g})".format(**self._value(mean))
        best = f"{there.in_words.capitalize()}, the best, reported {there.reported:.4g}"
        return [f"{best}; on fresh seeds it has {has}{luck}."]

    def _value(self, mean: Interval) -> dict[str, float]:
        """As the study has values."""
        low, high = sorted(map(self.study.low, (mean.low, mean.high)))
        return {"estimate": self.study.low(mean.estimate), "low": low, "high": high}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {"study": self.study.name, "margin": asdict(self.margin)}
        found |= asdict(self.plan)
        for each, ran in zip(found["configurations"], self.ran, strict=True):
            ratio = paired_ratio(ran.saved, self.ran[REFERENCE].saved)
            each["value"] = ran.mean and self._value(ran.mean)
            each["saved_ratio"] = ratio and ratio.as_estimate()
            each |= {"runs": ran.runs, "failed": ran.failed}
        for name in ("record", "better", "faster", "confirmed", "answer"):
            found[name] = getattr(self, name)
        return found | {"params": self.best.params}


# Running them.


def confirmed(
    database: Database,
    study: ForeignStudy,
    source: Source,
    *,
    against: int | None = None,
    default: Params | None = None,
    margin: str | float | None = None,
    seeds: int = SEEDS,
    workers: int = 1,
    gpus: Sequence[str] = (),
    note: Callable[[str], None] = lambda _line: None,
) -> Verdict:
    """Run what is missing of a study's confirmation with a function, and say what all of it says.
    Studies in our database say what was frozen, and have each run: what is killed goes on.

    Raises:
        UsageError: there is no such trial or margin, or the function cannot be loaded.
        FunctionError: its first call failed.
    """
    reference, meant = reference_of(study, against, default), Margin.of(margin, study)
    document = {
        "kind": "confirmation",
        "source": study.source,
        "study": study.name,
        "trials": [len(study.trials), study.trials[-1].trial],
        "function": source.sha256,
        "reference": [reference.trial, reference.params],
        "margin": asdict(meant),
        "seeds": seeds,
    }
    name = f"confirm {study.name[:400]} {digest_of(document)[:8]}"
    tests = _Runs(database, name, document, study)
    if (frozen := tests.optuna.user_attrs.get(_PLAN)) is None:
        screened: list[Configuration] = []
        if reference.trial is None:  # the study never ran it
            screens = _Runs(database, f"{name} screen", {**document, "kind": "screening"}, study)
            screens.runs = [(reference, seed) for seed in seeds_of(screens.name, LEAST_RUNS)]
            with Crew(screens, source, gpus) as crew:
                screens.make(crew, workers, LEAST_RUNS)
            ran = screens.ran(reference)
            for seed, value in ran.values.items():
                own = study.low(value)
                screened.append(replace(reference, reported=own, cost=ran.saved[seed]))
        frozen = asdict(planned(study, reference, meant, seeds, screened))
        tests.optuna.set_user_attr(_PLAN, frozen)
    plan = _STORED_PLAN.validate_python(frozen)
    tests.runs = _in_order(plan.configurations, seeds_of(name, seeds))
    with Crew(tests, source, gpus) as crew:
        tests.make(crew, workers, ALIKE)
        usual = tests.ran(plan.configurations[REFERENCE])
        if differ := not usual.alike(both=not tests.measures):
            tests.make(crew, workers, len(tests.runs), note)
    why_not = "" if differ else DETERMINISTIC
    return Verdict(study, name, meant, plan, tuple(map(tests.ran, plan.configurations)), why_not)


def _in_order(
    configurations: Sequence[Configuration], seeds: Sequence[int]
) -> list[tuple[Configuration, int]]:
    """The reference on the first seeds; then seed after seed, in random order within each."""
    order, reference = random.Random(seeds[0]), configurations[REFERENCE]  # noqa: S311
    runs = [(reference, seed) for seed in seeds[:ALIKE]]
    for nth, seed in enumerate(seeds):
        left = configurations if nth >= ALIKE else configurations[1:]
        runs += [(configuration, seed) for configuration in order.sample(left, len(left))]
    return runs


class _Runs(CalledStudy):
    """Configurations on fresh seeds: the nth trial of this study is the nth of the `runs`."""

    runs: Sequence[tuple[Configuration, int]] = ()

    def __init__(
        self, database: Database, name: str, document: Mapping[str, Any], study: ForeignStudy
    ) -> None:
        super().__init__(database, name, document, directions=study.directions, budget=0)
        self._of = study

    def make(
        self, crew: Crew, workers: int, count: int, note: Callable[[str], None] | None = None
    ) -> None:
        """So many of them, those included that are there."""
        self.ledger.set_budget(max(count, self.ledger.counts().budget))
        if note is not None and (left := self.ledger.counts().left):
            note(f"{left} runs on fresh seeds are to be made")
        crew.work_off(workers)

    def ran(self, configuration: Configuration) -> Ran:
        """What came of a configuration."""
        self.ledger.settle()
        trials = self.optuna.get_trials(deepcopy=False)
        mine = [
            (seed, trial)
            for trial, (of, seed) in zip(trials, self.runs, strict=False)
            if of == configuration and trial.state.is_finished()
        ]
        good = {seed: trial.values for seed, trial in mine if trial.values}
        return Ran(
            {seed: self._of.low(value) for seed, (value, _) in good.items()},
            {seed: self._of.low(saved, 1) for seed, (_, saved) in good.items()},
            len(mine),
            sum(trial.user_attrs.get("wall_clock_s", 0.0) for _, trial in mine),
        )

    def given(self, trial: Trial) -> tuple[int, Params]:
        configuration, seed = self.runs[trial.number]
        return seed, configuration.params

    def view(self) -> Mapping[str, Any]:
        best, of = self._of.reported_best(), self._of
        known = {"study_name": of.name, "user_attrs": dict(of.attributes)}
        return {**known, "best_value": best.reported, "best_params": best.params}
