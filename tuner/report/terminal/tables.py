"""Tables of a study's results, for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optuna.trial import TrialState
from rich.cells import cell_len
from rich.table import Table

from tuner.config import BUILT_IN, Value
from tuner.display.terminal import Console, make_console, number_table
from tuner.display.text import command_line, option, shortened, shown, shown_value
from tuner.report.study_status import Alarm, alarms_of_ended, in_lines, status_of
from tuner.spec.objectives import axis_title, heading
from tuner.spec.program import clock_in_words
from tuner.spec.study_file import builtin_variants
from tuner.storage.records import Counts
from tuner.storage.url import DEFAULT_URL, absolute, parse_url
from tuner.study.open import OpenStudy
from tuner.study.results import (
    StudyResults,
    TrialRecord,
    baselines_of,
    in_words,
    loses,
    read_results,
)
from tuner.study.snapshot import snapshot
from tuner.verdict.recommendation import why_none

# What to run after a launch: only what will work now, quoted as a shell needs it.


def next_steps(opened: Sequence[OpenStudy], launch: Sequence[str], *, ended: str) -> list[str]:
    """Commands, the most useful one first.
    `launch` are the words of the one that has just ended.
    """
    results = [read_results(each) for each in opened]
    if ended != "filled" and not any(each.front for each in results):
        first = list(launch)
    else:
        first = _on_results(opened, results)
    return [command_line(first), command_line(["tuner", "dashboard", *_storage(opened[0])])]


def _on_results(opened: Sequence[OpenStudy], results: Sequence[StudyResults]) -> list[str]:
    """A configuration of the first study that has one to recommend; else a trial that says why
    there is none.
    """
    for study, found in zip(opened, results, strict=True):
        if found.front and not found.infeasible:
            # What is recommended takes some trials; a point of the front is there at once.
            pick = [] if why_none(snapshot(study)) is None else ["--pick", "knee"]
            return ["tuner", "best", *_study(study), *pick, *_storage(study)]
    for study, found in zip(opened, results, strict=True):
        failed = [record.number for record in found.records if record.state == TrialState.FAIL]
        if failed:
            which = [str(failed[0]), *option("--study", study.name)]
            return ["tuner", "trial", *which, *_storage(study)]
    return ["tuner", "status", *_storage(opened[0])]


def _storage(opened: OpenStudy) -> list[str]:
    """The flag that leads back to this database;
    what is secret has to come from the environment again.
    """
    address = opened.database.address
    here = absolute(parse_url(DEFAULT_URL)).sqlite_path
    usual = address.is_sqlite and address.sqlite_path == here
    return [] if usual or address.holds_secrets else ["--storage", str(address)]


def _study(opened: OpenStudy) -> list[str]:
    """The flags by which `tuner best` finds the study:
    files of the user's own are not known by their names.
    """
    variant, task = opened.definition.variant, opened.definition.task_name
    # No task file may have the name of such a task.
    built_in = opened.definition.task["source"]["kind"] == task and variant in builtin_variants()
    usual = built_in and opened.membership.group == f"{task}-{variant}"
    return ["--variant", variant, "--task", task] if usual else option("--study", opened.name)


# Lines at the end of a launch: how much there is, what has no values, what needs no network.


GPU_HOURS = "gpu_hours_spent"
"""How a launch ends that no device hours are left for."""


def held_in_words(counts: Counts) -> str:
    """How much of what was asked for there is, and why it is not more."""
    held = f"{counts.finished} of {counts.budget} trials finished"
    if counts.finished > counts.budget:
        held = f"{counts.finished} trials finished, {counts.budget} asked for"
    if counts.time_is_up:
        held += ", and they have had the search's time"
    if counts.lacks_hours:
        held += ", and the device hours are spent"
    return held


def stopped_in_words(ended: str) -> str:
    """Of what ended before all was there, and how to go on: without its full stop."""
    more = " with a larger --max-gpu-hours" if ended == GPU_HOURS else ""
    return (
        f"stopped early ({ended.replace('_', ' ')}): the same command{more} continues where this "
        "one stopped"
    )


def without_values(results: StudyResults) -> str:
    reasons: dict[str, int] = {}
    for record in results.records:
        if record.state.name in ("FAIL", "PRUNED"):
            missed = record.recorded.target_missed
            reason = "missed target" if missed else record.recorded.stopped_by or "failed"
            reasons[reason] = reasons.get(reason, 0) + 1
    told = (f", {number} {why.replace('_', ' ')}" for why, number in sorted(reasons.items()))
    return "".join(told)


def column_lines(results: StudyResults) -> list[str]:
    """The test MQL of each target column, of the best of the front, where there are several."""
    best = min(results.front, key=lambda each: each.values[1] if each.values else 0.0, default=None)
    if best is None or not best.recorded.column_test_mql:
        return []
    known = best.recorded.column_test_mql.items()
    each = [f"{shown(name)} {mql:.4g}" for name, mql in known if mql is not None]
    return [f"test MQL of trial {best.number} by target column, in its units: {', '.join(each)}"]


def baseline_lines(results: StudyResults) -> list[str]:
    """What forecasts without a network come to, and that the front's best is no better."""
    objective = results.objectives[1]
    baselines = baselines_of(results.records, objective)
    if not baselines:
        return []
    each = [f"{in_words(name)} {mql:.4g}" for name, mql in baselines.items()]
    lines = [f"without a network: {', '.join(each)} ({axis_title(objective)})"]
    points = [record.values[1] for record in results.front if record.values]
    if points and (said := loses(min(points), baselines, "the best of the front", error=objective)):
        lines.append(f"{said}.")
    return lines


COLUMNS = {
    "learning_rate": "lr",
    "weight_decay": "decay",
    "dropout": "dropout",
    "hidden_size": "hidden",
    "batch_size": "batch",
}
"""Of the built-in hyperparameters; the network's own have columns of their names."""
GAP = 2
WIDEST_NAME = 16
"""Of a hyperparameter's name and value."""
WIDEST = 60
"""Of one cell: a study with a longer name would leave no room to the others' rows."""
MARKS = (
    ("*", "the default hyperparameters"),
    ("~", "did not converge: its time is where a limit cut it"),
    ("!", "timing contaminated: something else used the device meanwhile"),
    ("x", "beyond the limits that the study was given"),
)


def front_table(opened: OpenStudy, results: StudyResults) -> Table:
    """The Pareto front, fastest first; the default
    configuration is added, dim, when it is not on it.
    """
    kind = "front" if not results.censored else "front of trials that did not converge"
    if results.infeasible:
        kind += f" (no trial has {results.limits})"
    elif results.limits:
        kind += f" of trials with {results.limits}"
    others = [each for each in results.configurations if each.is_default]
    others = [each for each in others if each not in results.front]
    names = _hyperparameters([*results.front, *others])
    columns = [COLUMNS.get(name, shortened(name, WIDEST_NAME)) for name in names]
    objectives = (heading(name) for name in results.objectives)
    heads = ("trial", *objectives, "epochs", *columns, "")
    table = number_table(*heads, title=f"{opened.name}: Pareto {kind}")
    for record in results.front:
        table.add_row(*_cells(record, names))
    for record in others:
        table.add_row(*_cells(record, names), style="dim")
    return table


def _hyperparameters(records: Iterable[TrialRecord]) -> list[str]:
    """Those that some of the records have, the built-in ones first."""
    found = {name for record in records for name in record.params}
    return [name for name in BUILT_IN if name in found] + sorted(found.difference(BUILT_IN))


def _marks(record: TrialRecord) -> str:
    holds = (
        record.is_default,
        not record.converged,
        bool(record.recorded.contaminated),
        not record.feasible,
    )
    return "".join(mark for (mark, _), held in zip(MARKS, holds, strict=True) if held)


def _legend(records: Iterable[TrialRecord]) -> list[str]:
    used = {mark for record in records for mark in _marks(record)}
    return [f"  {mark}  {meaning}" for mark, meaning in MARKS if mark in used]


def _cells(record: TrialRecord, names: Sequence[str]) -> tuple[str, ...]:
    assert record.values is not None, "only complete trials have a row"
    return (
        str(record.number),
        f"{record.values[0]:.3f}",
        f"{record.values[1]:.4f}",
        "" if record.recorded.epochs is None else str(record.recorded.epochs),
        *(_cell(name, record.params.get(name)) for name in names),
        " ".join(filter(None, (_marks(record), record.runs_in_words))),
    )


def _cell(name: str, value: Value | None) -> str:
    """Empty where a configuration has no such hyperparameter."""
    if value is None:
        return ""
    if name == "learning_rate":
        return f"{value:.2e}"
    if name == "weight_decay":
        return f"{value:.1e}" if value else "0"
    if name == "dropout":
        return f"{value:.3f}"
    return shortened(shown_value(value, 4) if name not in BUILT_IN else value, WIDEST_NAME)


def print_summary(opened: Sequence[OpenStudy], launch: Sequence[str], *, ended: str) -> None:
    """What a launch came to: each study's front, failures with their reasons, and where to go next.

    `launch` are the words of the command, to be proposed again.
    """
    console = make_console()
    for each in opened:
        results = read_results(each)
        counts = each.ledger.counts()
        if results.front:
            console.print(front_table(each, results))
            for line in _legend(results.configurations):
                console.print(line)
        else:
            console.print(f"{each.name}: no finished trial to show yet")
        console.print(f"{held_in_words(counts)}{without_values(results)}")
        for line in (*column_lines(results), *baseline_lines(results)):
            console.print(line, style="yellow" if "loses" in line else "")
        _warn_of_timings(console, results)
        if by := clock_in_words(each.definition.clock):
            console.print(f"Times are by {by}.")
        console.print()
    if ended != "filled":
        console.print(f"{stopped_in_words(ended).capitalize()}.")
    for index, command in enumerate(next_steps(opened, launch, ended=ended)):
        console.print(f"{'      ' if index else 'Next: '}{command}", soft_wrap=True)


def print_status(
    opened: Sequence[OpenStudy], known: Mapping[str, dict[str, Any]] | None = None
) -> None:
    """All studies in one table, and who is at work,
    in as many columns as the terminal is wide enough for. `known` are those whose status was read.
    """
    console, known = make_console(), known or {}
    statuses = [(each, known.get(each.name) or status_of(each)) for each in _by_group(opened)]
    sizes = Counter(each.membership.group for each in opened)
    studies = [
        _study_row(status, finished=each.ledger.counts().finished, sizes=sizes)
        for each, status in statuses
    ]
    dispensable = ("device", "waiting", "pruned", "search", "verified", "running")
    console.print(fitting("Studies", studies, console, leave_out=dispensable))
    if sum(status["hypervolume"] is not None for _, status in statuses) > 1:
        console.print(
            "Hypervolumes have a reference point each and do not compare: tuner compare does that.",
            style="dim",
        )
    for each, status in statuses:
        for of_hosts in status["hosts_differ"]:
            console.print(f"{each.name}: {of_hosts}", style="yellow")
        if status["all_missed"]:
            missed = (f"trial {found['trial']}: {found['what']}" for found in status["all_missed"])
            console.print(f"{each.name}: {'; '.join(missed)}", style="yellow", soft_wrap=True)
        if lacking := status["lacking"]:
            console.print(f"{each.name}: {lacking['sentence']}", style="yellow", soft_wrap=True)
        for alarm in in_lines([Alarm(**found) for found in status["alarms"]]):
            console.print(f"{each.name}: {alarm}", style="yellow", soft_wrap=True)
    at_work = [
        _worker_row(worker, study=each.name)
        for each, status in statuses
        for worker in status["workers"]
    ]
    if at_work:
        console.print(fitting("Workers", at_work, console, leave_out=("worker", "seen", "study")))


def _by_group(opened: Sequence[OpenStudy]) -> list[OpenStudy]:
    """The searches of a group below each other; groups in the order of their first studies."""
    first: dict[str, int] = {}
    for index, each in enumerate(opened):
        first.setdefault(each.membership.group, index)
    return sorted(opened, key=lambda e: (first[e.membership.group], e.membership.search))


def _study_row(
    status: dict[str, Any], *, finished: int, sizes: Mapping[str, int]
) -> dict[str, str]:
    trials, volume = status["trials"], status["hypervolume"]
    several = max(sizes.values()) > 1
    search = f"{status['search']} of {status['group']}" if sizes[status["group"]] > 1 else "-"
    return {
        "study": status["name"],
        **({"search": search} if several else {}),
        "finished": f"{finished}/{status['budget']}{_why_no_more(status)}",
        **{state: str(trials[state]) for state in ("running", "waiting", "pruned", "failed")},
        "front": str(len(status["front"])) if status["feasible"] is not False else "none feasible",
        "verified": _share_verified(status),
        "hypervolume": f"{volume:.4g}" if volume is not None else "-",
        "device": status["device_model"] or "-",
    }


def _why_no_more(status: dict[str, Any]) -> str:
    """What keeps further trials from beginning; nothing where they may."""
    if status["time_is_up"]:
        return ", time is up"
    return ", hours are spent" if status["hours_are_spent"] else ""


def _worker_row(worker: dict[str, Any], *, study: str) -> dict[str, str]:
    return {
        "worker": worker["worker"],
        "study": study,
        "device": worker["device"],
        "trial": "-" if worker["trial"] is None else str(worker["trial"]),
        "epoch": "-" if worker["epoch"] is None else str(worker["epoch"]),
        "validation loss": f"{worker['val_loss']:.4f}" if worker["val_loss"] is not None else "-",
        "seen": f"{worker['silent_s']:.0f} s ago"
        + (f"; {worker['note']}" if worker["note"] else ""),
    }


def fitting(
    title: str, rows: Sequence[Mapping[str, str]], console: Console, *, leave_out: Sequence[str]
) -> Table:
    """A table of `rows`; where the console is too narrow,
    without columns of `leave_out`, the first ones first.
    """
    rows = [{column: shortened(text, WIDEST) for column, text in row.items()} for row in rows]
    columns = list(rows[0])
    widths = {
        column: GAP + max(len(column), *(cell_len(row[column]) for row in rows))
        for column in columns
    }
    for dropped in leave_out:
        if sum(widths[column] for column in columns) <= console.width:
            break
        if dropped in columns:
            columns.remove(dropped)
    table = Table(title=title, title_justify="left", box=None, padding=(0, GAP, 0, 0))
    for column in columns:
        words = column in ("study", "search", "device", "worker", "seen")
        table.add_column(column, justify="left" if words else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[column] for column in columns))
    return table


def _share_verified(status: dict[str, Any]) -> str:
    """What a confirmation came to; else how many of the front have fresh-seed figures. Runs that
    are still to be made in brackets.
    """
    confirmation = status["confirmation"]
    if confirmation is not None and confirmation["test"] is not None:
        return "confirmed" if confirmation["test"]["no_worse"] else "not shown"
    left = status["verification"]["waiting"] + status["verification"]["running"]
    if not status["front"]:
        return "-"
    known = sum(each["verified"] is not None for each in status["front"])
    trials = (status["lacking"] or {"trials": []})["trials"]
    lack = sum(each["trial"] in trials for each in status["front"])
    notes = [f"{left} runs to go"] * bool(left) + [f"{lack} lack timings"] * bool(lack)
    return f"{known} of {len(status['front'])}" + (f" ({', '.join(notes)})" if notes else "")


def _warn_of_timings(console: Console, results: StudyResults) -> None:
    if results.contaminated:
        console.print(
            f"{results.contaminated} of {len(results.complete)} timings are contaminated; do not "
            "trust their times",
            style="yellow",
        )
    for alarm in in_lines(alarms_of_ended(results)):
        console.print(alarm, style="yellow", soft_wrap=True)
