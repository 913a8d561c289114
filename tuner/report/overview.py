"""What a first page says of studies: the answer in words, a line for each study, and what trains.

The same records of a database that is being worked at, and of studies that were exported.
"""

from __future__ import annotations

import datetime
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.errors import TunerError
from tuner.report.figures.confirmed_figure import confirmed_series, devices_of
from tuner.report.figures.style import looks
from tuner.report.study_status import duration, seconds_left, windows_in
from tuner.storage.optuna.trials import OtherStudy
from tuner.storage.queue.roster import WorkerRow
from tuner.storage.records import Counts
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults, TrialRecord
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.between import another_search_of, standings
from tuner.verdict.compare.fairness import refuse_different_data
from tuner.verdict.compare.registered import groups_of, registered_levels
from tuner.verdict.compare.short_answer import short_answer
from tuner.verdict.compare.studies import names_of_groups
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.verified import progress

# A line of the table: where a study stands.


MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """A training that goes on, and who is at it."""

    worker: WorkerRow
    doing: str
    """`trial 12`, or `trial 3 on a fresh seed`."""
    samples_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyLine:
    """A study in the table."""

    name: str
    variant: str
    task: str
    search: str
    """`search 2 of etth-rmsnorm`; empty of one that is alone."""
    state: str
    finished: int
    budget: int
    best: str = ""
    """What is best against the default; empty where nothing is known."""
    sure: str = ""
    """What that rests on."""
    device: str = ""
    last: str = ""
    """When something last happened."""
    left: str = ""
    """How long it will take."""
    at_work: tuple[AtWork, ...] = ()
    colour: str = ""
    number: int | None = None
    """In its database."""


def line_of(study: StudySnapshot) -> StudyLine:
    """What its records say by themselves: of an exported study, and of one in a database."""
    there, seen = confirmation_of(study), progress(study.runs)
    best, sure = _best(study, there)
    place = study.membership
    return StudyLine(
        name=study.name,
        variant=study.variant,
        task=study.definition.task_name,
        search=f"search {place.search} of {place.group}",
        state=_over(study, there, seen["waiting"]),
        finished=study.finished,
        budget=study.finished,
        best=best,
        sure=sure,
        device=study.device_model or "",
        last=ago(last_moment(study)),
    )


def live_line(study: StudySnapshot, opened: OpenStudy, counts: Counts) -> StudyLine:
    """The same of a study that may be worked at."""
    workers = opened.roster.working()
    at_work = tuple(_at_work(opened, study.results, each) for each in workers if _trains(each))
    seen, line = progress(study.runs), line_of(study)
    to_run = seen["waiting"] + seen["running"]
    state, left = line.state, ""
    if counts.running or (at_work and not to_run):
        state = "searches"
        seconds = seconds_left(study.results, counts)
        left = f"about {duration(seconds)}" if seconds and counts.left else ""
    elif to_run and at_work:
        state = f"runs on fresh seeds: {to_run} to go"
    elif counts.finished < counts.budget:
        state = "its time is up" if counts.time_is_up else "stopped"
        state = "its device hours are spent" if counts.lacks_hours else state
    last = "now" if at_work else line.last
    line = replace(line, finished=counts.finished, budget=counts.budget, number=opened.study_id)
    return replace(line, state=state, left=left, last=last, at_work=at_work)


def _over(study: StudySnapshot, there: Confirmation | None, waiting: int) -> str:
    if there is not None and there.complete:
        return "confirmed" if there.holds else "its default stays"
    if waiting:
        return f"{waiting} runs on fresh seeds wait"
    return "searched, nothing confirmed" if study.results.front else "nothing found yet"


def _best(study: StudySnapshot, there: Confirmation | None) -> tuple[str, str]:
    """How its best compares with its default, and what that rests on."""
    if there is not None and there.complete:
        if not there.holds:
            return "nothing faster is shown to be as good", "on fresh seeds"
        assert there.test is not None, "it holds by that"
        ratio, worse = there.test.ratio, there.test.no_worse
        fast = (
            "its time is not known" if ratio is None else f"{1 / ratio.estimate:.1f} times as fast"
        )
        share = "" if worse is None else _share(worse.ratio)
        return f"{fast}{share}", "confirmed on fresh seeds"
    default, margin = study.results.default, study.policy.counted_margin
    if default is None or default.values is None:
        return "", ""
    usual_s, usual = default.values
    as_good = [each for each in study.results.eligible if _mql(each) <= usual * (1 + margin)]
    best = min((each.values for each in as_good if each.values), default=default.values)
    if best[0] >= usual_s:
        return "nothing faster yet", "as the search saw it"
    fast = f"{usual_s / best[0]:.1f} times as fast{_share(best[1] / usual)}"
    return fast, "as the search saw it, not confirmed"


def _share(ratio: float) -> str:
    """Of an error that is so many times the default's: `, error +0.5 %`."""
    found = f"{100 * (ratio - 1):+.1f}"
    return f", error {found} %" if float(found) else ", the same error"


def _mql(record: TrialRecord) -> float:
    assert record.values is not None, "it is complete"
    return record.values[1]


def _trains(worker: WorkerRow) -> bool:
    return worker.trial_number is not None or bool(worker.note)


def _at_work(opened: OpenStudy, results: StudyResults, worker: WorkerRow) -> AtWork:
    number = worker.trial_number
    trial = next((each for each in results.records if each.number == number), None)
    again = trial is not None and trial.state.is_finished()
    rate = None
    if trial is not None and not again and worker.epoch:
        curve = opened.epochs.of_trial(trial.number)
        windows = windows_in(trial, results.records)
        if curve and windows and curve[-1].elapsed_s > 0:
            rate = windows * curve[-1].epoch / curve[-1].elapsed_s
    doing = f"trial {number}" + (" on a fresh seed" if again else "") if trial else ""
    return AtWork(worker=worker, doing=doing, samples_per_s=rate)


def last_moment(study: StudySnapshot) -> datetime.datetime | None:
    """When a trial or a run on a fresh seed last ended, in UTC."""
    ends = [record.ended for record in study.results.records if record.ended is not None]
    if not ends:
        return None
    return datetime.datetime.fromisoformat(max(ends)).replace(tzinfo=datetime.UTC)


def ago(moment: datetime.datetime | None) -> str:
    """In steps so large that a page seldom changes for it."""
    if moment is None:
        return ""
    seconds = (datetime.datetime.now(datetime.UTC) - moment).total_seconds()
    if seconds < MINUTE_S:
        return "just now"
    for unit, word in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {word} ago"
    return ""


def with_looks(lines: Iterable[StudyLine]) -> list[StudyLine]:
    """The lines with their variants' colours; of a group with one search, without its number."""
    told = list(lines)
    sizes = Counter(each.search.partition(" of ")[2] for each in told)
    told = [
        each if sizes[each.search.partition(" of ")[2]] > 1 else replace(each, search="")
        for each in told
    ]
    variants = list(dict.fromkeys(each.variant for each in told))
    colours = {name: look.colour for name, look in zip(variants, looks(variants), strict=True)}
    return [replace(each, colour=colours[each.variant]) for each in told]


# The answers: of all studies of one job one, as `tuner compare` gives it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What studies of one job come to."""

    heading: str
    sentences: tuple[str, ...]
    figure: str = ""
    """Which one shows it; empty where none can."""
    studies: tuple[str, ...] = ()
    key: str = ""
    """Names the job among those of a database."""


def job_of(study: StudySnapshot) -> tuple[str, str]:
    """Studies with the same can be compared: the task's name and a key of the data."""
    definition = study.definition
    told = (definition.task_name, definition.data_hash, *definition.objectives)
    return definition.task_name, hashlib.sha256(repr(told).encode()).hexdigest()[:12]


def answers_of(studies: Sequence[StudySnapshot]) -> list[Answer]:
    """An answer for each job, in the order of their first studies. What fails is said in its
    place.
    """
    jobs: dict[tuple[str, str], list[StudySnapshot]] = {}
    for each in studies:
        jobs.setdefault(job_of(each), []).append(each)
    return [_answer(name, key, reference_first(found)) for (name, key), found in jobs.items()]


def reference_first(studies: Sequence[StudySnapshot]) -> list[StudySnapshot]:
    """Those before the others that confirmations were held against."""
    references = {there.reference for there in map(confirmation_of, studies) if there}
    return sorted(studies, key=lambda each: each.membership.group not in references)


def _answer(name: str, key: str, studies: Sequence[StudySnapshot]) -> Answer:
    names = tuple(each.name for each in studies)
    try:
        told = sentences_of(studies)
    except TunerError as error:
        told = (f"These studies cannot be compared: {error}.",)
    return Answer(heading=name, sentences=told, figure=figure_of(studies), studies=names, key=key)


def sentences_of(studies: Sequence[StudySnapshot]) -> tuple[str, ...]:
    """What `tuner compare` says of them.

    Raises:
        UsageError: they are on different data.
    """
    refuse_different_data(studies)
    groups, names = groups_of(studies), names_of_groups(studies)
    between = standings(groups, registered_levels(groups), names)
    return short_answer(groups, names, between, another_search_of(groups))


def figure_of(studies: Sequence[StudySnapshot]) -> str:
    """The figure that decides: what was confirmed, or else the fronts of the searches."""
    one_device = len(devices_of(studies)) == 1
    if one_device and any(each.found for each in confirmed_series(studies)):
        return "confirmed"
    return "front" if any(each.results.front for each in studies) else ""


_CONFIRMED = (
    "Large marks ran on fresh seeds. An arrow comes from what the search had seen of the same "
    "configuration."
)
_FRONT = (
    "Down and to the left is better. Grey is each trial, the line the best of them, the star the "
    "default. Large marks ran on fresh seeds."
)
_PARALLEL = "A line for each configuration, the front in colour, the default dashed, the rest grey."
_TRADE = "On a dotted line the product, which is the time, is the same."
CAPTIONS = {
    "confirmed": ("Confirmed", _CONFIRMED),
    "front": ("Time against error", _FRONT),
    "curves": ("Learning curves", "How fast the error falls, of the default and of the best."),
    "parallel": ("What the best have in common", _PARALLEL),
    "trade": ("Fewer epochs, or faster ones", _TRADE),
    "hypervolume": (
        "Does the search still find better ones?",
        "The area that the front dominates.",
    ),
    "throughput": ("Did a training slow down?", "Each epoch beside the trial's first ones."),
}
"""Of a study: the heading of each, and what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All that a first page says."""

    answers: Sequence[Answer]
    lines: Sequence[StudyLine]
    others: Sequence[OtherStudy] = ()
    unreadable: Mapping[str, str] | None = None
    """Why studies cannot be read, by their names."""
    reading: int = 0
    """Studies that are still to be read."""

    def as_dict(self) -> dict[str, Any]:
        """For a template."""
        return {name: getattr(self, name) for name in self.__slots__}
