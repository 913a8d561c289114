"""Where a study stands, in words: what the dashboard
shows below the note that says what the study is.
"""

from __future__ import annotations

from collections.abc import Sequence

from optuna.trial import TrialState

from tuner.display.text import in_markdown
from tuner.record import Recorded
from tuner.report.alarms import Alarm, in_lines
from tuner.spec.objectives import heading
from tuner.spec.pareto import knee_index
from tuner.storage.queue.roster import WorkerRow
from tuner.study.group import memberships
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults, TrialRecord
from tuner.verdict.stats.intervals import Interval
from tuner.verdict.verified import Verified, split_shown

_REPEATED = (
    "A configuration with several runs is one point, under its first trial's number: the medians "
    "of their seconds and of their MQL. optuna-dashboard's own plots draw each run for itself, and "
    "its own front is that of the luckiest."
)


def standing(
    opened: OpenStudy,
    results: StudyResults,
    verified: Sequence[Verified],
    workers: Sequence[WorkerRow],
    recommended: int | None = None,
    *,
    alarms: Sequence[Alarm] = (),
) -> str:
    """Where the study stands at this moment; `recommended` is the trial that it recommends.
    Markdown.
    """
    counts = opened.ledger.counts()
    failed = [record for record in results.records if record.state == TrialState.FAIL]
    tally = [f"{counts.finished} of {counts.budget} trials finished"]
    for number, word in (
        (counts.running, "running"),
        (results.of_state(TrialState.PRUNED), "pruned"),
    ):
        tally += [f"{number} {word}"] if number else []
    tally += [f"{len(failed)} failed"] if failed else []
    lines = [
        "### Where it stands",
        *_searches(opened),
        f"{', '.join(tally)}. Device: {in_markdown(opened.device_model() or 'none yet')}.",
    ]
    front = [record for record in results.front if record.values]
    if front:
        knee = knee_index([record.values for record in front if record.values])
        words = {
            front[index].number: word
            for index, word in ((0, "fastest"), (len(front) - 1, "lowest error"), (knee, "knee"))
        }
        if recommended is not None:
            words[recommended] = "**recommended**"
        shown = [r for r in results.configurations if r in front or r.number == recommended]
        shown.sort(key=lambda record: record.values or (0.0, 0.0))
        error = heading(results.objectives[1])
        lines += ["", f"| | trial | seconds | {error} | epochs |", "|---|--:|--:|--:|--:|"]
        lines += [_row(words.get(record.number, ""), record) for record in shown]
        if results.repeated:
            lines += ["", _REPEATED]
        lines += ["", *_verified(verified, repeated=results.repeated)]
    if workers:
        lines += ["", "| worker | device | trial | epoch |", "|---|---|--:|--:|"]
        lines += [_worker(worker) for worker in workers]
    if alarms:
        lines += ["", "Throughput fell:"]
        lines += [f"- {in_markdown(line)}" for line in in_lines(alarms)]
    if failed:
        lines += ["", "Failures:"]
        lines += [f"- trial {r.number}: {_reason(r.recorded)}" for r in failed[-10:]]
    return "\n".join(lines)


def _searches(opened: OpenStudy) -> list[str]:
    """Which search of its group it is, where there are others."""
    place = opened.membership
    others = [
        in_markdown(name)
        for name, theirs in memberships(opened.database).items()
        if theirs.group == place.group and name != opened.name
    ]
    if not others:
        return []
    return [
        f"Search {place.search} of group {in_markdown(place.group)}, as are: {', '.join(others)}.",
        "",
    ]


def _worker(worker: WorkerRow) -> str:
    words = (in_markdown(worker.worker), in_markdown(worker.device))
    return f"| {' | '.join(words)} | {_or_dash(worker.trial_number)} | {_or_dash(worker.epoch)} |"


def _verified(verified: Sequence[Verified], *, repeated: bool) -> list[str]:
    known = [each for each in verified if each.seconds or each.mql]
    lines = []
    if known:
        lines = [
            "On fresh seeds (medians with 95 % intervals):",
            "",
            f"| trial | seeds | seconds | {heading(split_shown(known))} |",
            "|--:|--:|--:|--:|",
            *map(_verified_row, known),
        ]
    elif not any(each.runs for each in verified):
        lines = ["One trial is one seed: no figure here has been verified on others."]
        if repeated:
            lines = ["No figure here has been verified on fresh seeds."]
    without = [
        f"- trial {each.trial_number}: {why}"
        for each in verified
        if len(each.runs) == each.planned and (why := each.without_figures)
    ]
    return [
        *lines,
        *(["", "Without figures of fresh seeds, or without all:"] if without else []),
        *without,
    ]


def _verified_row(each: Verified) -> str:
    seconds, mql = _with_interval(each.seconds, ".3f"), _with_interval(each.mql, ".4f")
    return f"| {each.trial_number} | {len(each.runs)} | {seconds} | {mql} |"


def _with_interval(found: Interval | None, form: str) -> str:
    if found is None:
        return "-"
    return f"{found.estimate:{form}} ({found.low:{form}} to {found.high:{form}})"


def _row(word: str, record: TrialRecord) -> str:
    seconds, error = record.values or (0.0, 0.0)
    epochs = _or_dash(record.recorded.epochs)
    word = ", ".join(filter(None, (word, record.runs_in_words)))
    return f"| {word} | {record.number} | {seconds:.3f} | {error:.4f} | {epochs} |"


def _or_dash(value: object) -> str:
    return "-" if value is None else in_markdown(value)


def _reason(recorded: Recorded) -> str:
    reason = recorded.failure or recorded.stopped_by or "no reason recorded"
    return in_markdown(reason)
