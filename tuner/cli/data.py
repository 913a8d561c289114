"""`tuner data`: a look at data before it is searched on, and fetching the reference job's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tuner.cli.command import argument, command, option
from tuner.cli.init import as_options, tell_guesses, windows_of
from tuner.cli.options import DataDir, Json, data_folder
from tuner.cli.output import print_json, say
from tuner.config import Objective
from tuner.errors import unknown_name
from tuner.files.environment import nothing_collected
from tuner.files.plain import in_json

if TYPE_CHECKING:
    from tuner.data.open_file import OpenFile
    from tuner.data.prepare import PreparedData
    from tuner.data.proposal.proposed_task import Proposal
    from tuner.data.proposal.sheet import Guess
    from tuner.data.series import Series
    from tuner.data.task import Task
    from tuner.training.one_step import Pace


# `tuner data check`: what a task's data is, before hours are spent on it.


MOST_SERIES, MOST_SHARES = 10, 12
TINY = 0.005
"""A share of the objective that nobody will notice."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facts:
    """What is said of a task's data."""

    prepared: PreparedData
    series: tuple[Series, ...]
    """As they were read; those of a pattern are its files."""
    constant: tuple[str, ...]
    shares: dict[str, float]


def facts_of(task: Task, *, data_dir: Path | None = None, file: OpenFile | None = None) -> Facts:
    """Read and prepare a task's data, and look at it.

    Raises:
        DataError: data that is missing or unfit.
    """
    from tuner.data.prepare import constant_columns, objective_shares, prepare
    from tuner.data.sources import open_source
    from tuner.data.splits import long_enough

    prepared = prepare(task, data_dir=data_dir, file=file)
    series = long_enough(task, open_source(task, data_dir, file=file).parse())
    constant, shares = constant_columns(task, series), objective_shares(task, series)
    return Facts(prepared=prepared, series=series, constant=constant, shares=shares)


@command
def check(
    file: str = argument(
        "FILE|TASK",
        "A data file, a pattern of many, - (standard input), a task file, demo or etth.",
    ),
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Read and prepare data as a launch would, and say what it is: rows, times, gaps, windows, how
    much each column weighs in the objective, and about how long an epoch takes.

    Of a data file, the task is the one that 'tuner init data' would propose.
    """
    task, proposal = _task(file)
    guesses = () if proposal is None else proposal.guesses
    with as_options(file) if _is_data(file) else nullcontext():
        opened = None if proposal is None else proposal.file
        facts = facts_of(task, data_dir=data_folder(data_dir), file=opened)
    pace = _pace(facts)
    if json:
        print_json(_document(facts, pace, guesses))
    else:
        for line in _lines(facts, pace):
            say(line)
        if proposal is not None:
            tell_guesses(proposal)
    return 0


def _task(file: str) -> tuple[Task, Proposal | None]:
    """The task of a task file or a name, or the one proposed for a file of data.

    Raises:
        UsageError: no such task.
        DataError: a file that is no data.
    """
    from tuner.data.task import Task, load_task

    if not _is_data(file):
        return load_task(file), None
    import tomllib

    from tuner.cli.init import proposed
    from tuner.cli.task_text import task_text
    from tuner.data.proposal.proposed_task import task_name
    from tuner.data.proposal.sheet import Told
    from tuner.files.toml_file import TomlDocument, validate

    path = Path(file).expanduser()
    proposal = proposed(path, task_name(path), Told())
    text = task_text(proposal, path, path)
    task = validate(TomlDocument(data=tomllib.loads(text), path=path), Task)
    source = task.file.model_copy(update={"path": path}).placed_in(Path.cwd())
    return task.model_copy(update={"source": source}), proposal


def _is_data(file: str) -> bool:
    """Whether a file of data is meant, not a task."""
    path = Path(file).expanduser()
    return path.suffix != ".toml" and (path.exists() or "." in path.name or file == "-")


def _pace(facts: Facts) -> Pace:
    from tuner.spec.study_file import load_study_file

    with nothing_collected():
        from tuner.training.one_step import pace_of

    file = load_study_file("original")
    return pace_of(
        file.architecture(), file.default_hyperparameters(), file.training, facts.prepared
    )


def _lines(facts: Facts, pace: Pace) -> list[str]:
    task, series = facts.prepared.task, facts.series
    filled_rows = sum(each.filled_rows for each in series)
    filled_cells = sum(each.filled_cells for each in series)
    what = "series" if task.file.apart is None else "files"
    counted_as = _plural(series) if what == "series" else f"{len(series):,} files, one series"
    lines = [f"{task.name}: {_rows(facts):,} rows, frequency {task.frequency}, {counted_as}"]
    for each in series[:MOST_SERIES]:
        from_to = " to ".join(span(facts, each)) or "not dated"
        lines.append(f"  {each.name}: {len(each.values):,} rows, {from_to}")
    if len(series) > MOST_SERIES:
        lines.append(f"  and {len(series) - MOST_SERIES:,} more {what}")
    made_up = f"{filled_rows:,} missing rows and {filled_cells:,} empty cells"
    if not filled_rows and not filled_cells:
        skipped = "; rows count as consecutive, whatever lies between them"
        made_up = "nothing" + skipped * (task.file.gaps == "skip")
    lines.append(f"made up: {made_up}")
    counted = ", ".join(f"{number:,} {name}" for name, number in windows_of(facts.prepared).items())
    lines.append(f"windows of {task.input_size} rows in and {task.horizon} out: {counted}")
    if facts.constant:
        lines.append(f"constant in the training rows: {', '.join(facts.constant[:MOST_SHARES])}")
    lines.extend(_of_shares(facts))
    lines.append(
        f"an epoch of original at its defaults: about {_about(pace.seconds)} s on {pace.device} "
        f"({pace.steps:,} steps; measured over {pace.measured})"
        + (f"; it may be much less: {pace.disturbed}" if pace.disturbed else "")
    )
    return lines


def _of_shares(facts: Facts) -> list[str]:
    if not facts.shares:
        return ["no target changes in the training rows"]
    ordered = sorted(facts.shares.items(), key=lambda pair: -pair[1])
    lines = ["about so much of the objective is each target's, by the error of its last value:"]
    lines += [f"  {share:6.1%}  {column}" for column, share in ordered[:MOST_SHARES]]
    if len(ordered) > MOST_SHARES:
        rest = sum(share for _, share in ordered[MOST_SHARES:])
        lines.append(f"  {rest:6.1%}  {len(ordered) - MOST_SHARES} more")
    tiny = sum(1 for _, share in ordered if 0 < share < TINY)
    if tiny and facts.prepared.task.objective is Objective.MQL:
        verb = "counts" if tiny == 1 else "count"
        lines.append(
            f"  {tiny} of them hardly {verb}: MQL is in the columns' own units; where they matter, "
            'set objective = "scaled" in the task file'
        )
    return lines


def _about(seconds: float) -> str:
    """Two digits: more would promise too much."""
    return f"{float(f'{seconds:.2g}'):,.10g}"


def _plural(series: tuple[Any, ...]) -> str:
    return "1 series" if len(series) == 1 else f"{len(series):,} series"


def span(facts: Facts, one: Series) -> tuple[str, ...]:
    """The first and the last time of a series; nothing where nobody dated its rows."""
    from tuner.data.splits import clock_of

    file = facts.prepared.task.file
    return tuple(map(_day, clock_of(one)[[0, -1]])) if file.start or not file.index else ()


def _rows(facts: Facts) -> int:
    return sum(len(each.values) for each in facts.series)


def _day(time: Any) -> str:
    return str(time.astype("datetime64[s]")).replace("T", " ").removesuffix(" 00:00:00")


def _document(facts: Facts, pace: Pace, guesses: Sequence[Guess]) -> dict[str, Any]:
    task = facts.prepared.task
    return {
        "task": task.name,
        **in_json(facts, data_hash="prepared.data_hash"),
        "rows": _rows(facts),
        "frequency": task.frequency,
        "series": [_of_series(facts, each) for each in facts.series],
        "windows": windows_of(facts.prepared),
        **in_json(facts, "constant", "shares"),
        "epoch": {
            "variant": "original",
            **in_json(pace, "steps", "device", about_s="seconds", measured_steps="measured"),
            "disturbed": pace.disturbed or None,
        },
        "guesses": [in_json(each, "key", "value", "why") for each in guesses],
    }


def _of_series(facts: Facts, one: Series) -> dict[str, Any]:
    first, last = span(facts, one) or (None, None)
    return {
        "name": one.name,
        "rows": len(one.values),
        "first": first,
        "last": last,
        **in_json(one, "filled_rows", "filled_cells"),
    }


app = typer.Typer(help="Look at data; fetch that of the reference job.", no_args_is_help=True)


@app.command()
@command
def fetch(
    task: str = argument("TASK", "Which data: etth."),
    to: Path | None = option("DIR", "Where to put it (default: the user cache)."),
) -> int:
    """Download a task's data once and check it."""
    from tuner.data.sources import fetch_etth

    if task != "etth":
        raise unknown_name("downloadable data", task, ["etth"])
    say(f"etth is in {fetch_etth(to)}")
    return 0


app.command(short_help="Say what a file's or a task's data is.")(check)
