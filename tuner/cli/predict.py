"""`tuner predict`: what a trained model forecasts of recent rows, as a table and as a figure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tuner.cli.command import argument, option, switch, takes
from tuner.cli.options import Json
from tuner.cli.output import note, print_json, printed_to_stderr
from tuner.cli.replace import Force, check_files, is_figure, is_forecast
from tuner.errors import unknown_name

if TYPE_CHECKING:
    import pandas as pd

    from tuner.data.task import Task
    from tuner.export.saved_model import SavedModel


TASK_FILE = ".toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictOptions:
    """The options of `tuner predict`."""

    model: Path = argument("MODEL.safetensors", "What 'tuner train' wrote.")
    data: Path = argument(
        "DATA",
        "A .csv or .parquet with the task's columns, oldest rows first, or - for standard input; "
        "or a task (demo, etth, a file), whose own data is read.",
    )
    output: Path | None = option("FILE", "Write the forecasts here: .csv or .parquet (stdout).")
    plot: Path | None = option("FILE", "Draw them as fan charts: .png, .svg, .pdf or .html.")
    start: str | None = option(
        "TIME",
        "First time to forecast, as if nothing later were known; the figure shows what "
        "came (the time after the last row with values).",
        named="--from",
    )
    series: list[str] | None = option(
        "NAME",
        "Only this series, may be said several times; of a table that names none, whose "
        "rows they are.",
    )
    column: list[str] | None = option("NAME", "Only this target column; may be said several times.")
    force: Force = False
    trust: bool = switch("Let a class run that the model's card names.")
    json: Json = False


@takes(PredictOptions)
def predict(options: PredictOptions) -> int:
    """Forecast the steps after the last row with values, with a model that 'tuner train' saved.

    Rows after it carry the future covariates, where the task has such, their targets empty. A
    forecast has a row for each series, time and target column, and a column for each quantile
    level; quantiles never cross.
    """
    _check(options)
    from tuner.data.recent_rows import rows_of, write_frame
    from tuner.export.saved_model import load_model
    from tuner.report.figures.fan import fan_figure, fans_of, size_of
    from tuner.report.figures.save import save

    with printed_to_stderr(wanted=options.json):
        model = load_model(options.model, trust=options.trust)
        task = model.task
        for name in options.column or ():
            if name not in task.target_columns:
                raise unknown_name("target column", name, task.target_columns)
        frame = _read_rows(options, task)
        if options.series:
            frame = rows_of(task, model.series, frame, options.series)
        forecast = model.predict(frame, start=options.start)
        if options.plot is not None:
            fans = fans_of(model, frame, forecast, columns=options.column or ())
            width, height = size_of(len(fans))
            save(fan_figure(fans), options.plot, width=width, height=height)
    note(f"trained on {model.trained_on}")
    if options.column:
        forecast = forecast[forecast["column"].isin(options.column)]
    if options.output is not None:
        write_frame(options.output, forecast)
    _report(options, model, forecast)
    return 0


def _read_rows(options: PredictOptions, task: Task) -> pd.DataFrame:
    """The rows of a table, or of a task's own file. A CSV is read as that of the training was."""
    from tuner.data.recent_rows import key_columns, read_frame, rows_of_task
    from tuner.data.source_kinds import CsvSource

    if _is_task(options.data):
        frame, back = rows_of_task(options.data, held_back=options.start is None)
        if back:
            note(
                f"{', '.join(task.future_covariates)} must be known ahead, and the file has no "
                f"rows after the last with targets: its last {back:,} rows are forecast"
            )
        return frame
    written = task.source if isinstance(task.source, CsvSource) else None
    return read_frame(options.data, texts=key_columns(task), written=written)


def _is_task(data: Path) -> bool:
    """A task file, or the name of a built-in task."""
    from tuner.data.task import BUILT_IN

    return data.suffix == TASK_FILE or str(data) in BUILT_IN


def _check(options: PredictOptions) -> None:
    """What can be refused before torch is imported."""
    from tuner.data.open_file import STANDARD_INPUT
    from tuner.data.recent_rows import check_frame_kind
    from tuner.report.figures.save import check_kind

    if not _is_task(options.data) and options.data != STANDARD_INPUT:
        check_frame_kind(options.data)
    if options.output is not None:
        check_frame_kind(options.output)
    if options.plot is not None:
        check_kind(options.plot)
    ours = {"--output": (options.output, is_forecast), "--plot": (options.plot, is_figure)}
    check_files(ours, force=options.force)


def _report(options: PredictOptions, model: SavedModel, forecast: pd.DataFrame) -> None:
    files = [str(path) for path in (options.output, options.plot) if path is not None]
    if options.json:
        print_json(
            {
                "model": str(options.model),
                "trained_on": model.trained_on,
                "horizon": model.task.horizon,
                "quantiles": list(model.task.quantiles),
                "files": files,
                "forecasts": [_row(model.task, row) for row in forecast.to_dict("records")],
            }
        )
    elif options.output is None:
        from tuner.data.recent_rows import as_csv

        typer.echo(as_csv(forecast), nl=False)
    if files:
        note(f"wrote {' and '.join(files)}")


def _step(step: Any) -> Any:
    """A time as JSON has it; of an index, the number of the row."""
    return step.isoformat() if hasattr(step, "isoformat") else int(step)


def _row(task: Task, row: dict[Any, Any]) -> dict[str, Any]:
    from tuner.data.recent_rows import id_column, time_column

    return {
        "series": row[id_column(task)],
        "time": _step(row[time_column(task)]),
        "column": row["column"],
        "quantiles": {str(level): row[str(level)] for level in task.quantiles},
    }
