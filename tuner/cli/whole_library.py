"""`tuner variants --check neuralforecast`: which of that library's models work on a task, and what
each does with it.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli.options import note
from tuner.cli.output import print_json, say
from tuner.errors import TunerError
from tuner.models.names import LIBRARY
from tuner.trial.uncollected import nothing_collected

if TYPE_CHECKING:
    from tuner.data.prepare import PreparedData


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was seen of one class; of one that does not work, why."""

    name: str
    why_not: str | None = None
    multivariate: bool | None = None
    past: bool | None = None
    future: bool | None = None
    static: bool | None = None
    parameters: int | None = None
    step_s: float | None = None
    remarks: tuple[str, ...] = ()


def check_library(task: str, data_dir: Path | None, *, json: bool) -> int:
    """Train each class for one step at its defaults, and print what each can do.

    Raises:
        UsageError: a wrong task, or neuralforecast is not installed.
        DataError: data that is missing or unfit.
    """
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.models.of_neuralforecast.library_source import model_names

    prepared = prepare(load_task(task), data_dir=data_dir)
    names = sorted(model_names(), key=str.lower)
    rows = []
    for number, name in enumerate(names, start=1):
        note(f"{number} of {len(names)}: {name}")
        rows.append(_checked(name, prepared))
        gc.collect()  # one may have held gigabytes
    if json:
        print_json(_document(rows, prepared))
    else:
        _print(rows, prepared)
    return 0


def _checked(name: str, prepared: PreparedData) -> Checked:
    with nothing_collected():
        from tuner.models.of_neuralforecast.build import GIVEN, abilities
        from tuner.models.registry import network_arguments
        from tuner.training.one_step import train_one_step
    from tuner.spec.study_file import load_study_file

    try:
        file = load_study_file(f"{LIBRARY}:{name}")
        hyperparameters = file.default_hyperparameters()
        step = train_one_step(
            file.architecture(),
            hyperparameters,
            file.training,
            prepared,
            inspected=False,  # which takes several times as long
        )
        able = abilities(name, prepared.shapes, network_arguments(hyperparameters))
    except TunerError as error:
        said = str(error).removeprefix(f"{LIBRARY}:{name}")
        why_not = said.lstrip(": ").partition(GIVEN)[0]  # nobody gave it anything
        return Checked(name=name, why_not=why_not)
    return Checked(
        name=name,
        multivariate=able.multivariate,
        past=able.past,
        future=able.future,
        static=able.static,
        parameters=step.parameters,
        step_s=step.seconds,
        remarks=tuple(able.remarks()),
    )


def _document(rows: Sequence[Checked], prepared: PreparedData) -> dict[str, Any]:
    from tuner.training.one_step import MOST_WINDOWS

    return {
        "task": prepared.task.name,
        "data_hash": prepared.data_hash,
        "windows": MOST_WINDOWS,
        "shapes": prepared.shapes.sizes(),
        "models": [dataclasses.asdict(row) for row in rows],
    }


def _print(rows: Sequence[Checked], prepared: PreparedData) -> None:
    from rich.table import Table

    from tuner.display.terminal import make_console

    table = Table(
        "model",
        "targets",
        "covariates",
        "parameters",
        "CPU time of a step",
        "remarks",
        title=f"Models of {LIBRARY} on task {prepared.task.name}",
    )
    for row in rows:
        table.add_row(row.name, *cells(row))
    make_console().print(table)
    works = sum(row.why_not is None for row in rows)
    say(f"{works} of {len(rows)} work; each forecasts all {prepared.shapes.n_quantiles} quantiles")


def cells(row: Checked) -> tuple[str, str, str, str, str]:
    """Everything about a class but its name, as a table shows it."""
    if row.why_not is not None:
        return "", "", "", "", f"does not work: {row.why_not}"
    taken = [kind for kind in ("past", "future", "static") if getattr(row, kind)]
    return (
        "together" if row.multivariate else "each alone",
        ", ".join(taken) or "none",
        f"{row.parameters:,}",
        f"{row.step_s:.3f} s",
        "; ".join(row.remarks),
    )
