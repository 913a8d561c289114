"""What can be said of studies: rows of a table,
answers with their sentences, and what is missing for more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.files.plain import in_json
from tuner.spec.objectives import axis_title
from tuner.spec.pareto import Point, hypervolume, reference_point
from tuner.study.results import baselines_of, in_words, loses
from tuner.study.snapshot import StudySnapshot, names_by_group
from tuner.verdict.compare.answers import KNEES, Answer, answer_all, resolution
from tuner.verdict.compare.answers import levels as levels_of_intervals
from tuner.verdict.compare.between import AnotherSearch, Standing, another_search_of, standings
from tuner.verdict.compare.fairness import differences, refuse_different_data
from tuner.verdict.compare.registered import (
    RegisteredLevel,
    groups_of,
    registered_levels,
)
from tuner.verdict.compare.rows import Row, rows_of
from tuner.verdict.compare.short_answer import short_answer
from tuner.verdict.compare.studies import DEFAULT, labels, names_of_groups
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.picks import picks_of
from tuner.verdict.reasons import about_test_split, confirmed_sentence
from tuner.verdict.stats.intervals import (
    BETWEEN,
    LEAST_RUNS,
    WITHIN,
    Interval,
    percentile_interval,
    resampled_medians,
    sample_name,
)
from tuner.verdict.verified import Verified, verified_in

# The confirmations of the compared studies, each with its sentence.


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """What a study's last confirmation found."""

    confirmation: Confirmation
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        return self.confirmation.as_dict() | {"sentence": self.sentence}


def confirmed_of(studies: Sequence[StudySnapshot]) -> tuple[Confirmed, ...]:
    """Of each study that has one, in their order."""
    found = []
    for study, name in zip(studies, labels(studies), strict=True):
        there = confirmation_of(study)
        if there is not None:
            found.append(
                Confirmed(confirmation=there, sentence=confirmed_sentence(there, name=name))
            )
    return tuple(found)


# How much of the plane each front of a comparison dominates, below one reference point for all of
# them.


_RESAMPLES = 999


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Hypervolume of a variant's configurations:
    of verified medians with an interval, else of the search's front.
    """

    study: str
    variant: str
    verified: bool
    value: float
    interval: Interval | None
    mql_is: str = "test_mql"
    timings: int = 0
    contaminated: int = 0
    """Of so many timings of the search's trials, where it is of these."""

    def as_dict(self) -> dict[str, Any]:
        plain = in_json(self, "study", "variant", "verified", "value", "mql_is", "contaminated")
        return plain | in_json(self.interval, "low", "high")


def volumes_of(studies: Sequence[StudySnapshot]) -> tuple[list[Volume], Point | None]:
    """Hypervolumes below one reference point,
    a tenth beyond the worst of all medians (or of all unverified trials).

    All from verified medians, or all from the search where a study has none: never one of each
    kind.
    """
    medians = {study.name: _medians(study) for study in studies}
    verified = all(medians.values())
    shown = [study for study in studies if verified or study.results.front]
    if not shown:
        return [], None
    points = {name: list(mine.values()) for name, mine in medians.items()}
    if not verified:
        points = {study.name: study.results.points for study in shown}
    reference = reference_point([point for mine in points.values() for point in mine])
    volumes = []
    for study in shown:
        volume = Volume(
            study=study.name,
            variant=study.variant,
            verified=verified,
            value=hypervolume(points[study.name], reference),
            interval=_interval(study, list(medians[study.name]), reference) if verified else None,
        )
        if not verified:
            volume = dataclasses.replace(
                volume,
                mql_is=study.definition.objectives[1],
                timings=len(study.results.complete),
                contaminated=study.results.contaminated,
            )
        volumes.append(volume)
    return volumes, reference


def _medians(study: StudySnapshot) -> dict[int, Point]:
    return {
        number: (each.seconds.estimate, each.mql.estimate)
        for number, each in verified_in(study).items()
        if each.seconds is not None and each.mql is not None
    }


def _interval(study: StudySnapshot, numbers: Sequence[int], reference: Point) -> Interval | None:
    """Bootstrap over seeds: each resample takes the same seeds of all configurations."""
    samples = [verified_in(study)[number].sample() for number in numbers]
    seeds = sorted(
        set.intersection(*(sample.seconds.keys() & sample.mql.keys() for sample in samples))
    )
    if len(seeds) < LEAST_RUNS:
        return None
    seconds = [
        resampled_medians(np.array([s.seconds[x] for x in seeds]), _RESAMPLES) for s in samples
    ]
    mql = [resampled_medians(np.array([s.mql[x] for x in seeds]), _RESAMPLES) for s in samples]
    volumes = [
        hypervolume(
            [(float(t[i]), float(m[i])) for t, m in zip(seconds, mql, strict=True)], reference
        )
        for i in range(_RESAMPLES)
    ]
    estimate = hypervolume([_medians(study)[number] for number in numbers], reference)
    return percentile_interval(estimate, volumes, len(seeds))


# What of a comparison a forecast without a network would do as well.


TEST = "test_mql"


def without_network(studies: Sequence[StudySnapshot], rows: Sequence[Row]) -> tuple[str, ...]:
    """Sentences: which configurations of a report lose to a baseline, these first, and what the
    baselines come to; nothing where no study recorded any. The studies are of the same data.
    """
    by_error: dict[str, dict[str, float]] = {}
    for error in (TEST, "val_mql"):
        known = (baselines_of(study.results.records, error) for study in studies)
        if (found := next(filter(None, known), None)) and any(r.mql_is == error for r in rows):
            by_error[error] = found
    sentences: list[str] = []
    for row in rows:
        figure = row.figures.get(TEST)
        mql = figure.estimate if isinstance(figure, Interval) else figure
        whose = f"{row.variant}, {row.hyperparameters},"
        baselines = by_error.get(row.mql_is, {})
        if mql is not None and (said := loses(mql, baselines, whose, error=row.mql_is)):
            sentences.append(said)
    for error, baselines in by_error.items():
        each = [f"{in_words(name)} {mql:.4g}" for name, mql in baselines.items()]
        sentences.append(f"On the same windows, {axis_title(error)}: {', '.join(each)}")
    return tuple(sentences)


SECONDARY = (
    "A point of a front against its default is secondary: it is not what is recommended, and "
    "mostly of another quality"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that `tuner compare` says."""

    task: str
    pick: str
    studies: tuple[StudySnapshot, ...]
    answer: tuple[str, ...]
    """What it comes to, in sentences."""
    rows: tuple[Row, ...]
    answers: tuple[Answer, ...]
    volumes: tuple[Volume, ...]
    reference: Point | None
    registered: tuple[RegisteredLevel, ...]
    between: tuple[Standing, ...]
    confirmed: tuple[Confirmed, ...]
    another_search: tuple[AnotherSearch, ...]
    without_network: tuple[str, ...]
    """What forecasts without a network come to, those first that do as well."""
    notes: tuple[str, ...]
    """What to know to read the rest."""
    resolution: str
    intervals: str
    fairness: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def called(self) -> dict[str, str]:
        """What each study is called beside the others, by its name."""
        names = [study.name for study in self.studies]
        return dict(zip(names, labels(self.studies), strict=True))

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of `tuner compare --json`."""
        groups = names_by_group(self.studies).items()
        plain = in_json(self, "task", "pick", "rows", "reference", "confirmed", "another_search")
        said = ("without_network", "notes", "resolution", "intervals", "fairness", "missing")
        return {
            "answer": {"sentences": self.answer},
            **plain,
            "groups": [{"name": name, "studies": names} for name, names in groups],
            **in_json(self, comparisons="answers", hypervolume="volumes"),
            **in_json(self, registered_levels="registered"),
            "between_variants": [each.as_dict() for each in self.between],
            **in_json(self, *said),
        }


KNEE, CONFIRMED = "knee", "confirmed"


def compare(studies: Sequence[StudySnapshot], *, pick: str | None = None) -> Report:
    """Hold studies on the same data against each other.

    Every study is represented by its default configuration and by the one that `pick` names on the
    front of its search: chosen by the search, judged by fresh seeds. Without a `pick` that is the
    knee, and in the table it is what a study's confirmation tested, where it has one. Searches of
    one variant stand together, by their numbers. Only questions whose configurations are all
    verified, as planned, get an answer; for the others the report says what is missing.

    Raises:
        UsageError: the studies are on different data.
    """
    refuse_different_data(studies)
    groups = groups_of(studies)
    studies = [each for members in groups.values() for each in members]
    chosen = {study.name: picks_of(study) for study in studies}
    confirmed = confirmed_of(studies)
    ended = [each.confirmation for each in confirmed if each.confirmation.complete]
    over = {each.study: each for each in ended}
    shown = over if pick is None else {}
    called, pick = pick or (CONFIRMED if shown else KNEE), pick or KNEE
    ready, missing = _ready(studies, chosen, pick, over)
    answers, refusals = answer_all(studies, chosen, ready, pick)
    volumes, reference = volumes_of(studies)
    registered = registered_levels(groups)
    names, another = names_of_groups(studies), another_search_of(groups)
    between = standings(groups, registered, names)
    rows = tuple(rows_of(studies, chosen, pick, between, shown))
    return Report(
        task=studies[0].definition.task_name,
        pick=called,
        studies=tuple(studies),
        answer=short_answer(groups, names, between, another),
        rows=rows,
        answers=answers,
        volumes=tuple(volumes),
        reference=reference,
        registered=registered,
        between=between,
        confirmed=confirmed,
        another_search=another,
        without_network=without_network(studies, rows),
        notes=tuple(_notes(studies, answers, confirmed)),
        resolution=resolution(
            a.comparison for a in answers if a.comparison.question.family == WITHIN
        ),
        intervals=levels_of_intervals(answer.comparison for answer in answers),
        fairness=tuple(differences(studies)),
        missing=(*missing, *refusals),
    )


def _notes(
    studies: Sequence[StudySnapshot], answers: Sequence[Answer], confirmed: Sequence[Confirmed]
) -> list[str]:
    lines = []
    families = {answer.comparison.question.family for answer in answers}
    if BETWEEN in families:
        lines.append(f"{KNEES[:1].upper()}{KNEES[1:]}")
    if WITHIN in families:
        lines.append(SECONDARY)
    if confirmed or answers:
        lines += about_test_split(study.definition for study in studies)
    return lines


# -- what is ready, and what is missing ------------------------------------------------------------


def _ready(
    studies: Sequence[StudySnapshot],
    chosen: Mapping[str, Mapping[str, int]],
    pick: str,
    confirmed: Container[str],
) -> tuple[dict[str, Verified], list[str]]:
    """Fully verified configurations by their sample's name, and one line for each thing that is
    missing. Where a study is `confirmed`, that answers for it: points of its front may be verified
    beside, and are not missed.
    """
    ready: dict[str, Verified] = {}
    missing: list[str] = []
    for study in studies:
        name, picked = study.name, chosen[study.name]
        if not any(record.converged for record in study.results.complete):
            missing.append(
                f"{name}: no converged trial among {study.finished} finished; tuner launch runs "
                "more"
            )
            continue
        for role in (DEFAULT, pick) if picked.get(DEFAULT) != picked[pick] else (pick,):
            if role not in picked:
                missing.append(f"{name}: its default configuration has no finished trial")
                continue
            found = verified_in(study).get(picked[role])
            why = _unready(found, role)
            if found is None and name in confirmed:
                continue
            if why:
                missing.append(f"{name}: its {role} configuration (trial {picked[role]}) {why}")
            else:
                ready[sample_name(name, picked[role])] = verified_in(study)[picked[role]]
    if len(studies) < 2:  # noqa: PLR2004 - a comparison needs two
        missing.append("one study alone: name a second one to compare it with")
    elif len({study.membership.group for study in studies}) < 2:  # noqa: PLR2004 - so do groups
        missing.append(
            "searches of one variant alone: they are not held against each other; name another "
            "variant to compare it with"
        )
    return ready, list(dict.fromkeys(missing))


def _unready(verified: Verified | None, role: str) -> str:
    if verified is None:
        whole_front = " --choose front" if role in ("time", "mql") else ""
        return f"is not verified; tuner verify{whole_front} does it"
    if len(verified.runs) < verified.planned:
        return (
            f"has {len(verified.runs)} of {verified.planned} planned verification runs; tuner "
            "verify goes on"
        )
    if len(verified.runs) < LEAST_RUNS:
        return f"is verified with {len(verified.runs)} seeds, {LEAST_RUNS} are the least"
    return ""
