"""What can be said of studies: rows of a table,
answers with their sentences, and what is missing for more.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.pareto import Point
from tuner.study.group import names_by_group
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.ablation import Ablation, ablation_of
from tuner.verdict.compare.another_search import AnotherSearch, another_search_of
from tuner.verdict.compare.answers import KNEES, Answer, answer_all
from tuner.verdict.compare.between import Standing, standings
from tuner.verdict.compare.confirmed import Confirmed, confirmed_of, that_ended
from tuner.verdict.compare.equal_quality import Level, levels_of
from tuner.verdict.compare.fairness import differences, refuse_different_data
from tuner.verdict.compare.registered import RegisteredLevel, groups_of, registered_levels
from tuner.verdict.compare.rows import Row, rows_of
from tuner.verdict.compare.sentences import levels as levels_of_intervals
from tuner.verdict.compare.sentences import resolution
from tuner.verdict.compare.studies import DEFAULT, labels, names_of_groups
from tuner.verdict.compare.volumes import Volume, volumes_of
from tuner.verdict.compare.without_network import without_network
from tuner.verdict.confirmed_words import about_test_split
from tuner.verdict.picks import picks_of
from tuner.verdict.questions import BETWEEN, WITHIN, sample_name
from tuner.verdict.stats.intervals import LEAST_RUNS
from tuner.verdict.verified import Verified, verified_in

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
    rows: tuple[Row, ...]
    answers: tuple[Answer, ...]
    volumes: tuple[Volume, ...]
    reference: Point | None
    levels: tuple[Level, ...]
    registered: tuple[RegisteredLevel, ...]
    between: tuple[Standing, ...]
    confirmed: tuple[Confirmed, ...]
    another_search: tuple[AnotherSearch, ...]
    ablations: tuple[Ablation, ...]
    """Of the studies that have one."""
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
        return {
            "task": self.task,
            "pick": self.pick,
            "groups": [
                {"name": name, "studies": names}
                for name, names in names_by_group(self.studies).items()
            ],
            "rows": [row.as_dict() for row in self.rows],
            "comparisons": [answer.as_dict() for answer in self.answers],
            "hypervolume": [volume.as_dict() for volume in self.volumes],
            "reference": self.reference,
            "time_at_equal_quality": [level.as_dict() for level in self.levels],
            "registered_levels": [level.as_dict() for level in self.registered],
            "between_variants": [each.as_dict() for each in self.between],
            "confirmed": [each.as_dict() for each in self.confirmed],
            "another_search": [each.as_dict() for each in self.another_search],
            "ablations": {each.study: each.as_dict() for each in self.ablations},
            "without_network": list(self.without_network),
            "notes": list(self.notes),
            "resolution": self.resolution,
            "intervals": self.intervals,
            "fairness": list(self.fairness),
            "missing": list(self.missing),
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
    over = that_ended(confirmed)
    shown = over if pick is None else {}
    called, pick = pick or (CONFIRMED if shown else KNEE), pick or KNEE
    ready, missing = _ready(studies, chosen, pick, over)
    answers, refusals = answer_all(studies, chosen, ready, pick)
    volumes, reference = volumes_of(studies)
    registered = registered_levels(groups)
    between = standings(groups, registered, names_of_groups(studies))
    rows = tuple(rows_of(studies, chosen, pick, between, shown))
    return Report(
        task=studies[0].definition.task_name,
        pick=called,
        studies=tuple(studies),
        rows=rows,
        answers=answers,
        volumes=tuple(volumes),
        reference=reference,
        levels=levels_of(studies, [each.mql for each in registered if not each.last_block]),
        registered=registered,
        between=between,
        confirmed=confirmed,
        another_search=another_search_of(groups),
        ablations=tuple(filter(None, map(ablation_of, studies))),
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
