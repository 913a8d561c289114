"""What can be said of studies: rows of a table, sentences, and what is missing for more."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.files.plain import in_json
from tuner.spec.objectives import axis_title
from tuner.spec.pareto import Point, hypervolume, reference_point
from tuner.study.baselines import told_all, worth
from tuner.study.snapshot import StudySnapshot, names_by_group
from tuner.verdict.compare.between import AnotherSearch, Standing, another_search_of, standings
from tuner.verdict.compare.fairness import differences, refuse_different_data
from tuner.verdict.compare.registered import RegisteredLevel, groups_of, registered_levels
from tuner.verdict.compare.rows import Row, rows_of
from tuner.verdict.compare.short_answer import hoped, short_answer
from tuner.verdict.compare.studies import DEFAULT, labels, names_of_groups
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.picks import picks_of
from tuner.verdict.reasons import about_test_split, confirmed_sentence
from tuner.verdict.stats.intervals import (
    LEAST_RUNS,
    Interval,
    percentile_interval,
    resampled_medians,
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
    """Sentences: whether the configurations of a report are worth their training, and what the
    baselines come to; nothing where no study recorded any. The studies are of the same data.
    """
    by_name = {study.name: study.results for study in studies}
    scored = next(filter(None, (each.baselines for each in by_name.values())), ())
    sentences: list[str] = []
    for row in rows:
        results, figure = by_name[row.study], row.figures.get(TEST)
        mql = figure.estimate if isinstance(figure, Interval) else figure
        record = results.configuration_of(row.trial)
        same = record is not None and row.mql_is == results.objectives[1]
        runs = (record.recorded.mql_runs or ()) if same and record else ()
        whose = f"{row.variant}, {row.hyperparameters},"
        if found := worth(mql, runs, scored, whose, error=row.mql_is):
            sentences.append(found.sentence)
    for error in dict.fromkeys(row.mql_is for row in rows if scored):
        told = ", ".join(told_all(scored, error))
        sentences.append(f"On the same windows, {axis_title(error)}: {told}")
    return tuple(sentences)


POINTS = (
    "No claim follows from the figures of single points of a front: tuner verify --confirm tests "
    "what is recommended against its default, and variants are compared by whole searches"
)
"""Of retuned rows that no confirmation chose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that `tuner compare` says."""

    task: str
    pick: str
    studies: tuple[StudySnapshot, ...]
    answer: tuple[str, ...]
    """What it comes to, in sentences."""
    hoped: tuple[str, ...]
    """What somebody hoped who rewrote a layer, and whether it is so."""
    rows: tuple[Row, ...]
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
        return {
            "answer": {"sentences": self.answer, "hoped": self.hoped},
            **plain,
            "groups": [{"name": name, "studies": names} for name, names in groups],
            **in_json(self, hypervolume="volumes", registered_levels="registered"),
            "between_variants": [each.as_dict() for each in self.between],
            **in_json(self, "without_network", "notes", "fairness", "missing"),
        }


KNEE, CONFIRMED = "knee", "confirmed"


def compare(studies: Sequence[StudySnapshot], *, pick: str | None = None) -> Report:
    """Hold studies on the same data against each other.

    Every study is represented by its default configuration and by the one that `pick` names on the
    front of its search: chosen by the search, judged by fresh seeds. Without a `pick` that is the
    knee, and in the table it is what a study's confirmation tested, where it has one. Searches of
    one variant stand together, by their numbers. For what is not verified as planned the report
    says what is missing.

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
        hoped=tuple(hoped(groups, names, between)),
        rows=rows,
        volumes=tuple(volumes),
        reference=reference,
        registered=registered,
        between=between,
        confirmed=confirmed,
        another_search=another,
        without_network=without_network(studies, rows),
        notes=tuple(_notes(studies, rows, shown, confirmed=bool(confirmed))),
        fairness=tuple(differences(studies)),
        missing=tuple(_missing(studies, chosen, pick, over)),
    )


def _notes(
    studies: Sequence[StudySnapshot], rows: Sequence[Row], shown: Container[str], *, confirmed: bool
) -> list[str]:
    """`shown` are the studies whose rows are those of their confirmation."""
    verified = [row for row in rows if row.verified]
    points = any(row.study not in shown and row.hyperparameters != DEFAULT for row in verified)
    about_split = about_test_split(study.definition for study in studies)
    return [POINTS] * points + (about_split if verified or confirmed else [])


# -- what is missing -------------------------------------------------------------------------------


def _missing(
    studies: Sequence[StudySnapshot],
    chosen: Mapping[str, Mapping[str, int]],
    pick: str,
    confirmed: Container[str],
) -> list[str]:
    """One line for each thing. Where a study is `confirmed`, that answers for it: points of its
    front may be verified beside, and are not missed.
    """
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
            if why and (found is not None or name not in confirmed):
                missing.append(f"{name}: its {role} configuration (trial {picked[role]}) {why}")
    if len(studies) < 2:  # noqa: PLR2004 - a comparison needs two
        missing.append("one study alone: name a second one to compare it with")
    elif len({study.membership.group for study in studies}) < 2:  # noqa: PLR2004 - so do groups
        missing.append(
            "searches of one variant alone: they are not held against each other; name another "
            "variant to compare it with"
        )
    return list(dict.fromkeys(missing))


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
