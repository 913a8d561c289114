"""Tables of a study's results, for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from optuna.trial import TrialState
from rich.cells import cell_len
from rich.table import Table

from tuner.config import BUILT_IN
from tuner.display.terminal import Console, lines, make_console
from tuner.display.text import command_line, option, shortened, shown, shown_value
from tuner.report.study_status import Alarm, alarms_of_ended, in_lines, status_of
from tuner.report.terminal.trial_sections import energy_in_words
from tuner.spec.objectives import axis_title, heading
from tuner.spec.program import clock_in_words
from tuner.spec.study_file import builtin_variants
from tuner.storage.records import Counts
from tuner.storage.url import DEFAULT_URL, DatabaseUrl, absolute, parse_url
from tuner.study.baselines import told_all
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults, TrialRecord, read_results
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.recommendation import why_none

# What to run after a launch: only what will work now, quoted as a shell needs it.


def next_steps(
    studies: Sequence[StudySnapshot], address: DatabaseUrl, launch: Sequence[str], *, ended: str
) -> list[str]:
    """Commands in the order in which one needs them, the dashboard last.
    `launch` are the words of the one that has just ended; the studies are at `address`.
    """
    where = _storage(address)
    if ended != "filled" and not any(each.results.front for each in studies):
        found = [list(launch)]
    else:
        found = _on_results(studies, where)
    return [command_line(each) for each in (*found, ["tuner", "dashboard", *where])]


MODEL = "model.safetensors"


def _on_results(studies: Sequence[StudySnapshot], where: Sequence[str]) -> list[list[str]]:
    """What to do with a configuration of the first study that has one to recommend; else a trial
    that says why there is none.
    """
    for study in studies:
        if study.results.front and not study.results.infeasible:
            # What is recommended takes some trials; a point of the front is there at once.
            pick = [] if why_none(study) is None else ["--pick", "knee"]
            which = [*_study(study), *pick, *where]
            if study.definition.program is not None:
                return [["tuner", "best", *which]]
            train = ["tuner", "train", *which, "--output", MODEL]
            return [["tuner", "best", *which], train, ["tuner", "predict", MODEL, _recent(study)]]
    for study in studies:
        failed = [r.number for r in study.results.records if r.state == TrialState.FAIL]
        if failed:
            which = [str(failed[0]), *option("--study", study.name)]
            return [["tuner", "trial", *which, *where]]
    return [["tuner", "status", *where]]


def _recent(study: StudySnapshot) -> str:
    """Rows to forecast from: the task's own, or a file that the reader has to name."""
    return study.definition.task_name if _is_built_in(study) else "recent.csv"


def _is_built_in(study: StudySnapshot) -> bool:
    """No task file may have the name of such a task."""
    return bool(study.definition.task["source"]["kind"] == study.definition.task_name)


def print_next(commands: Sequence[str]) -> None:
    """The last lines of what has ended."""
    console = make_console()
    for index, command in enumerate(commands):
        console.print(f"{'      ' if index else 'Next: '}{command}", soft_wrap=True)


def _storage(address: DatabaseUrl) -> list[str]:
    """The flag that leads back to this database;
    what is secret has to come from the environment again.
    """
    here = absolute(parse_url(DEFAULT_URL)).sqlite_path
    usual = address.is_sqlite and address.sqlite_path == here
    return [] if usual or address.holds_secrets else ["--storage", str(address)]


def _study(study: StudySnapshot) -> list[str]:
    """The flags by which `tuner best` finds the study:
    files of the user's own are not known by their names.
    """
    variant, task = study.variant, study.definition.task_name
    usual = _is_built_in(study) and variant in builtin_variants()
    if usual and study.membership.group == f"{task}-{variant}":
        return ["--variant", variant, "--task", task]
    return option("--study", study.name)


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
    reasons = Counter[str]()
    for record in results.records:
        if record.state.name in ("FAIL", "PRUNED"):
            missed = record.recorded.target_missed
            reason = "missed target" if missed else record.recorded.stopped_by or "failed"
            reasons[reason] += 1
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


def worth_lines(results: StudyResults) -> list[str]:
    """Whether the training is worth it, and what forecasts without a network come to."""
    found = results.worth(results.best, "the best of the front")
    error = results.objectives[1]
    told = ", ".join(told_all(results.baselines, error))
    lines = [] if found is None else [f"{found.sentence}."]
    return lines + ([f"without a network: {told} ({axis_title(error)})"] if told else [])


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


def front_table(name: str, results: StudyResults, width: int) -> Table:
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
    faint = [False] * len(results.front) + [True] * len(others)
    records, title = [*results.front, *others], f"{name}: Pareto {kind}"
    return trials_table(records, results.objectives, width, title=title, faint=faint)


def trials_table(
    records: Sequence[TrialRecord],
    objectives: Sequence[str],
    width: int,
    *,
    title: str = "",
    faint: Sequence[bool] = (),
) -> Table:
    """A row for each of these complete trials, with as many of the hyperparameters as fit."""
    names, rows = _hyperparameters(records), []
    told = ["energy"] * any(each.recorded.energy_j is not None for each in records)
    told += ["cost"] * any(each.cost is not None for each in records)
    for record in records:
        assert record.values is not None, "only complete trials have a row"
        seconds, error = record.values
        row = {"trial": str(record.number)}
        row |= {heading(objectives[0]): f"{seconds:.3f}", heading(objectives[1]): f"{error:.4f}"}
        row["epochs"] = "" if record.recorded.epochs is None else str(record.recorded.epochs)
        paid = {"energy": energy_in_words(record.recorded), "cost": _money(record.cost)}
        row |= {name: text for name, text in paid.items() if name in told}
        fixed = len(row)
        for name in names:
            column = COLUMNS.get(name, shortened(name, WIDEST_NAME))
            while column in row:  # another one is called so, or is when it is cut
                column += "'"
            value = record.params.get(name, "")  # where the configuration has no such one
            row[column] = shortened(shown_value(value, 3), WIDEST_NAME)
        rows.append({**row, "": _remarks(record)})
    leave_out = list(rows[0])[-2 : fixed - 1 : -1]
    return fitting(title, rows, width, leave_out=leave_out, faint=faint)


def _money(cost: float | None) -> str:
    return "" if cost is None else f"{cost:.4g}"


def _hyperparameters(records: Iterable[TrialRecord]) -> list[str]:
    """Those that some of the records have, the built-in ones first."""
    found = {name for record in records for name in record.params}
    return [name for name in BUILT_IN if name in found] + sorted(found.difference(BUILT_IN))


def _remarks(record: TrialRecord) -> str:
    holds = {
        "default": record.is_default,
        "not converged": not record.converged,
        "contaminated": bool(record.recorded.contaminated),
        "beyond the limits": not record.feasible,
    }
    words = [word for word, held in holds.items() if held]
    return ", ".join(filter(None, (*words, record.runs_in_words)))


def print_summary(opened: Sequence[OpenStudy], launch: Sequence[str], *, ended: str) -> None:
    """What a launch came to: each study's front, failures with their reasons, and where to go next.

    `launch` are the words of the command, to be proposed again.
    """
    console = make_console()
    for each in opened:
        results = read_results(each)
        counts = each.ledger.counts()
        for line in worth_lines(results):
            console.print(line, style="" if line.startswith("without") else "bold")
        if results.front:
            console.print(front_table(each.name, results, console.width))
        else:
            console.print(f"{each.name}: no finished trial to show yet")
        console.print(f"{held_in_words(counts)}{without_values(results)}")
        for line in column_lines(results):
            console.print(line)
        _warn_of_timings(console, results)
        if by := clock_in_words(each.definition.clock):
            console.print(f"Times are by {by}.")
        console.print()
    if ended != "filled":
        console.print(f"{stopped_in_words(ended).capitalize()}.")
    studies = [snapshot(each) for each in opened]
    print_next(next_steps(studies, opened[0].database.address, launch, ended=ended))


def print_status(
    opened: Sequence[OpenStudy], known: Mapping[str, dict[str, Any]] | None = None
) -> None:
    """All studies in one table, and who is at work,
    in as many columns as the terminal is wide enough for. `known` are those whose status was read.
    """
    console, known = make_console(), known or {}
    statuses = [(each, known.get(each.name) or status_of(each)) for each in _by_group(opened)]
    sizes = Counter(each.membership.group for each in opened)
    priced = any(status["cost"] is not None for _, status in statuses)
    studies = [
        _on_one_line(
            _study_row(status, finished=each.ledger.counts().finished, sizes=sizes, priced=priced)
        )
        for each, status in statuses
    ]
    dispensable = ("device", "waiting", "pruned", "search", "verified", "running")
    console.print(fitting("Studies", studies, console.width, leave_out=dispensable))
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
        _on_one_line(_worker_row(worker, study=each.name))
        for each, status in statuses
        for worker in status["workers"]
    ]
    if at_work:
        console.print(
            fitting("Workers", at_work, console.width, leave_out=("worker", "seen", "study"))
        )


def _on_one_line(row: Mapping[str, str]) -> dict[str, str]:
    return {column: shortened(text, WIDEST) for column, text in row.items()}


def _by_group(opened: Sequence[OpenStudy]) -> list[OpenStudy]:
    """The searches of a group below each other; groups in the order of their first studies."""
    first: dict[str, int] = {}
    for index, each in enumerate(opened):
        first.setdefault(each.membership.group, index)
    return sorted(opened, key=lambda e: (first[e.membership.group], e.membership.search))


def _study_row(
    status: dict[str, Any], *, finished: int, sizes: Mapping[str, int], priced: bool
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
        **({"cost": _money(status["cost"]) or "-"} if priced else {}),
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


LEFT = ("study", "search", "device", "worker", "seen", "variant", "core change", "verdict")
"""Columns of words."""


def fitting(
    title: str,
    rows: Sequence[Mapping[str, str]],
    width: int,
    *,
    leave_out: Sequence[str],
    faint: Sequence[bool] = (),
) -> Table:
    """A table of `rows`, some of them `faint`; where `width` is too little for it, without columns
    of `leave_out`, the first ones first. Line breaks in cells are our own.
    """
    for dropped in leave_out:
        if width_of(rows) > width:
            rows = [{name: row[name] for name in row if name != dropped} for row in rows]
    table = Table(title=title or None, title_justify="left", box=None, padding=(0, GAP, 0, 0))
    fits = width_of(rows) <= width
    for column in rows[0]:
        justify: Literal["left", "right"] = "left" if column in LEFT else "right"
        table.add_column(column, justify=justify, no_wrap=fits)
    for number, row in enumerate(rows):
        style = "dim" if number < len(faint) and faint[number] else ""
        table.add_row(*map(lines, row.values()), style=style)
    return table


def width_of(rows: Sequence[Mapping[str, str]]) -> int:
    """Of a table of these rows, in characters."""
    widest = dict.fromkeys(rows[0], 0)
    for row in (dict(zip(widest, widest, strict=True)), *rows):
        for column, text in row.items():
            widest[column] = max(widest[column], *map(cell_len, text.split("\n")))
    return sum(GAP + width for width in widest.values())


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
