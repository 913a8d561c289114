"""`tuner data`: a look at data before it is searched on, and fetching the reference job's."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tuner.cli.command import argument, command, option
from tuner.cli.init import as_options
from tuner.cli.options import DataDir, Json, data_folder
from tuner.cli.output import note, print_json, say
from tuner.config import Objective
from tuner.errors import unknown_name
from tuner.files.plain import in_json
from tuner.trial.uncollected import nothing_collected

if TYPE_CHECKING:
    from tuner.data.prepare import DataFacts
    from tuner.data.proposal.file_layout import Guess
    from tuner.data.series import Series
    from tuner.data.task import Task
    from tuner.training.one_step import Pace


# `tuner data check`: what a task's data is, before hours are spent on it.


MOST_SERIES, MOST_SHARES = 10, 12
TINY = 0.005
"""A share of the objective that nobody will notice."""


@command
def check(
    file: str = argument("FILE|TASK", "A CSV or Parquet file, a task file, demo or etth."),
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Read and prepare data as a launch would, and say what it is: rows, times, gaps, windows, how
    much each column weighs in the objective, and about how long an epoch takes.

    Of a data file, the task is the one that 'tuner init data' would propose.
    """
    from tuner.data.prepare import facts_of

    task, guesses = _task(file)
    with as_options(file) if _is_data(file) else nullcontext():
        facts = facts_of(task, data_dir=data_folder(data_dir))
    pace = _pace(facts)
    if json:
        print_json(_document(facts, pace, guesses))
    else:
        for line in _lines(facts, pace):
            say(line)
        for guess in guesses:
            note(f"a guess: {guess.key} = {guess.value}: {guess.why}")
    return 0


def _task(file: str) -> tuple[Task, tuple[Guess, ...]]:
    """The task of a task file or a name, or the one proposed for a file of data, with its guesses.

    Raises:
        UsageError: no such task.
        DataError: a file that is no data.
    """
    from tuner.data.task import Task, load_task

    if not _is_data(file):
        return load_task(file), ()
    import tomllib

    from tuner.cli.init import proposed
    from tuner.data.proposal.file_layout import Told
    from tuner.data.proposal.proposed_task import task_name, task_text
    from tuner.files.toml_file import TomlDocument, validate

    path = Path(file).expanduser()
    proposal = proposed(path, task_name(path), Told())
    text = task_text(proposal, path, path)
    task = validate(TomlDocument(data=tomllib.loads(text), path=path), Task)
    source = task.source.model_copy(update={"path": path.absolute()})
    return task.model_copy(update={"source": source}), proposal.guesses


def _is_data(file: str) -> bool:
    """Whether a file of data is meant, not a task."""
    path = Path(file).expanduser()
    return path.suffix != ".toml" and (path.exists() or "." in path.name)


def _pace(facts: DataFacts) -> Pace:
    from tuner.spec.study_file import load_study_file

    with nothing_collected():
        from tuner.training.one_step import pace_of

    file = load_study_file("original")
    return pace_of(
        file.architecture(), file.default_hyperparameters(), file.training, facts.prepared
    )


def _lines(facts: DataFacts, pace: Pace) -> list[str]:
    from tuner.data.prepare import runs_of

    task, series = facts.prepared.task, facts.series
    filled_rows = sum(each.filled_rows for each in series)
    filled_cells = sum(each.filled_cells for each in series)
    what = "series" if runs_of(task) is None else "files"
    counted_as = _plural(series) if what == "series" else f"{len(series):,} files, one series"
    lines = [f"{task.name}: {facts.rows:,} rows, frequency {task.frequency}, {counted_as}"]
    for each in series[:MOST_SERIES]:
        span = " to ".join(_span(facts, each)) or "not dated"
        lines.append(f"  {each.name}: {len(each.values):,} rows, {span}")
    if len(series) > MOST_SERIES:
        lines.append(f"  and {len(series) - MOST_SERIES:,} more {what}")
    gaps = getattr(task.source, "gaps", "refuse")
    lines.append(
        f"made up: {filled_rows:,} missing rows and {filled_cells:,} empty cells"
        if filled_rows or filled_cells
        else "made up: nothing"
        + ("; rows count as consecutive, whatever lies between them" if gaps == "skip" else "")
    )
    counted = ", ".join(f"{number:,} {name}" for name, number in facts.windows.items())
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


def _of_shares(facts: DataFacts) -> list[str]:
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


def _span(facts: DataFacts, one: Series) -> tuple[str, ...]:
    """The first and the last time of a series; nothing where nobody dated its rows."""
    from tuner.data.prepare import clock_of

    return tuple(map(_day, clock_of(one)[[0, -1]])) if facts.dated else ()


def _day(time: Any) -> str:
    return str(time.astype("datetime64[s]")).replace("T", " ").removesuffix(" 00:00:00")


def _document(facts: DataFacts, pace: Pace, guesses: tuple[Guess, ...]) -> dict[str, Any]:
    task = facts.prepared.task
    return {
        "task": task.name,
        **in_json(facts, data_hash="prepared.data_hash", rows="rows"),
        "frequency": task.frequency,
        "series": [_of_series(facts, each) for each in facts.series],
        **in_json(facts, "windows", "constant", "shares"),
        "epoch": {
            "variant": "original",
            **in_json(pace, "steps", "device", about_s="seconds", measured_steps="measured"),
            "disturbed": pace.disturbed or None,
        },
        "guesses": [in_json(each, "key", "value", "why") for each in guesses],
    }


def _of_series(facts: DataFacts, one: Series) -> dict[str, Any]:
    first, last = _span(facts, one) or (None, None)
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
