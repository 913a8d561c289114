"""What can be said of studies: rows of a table, answers with their sentences, and what is missing for more."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.compare.fairness import differences, refuse_different_data
from tuner.compare.sentences import sentence, short
from tuner.compare.subject import Subject
from tuner.pareto import Point, hypervolume, reference_point
from tuner.stats import Comparison, Effect, Interval, Question
from tuner.stats.intervals import LEAST_RUNS, percentile_interval, resampled_medians
from tuner.study.verification import BETWEEN, questions, sample_name
from tuner.study.verified import Verified, compare_at

DEFAULT = "default"
FIGURES = ("epochs", "total_time_s", "s_per_epoch", "val_loss", "test_mql")
_RESAMPLES = 999


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A configuration in the table. Each figure is a median with its interval, or one number of an unverified trial."""

    study: str
    variant: str
    core_change: str
    hyperparameters: str
    trial: int
    params: Mapping[str, float | int]
    verified: bool
    runs: int
    misses: Mapping[str, int]
    figures: Mapping[str, Interval | float | None]
    verdict: str = ""

    def as_dict(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "figures"}
        figures = {name: _plain(value) for name, value in self.figures.items()}
        return plain | {"params": dict(self.params), "misses": dict(self.misses), "figures": figures}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A question's answer, who is meant, and its sentence."""

    comparison: Comparison
    a: str
    b: str
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        asked = self.comparison.question
        return {
            "a": self.a,
            "b": self.b,
            "family": asked.family,
            "sentence": self.sentence,
            "wall_clock_s": _effect(self.comparison.seconds),
            "test_mql": _effect(self.comparison.mql),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Hypervolume of a variant's configurations: of verified medians with an interval, else of the search's front."""

    study: str
    variant: str
    verified: bool
    value: float
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that `tuner compare` says."""

    task: str
    pick: str
    subjects: tuple[Subject, ...]
    rows: tuple[Row, ...]
    answers: tuple[Answer, ...]
    volumes: tuple[Volume, ...]
    reference: Point | None
    fairness: tuple[str, ...]
    missing: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of `tuner compare --json`."""
        return {
            "task": self.task,
            "pick": self.pick,
            "rows": [row.as_dict() for row in self.rows],
            "comparisons": [answer.as_dict() for answer in self.answers],
            "hypervolume": [
                {"study": v.study, "variant": v.variant, "verified": v.verified, "value": v.value}
                | {"low": v.interval.low if v.interval else None, "high": v.interval.high if v.interval else None}
                for v in self.volumes
            ],
            "reference": self.reference,
            "fairness": list(self.fairness),
            "missing": list(self.missing),
        }


def compare(subjects: Sequence[Subject], *, pick: str = "knee") -> Report:
    """Hold studies on the same data against each other.

    Every study is represented by its default configuration and by the one that `pick` names on the front of its
    search: chosen by the search, judged by fresh seeds. Only questions whose configurations are all verified, as
    planned, get an answer; for the others the report says what is missing.

    Raises:
        UsageError: the studies are on different data.
    """
    refuse_different_data(subjects)
    chosen = {subject.name: subject.picks for subject in subjects}
    ready, missing = _ready(subjects, chosen, pick)
    asked = [q for q in questions(chosen, pick=pick) if q.a in ready and q.b in ready]
    named = _names(subjects, chosen, pick)
    comparisons, refusals = _judge(subjects, ready, asked)
    answers = tuple(
        Answer(
            comparison=each,
            a=named[each.question.a],
            b=named[each.question.b],
            sentence=sentence(each, named[each.question.a], named[each.question.b]),
        )
        for each in comparisons
    )
    rows = _rows(subjects, chosen, pick, answers)
    volumes, reference = _volumes(subjects)
    return Report(
        task=subjects[0].definition.task_name,
        pick=pick,
        subjects=tuple(subjects),
        rows=tuple(rows),
        answers=answers,
        volumes=tuple(volumes),
        reference=reference,
        fairness=tuple(differences(subjects)),
        missing=(*missing, *refusals),
    )


# -- what is ready, and what is missing --------------------------------------------------------------------------------


def _ready(
    subjects: Sequence[Subject], chosen: Mapping[str, Mapping[str, int]], pick: str
) -> tuple[dict[str, Verified], list[str]]:
    """Fully verified configurations by their sample's name, and one line for each thing that is missing."""
    ready: dict[str, Verified] = {}
    missing: list[str] = []
    for subject in subjects:
        name, picked = subject.name, chosen[subject.name]
        if not any(record.converged for record in subject.results.complete):
            missing.append(f"{name}: no converged trial among {subject.finished} finished; tuner launch runs more")
            continue
        for role in (DEFAULT, pick) if picked.get(DEFAULT) != picked[pick] else (pick,):
            if role not in picked:
                missing.append(f"{name}: its default configuration has no finished trial")
                continue
            why = _unready(subject.verified.get(picked[role]))
            if why:
                missing.append(f"{name}: its {role} configuration (trial {picked[role]}) {why}")
            else:
                ready[sample_name(name, picked[role])] = subject.verified[picked[role]]
    if len(subjects) < 2:  # noqa: PLR2004 - a comparison needs two
        missing.append("one study alone: name a second one to compare it with")
    return ready, list(dict.fromkeys(missing))


def _unready(verified: Verified | None) -> str:
    if verified is None:
        return "is not verified; tuner verify does it"
    if len(verified.runs) < verified.planned:
        return f"has {len(verified.runs)} of {verified.planned} planned verification runs; tuner verify goes on"
    if len(verified.runs) < LEAST_RUNS:
        return f"is verified with {len(verified.runs)} seeds, {LEAST_RUNS} are the least"
    return ""


# -- answers -----------------------------------------------------------------------------------------------------------


def _judge(
    subjects: Sequence[Subject], ready: Mapping[str, Verified], asked: Sequence[Question]
) -> tuple[tuple[Comparison, ...], list[str]]:
    """Answers to all questions together, and a reason where there can be none."""
    if not asked:
        return (), []
    involved = {name: ready[name] for q in asked for name in (q.a, q.b)}
    designs = {(run.session, tuple(run.plan.get("looks", ()))) for v in involved.values() for run in v.runs}
    looks = next(iter(designs))[1] if len(designs) == 1 else ()
    if any(design[1] for design in designs) and not looks:
        why = (
            "verifications that may stop early were made apart, so no verdict holds for all; "
            "tuner verify them in one go"
        )
        return (), [why]
    look = _look(subjects, next(iter(designs))[0], looks) if looks else None
    return tuple(_on_one_clock(each, subjects) for each in compare_at(involved, asked, look=look, looks=looks)), []


def _look(subjects: Sequence[Subject], session: str, looks: tuple[int, ...]) -> int:
    """After how many seeds a design of several looks ended."""
    for subject in subjects:
        for run in subject.runs:
            if run.session == session and run.state == "skipped" and run.result:
                return int(run.result.attributes["look"])
    return looks[-1]


def _on_one_clock(answer: Comparison, subjects: Sequence[Subject]) -> Comparison:
    """The answer without its time where the two were measured on different devices, or by different clocks."""
    a, b = (_owner(name, subjects) for name in (answer.question.a, answer.question.b))
    if a.device_model == b.device_model and a.definition.objectives[0] == b.definition.objectives[0]:
        return answer
    why = f"measured on {a.device_model} and on {b.device_model}"
    if a.device_model == b.device_model:
        why = f"one is {a.definition.objectives[0]}, the other {b.definition.objectives[0]}"
    none = Effect(objective=answer.seconds.objective, estimate=None, pairs=answer.seconds.pairs, why_not=why)
    return dataclasses.replace(answer, seconds=none)


def _owner(name: str, subjects: Sequence[Subject]) -> Subject:
    return next(subject for subject in subjects if name.rpartition(" trial ")[0] == subject.name)


def _names(subjects: Sequence[Subject], chosen: Mapping[str, Mapping[str, int]], pick: str) -> dict[str, str]:
    """What sentences call a sample: `retuned rmsnorm`, `default rmsnorm`; the study's name where variants repeat.

    A default that is itself the front's pick is called by what it is.
    """
    variants = [subject.variant for subject in subjects]
    names: dict[str, str] = {}
    for subject in subjects:
        what = subject.variant if variants.count(subject.variant) == 1 else subject.name
        for role, word in ((pick, "retuned"), (DEFAULT, DEFAULT)):
            if role in chosen[subject.name]:
                names[sample_name(subject.name, chosen[subject.name][role])] = f"{word} {what}"
    return names


# -- the table ---------------------------------------------------------------------------------------------------------


def _rows(
    subjects: Sequence[Subject], chosen: Mapping[str, Mapping[str, int]], pick: str, answers: Sequence[Answer]
) -> list[Row]:
    """Default and retuned configuration of every study. A verdict stands with the retuned one, against the first's."""
    rows = []
    for subject in subjects:
        picked = chosen[subject.name]
        for role in dict.fromkeys((DEFAULT, pick)):
            if role not in picked:
                continue
            same = role == pick and picked.get(DEFAULT) == picked[pick]
            word = DEFAULT if role == DEFAULT else f"retuned ({pick})" + (", the default itself" if same else "")
            row = _row(subject, picked[role], word)
            if role == pick:
                row = dataclasses.replace(row, verdict=_verdict(subject, subjects[0], picked[pick], answers))
            rows.append(row)
    return rows


def _row(subject: Subject, number: int, word: str) -> Row:
    record = subject.record(number)
    verified = subject.verified.get(number)
    figures: dict[str, Interval | float | None]
    known = verified is not None and len(verified.runs) >= LEAST_RUNS  # also where all of them missed
    if verified is not None and known:
        figures = {
            "epochs": verified.attribute("epochs"),
            "total_time_s": verified.seconds,
            "s_per_epoch": verified.attribute("s_per_epoch"),
            "val_loss": verified.attribute("val_loss"),
            "test_mql": verified.mql,
        }
    else:
        attributes, values = record.attributes, record.values or (None, None)
        figures = {
            "epochs": attributes.get("epochs"),
            "total_time_s": values[0],
            "s_per_epoch": attributes.get("s_per_epoch"),
            "val_loss": attributes.get("val_loss"),
            "test_mql": attributes.get("test_mql", values[1]),
        }
    return Row(
        study=subject.name,
        variant=subject.variant,
        core_change=subject.definition.core_change,
        hyperparameters=word,
        trial=number,
        params=record.params,
        verified=known,
        runs=len(verified.runs) if verified else 0,
        misses=verified.misses if verified else {},
        figures=figures,
    )


def _verdict(subject: Subject, first: Subject, number: int, answers: Sequence[Answer]) -> str:
    if subject is first:
        return "the reference"
    mine = sample_name(subject.name, number)
    for answer in answers:
        asked = answer.comparison.question
        if asked.family == BETWEEN and asked.a == mine and asked.b.rpartition(" trial ")[0] == first.name:
            return short(answer.comparison)
    return "none: not verified"


# -- fronts ------------------------------------------------------------------------------------------------------------


def _volumes(subjects: Sequence[Subject]) -> tuple[list[Volume], Point | None]:
    """Hypervolumes below one reference point, a tenth beyond the worst of all medians (or of all unverified trials).

    All from verified medians, or all from the search where a study has none: never one of each kind.
    """
    medians = {subject.name: _medians(subject) for subject in subjects}
    if all(medians.values()):
        reference = reference_point([point for points in medians.values() for point in points.values()])
        return [
            Volume(
                study=s.name,
                variant=s.variant,
                verified=True,
                value=hypervolume(list(medians[s.name].values()), reference),
                interval=_volume_interval(s, list(medians[s.name]), reference),
            )
            for s in subjects
        ], reference
    shown = [subject for subject in subjects if subject.results.front]
    if not shown:
        return [], None
    reference = reference_point([point for subject in shown for point in subject.results.points])
    return [
        Volume(
            study=s.name,
            variant=s.variant,
            verified=False,
            value=hypervolume(s.results.points, reference),
            interval=None,
        )
        for s in shown
    ], reference


def _medians(subject: Subject) -> dict[int, Point]:
    return {
        number: (each.seconds.estimate, each.mql.estimate)
        for number, each in subject.verified.items()
        if each.seconds is not None and each.mql is not None
    }


def _volume_interval(subject: Subject, numbers: Sequence[int], reference: Point) -> Interval | None:
    """Bootstrap over seeds: each resample takes the same seeds of all configurations."""
    samples = [subject.verified[number].sample() for number in numbers]
    seeds = sorted(set.intersection(*(sample.seconds.keys() & sample.mql.keys() for sample in samples)))
    if len(seeds) < LEAST_RUNS:
        return None
    seconds = [resampled_medians(np.array([s.seconds[x] for x in seeds]), _RESAMPLES) for s in samples]
    mql = [resampled_medians(np.array([s.mql[x] for x in seeds]), _RESAMPLES) for s in samples]
    volumes = [
        hypervolume([(float(t[i]), float(m[i])) for t, m in zip(seconds, mql, strict=True)], reference)
        for i in range(_RESAMPLES)
    ]
    estimate = hypervolume([_medians(subject)[number] for number in numbers], reference)
    return percentile_interval(estimate, volumes, len(seeds))


def _plain(value: Interval | float | None) -> Any:
    return value.as_dict() if isinstance(value, Interval) else value


def _effect(effect: Effect) -> dict[str, Any]:
    found = effect.estimate
    what = "ratio" if effect.objective == "wall_clock_s" else "difference"
    return {
        what: {"estimate": found.estimate, "low": found.low, "high": found.high} if found else None,
        "pairs": effect.pairs,
        "p": effect.p,
        "p_adjusted": effect.p_adjusted,
        "tests": dict(effect.others),
        "distinguishable": effect.claimed,
        "surely_close": effect.within_margin,
        "no_verdict_because": effect.why_not or None,
    }
