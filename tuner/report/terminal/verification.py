"""What people see of a verification: its progress,
and fresh-seed figures beside those of the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TaskID
from rich.table import Table

from tuner.display.terminal import Console, make_console, number_table
from tuner.report.study_status import who
from tuner.report.terminal.live import Live, seen_to_the_end
from tuner.report.terminal.tables import stopped_in_words
from tuner.spec.objectives import axis_title, heading
from tuner.storage.queue.verifications import Verifications
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.lacking import lacking_of
from tuner.verdict.picks import picks_of
from tuner.verdict.reasons import about_test_split, confirmed_lines, confirmed_sentence
from tuner.verdict.stats.intervals import Interval
from tuner.verdict.verified import (
    Verified,
    mql_of_search,
    progress,
    split_shown,
    verified_as_dict,
    verified_in,
)


@contextmanager
def progress_view(queue: Verifications) -> Iterator[Live]:
    """A bar when stderr is a terminal, a line for each finished run when it is not."""
    console = make_console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    runs = _Runs(queue, console, bar, bar.add_task("verifying", total=None))
    with bar, seen_to_the_end(runs) as shown:
        yield shown


@dataclass(slots=True)
class _Runs(Live):
    queue: Verifications
    console: Console
    bar: Progress
    task: TaskID
    _seen: int = -1

    def look(self) -> None:
        """Show how many runs are finished."""
        try:
            counts = self.queue.counts()
        except DATABASE_FAILURES:
            return
        self.bar.update(self.task, completed=counts.finished, total=counts.budget)
        if self.bar.disable and counts.finished != self._seen:
            self.console.print(f"{counts.finished} of {counts.budget} verification runs finished")
        self._seen = counts.finished


def verification_document(opened: Sequence[OpenStudy]) -> dict[str, Any]:
    """For JSON: per study the state of its runs and every verified configuration; what to know of
    the test MQLs of those that have a confirmation.
    """
    return {
        "studies": [_study_document(each) for each in opened],
        "about_test_split": _about_test_split(opened),
    }


def _about_test_split(opened: Sequence[OpenStudy]) -> list[str]:
    of = [each.definition for each in opened if confirmed_lines(snapshot(each))]
    return about_test_split(of)


def _study_document(opened: OpenStudy) -> dict[str, Any]:
    seen = snapshot(opened)
    chosen, lacking = picks_of(seen), lacking_of(seen)
    return {
        **who(opened),
        "runs": progress(seen.runs),
        "device_model": opened.device_model(),
        "confirmation": _confirmed_as_dict(seen),
        "configurations": [
            {
                "trial": each.trial_number,
                "picks": [name for name, number in chosen.items() if number == each.trial_number],
                "params": dict(each.params),
                **verified_as_dict(each, seen.results),
            }
            for each in verified_in(seen).values()
        ],
        "lacking": lacking.as_dict() if lacking else None,
    }


def _confirmed_as_dict(seen: StudySnapshot) -> dict[str, Any] | None:
    """The study's last confirmation for JSON, with its sentence; None where there is none."""
    there = confirmation_of(seen)
    if there is None:
        return None
    return there.as_dict() | {"sentence": confirmed_sentence(there, name=seen.name)}


def print_verified(opened: Sequence[OpenStudy], *, ended: str) -> None:
    """Fresh-seed figures of every verified configuration, beside what the search had seen."""
    console = make_console()
    for each in opened:
        seen = snapshot(each)
        confirmed = confirmed_lines(seen)
        if verified := list(verified_in(seen).values()):
            console.print(_table(seen, verified))
            _notes(console, seen, verified)
        elif not confirmed:
            console.print(f"{each.name}: nothing verified yet")
        for line in confirmed:
            console.print(f"{line}.", soft_wrap=True)
    for line in _about_test_split(opened):
        console.print(f"{line}.", soft_wrap=True)
    if ended != "filled":
        console.print(f"{stopped_in_words(ended).capitalize()}.")


def _table(seen: StudySnapshot, verified: Sequence[Verified]) -> Table:
    chosen, split = picks_of(seen), split_shown(verified)
    figures = ("time s", "(search)", heading(split), "(search)", "epochs", "missed", "")
    title = f"{seen.name}: medians over fresh seeds [95 % interval]"
    table = number_table("trial", "runs", *figures, title=title)
    for each in sorted(verified, key=lambda v: v.seconds.estimate if v.seconds else float("inf")):
        record = seen.results.configuration_of(each.trial_number)
        seconds = record.values[0] if record and record.values else None
        mql = mql_of_search(record, split)
        epochs = each.of_counted(lambda run: run.epochs)
        table.add_row(
            str(each.trial_number),
            f"{len(each.runs)}/{each.planned}",
            interval(each.seconds, ".3f"),
            "-" if seconds is None else f"{seconds:.3f}",
            interval(each.mql, ".4f"),
            "-" if mql is None else f"{mql:.4f}",
            f"{epochs.estimate:.0f}" if epochs else "-",
            str(each.missed),
            ", ".join(name for name, number in chosen.items() if number == each.trial_number),
        )
    return table


def _notes(console: Console, seen: StudySnapshot, verified: Sequence[Verified]) -> None:
    objective = seen.definition.objectives[1]
    if (split := split_shown(verified)) != objective:
        console.print(
            f"  {axis_title(split)} in both columns; the search minimised the "
            f"{axis_title(objective)}",
            soft_wrap=True,
        )
    for each in verified:
        name = f"{each.study} trial {each.trial_number}"
        for how, count in each.misses.items():
            console.print(
                f"  {name}: {count} of {len(each.runs)} runs missed "
                f"({how.replace('_', ' ')}), not in its figures"
            )
        if late := sum(len(run.late) for run in each.runs):
            console.print(f"  {name}: results that came too late to count, kept: {late}")
    disturbed = sum(each.contaminated for each in verified)
    if disturbed:
        console.print(
            f"  {disturbed} timings were contaminated and are not in the times", style="yellow"
        )
    if lacking := lacking_of(seen):
        console.print(f"  {lacking.sentence}", style="yellow", soft_wrap=True)


def interval(found: Interval | None, form: str) -> str:
    """`1.234 [1.200, 1.300]`, or a dash while there are too few runs."""
    return "-" if found is None else format(found, form)
