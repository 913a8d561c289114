"""What a notebook or a script asks for in one call:
a task's data on a device, a study's results.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.files.arguments import PATH, TEXT, takes_kinds
from tuner.report.figures.series import front_series
from tuner.storage.database import open_database
from tuner.storage.url import DEFAULT_URL, absolute, parse_url
from tuner.study.archive import is_archive_name, read_archive
from tuner.study.open import list_studies, open_study
from tuner.study.results import StudyResults, read_results
from tuner.study.snapshot import StudySnapshot, snapshot

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from tuner.data.windows import DeviceData
    from tuner.export.saved_model import SavedModel

__all__ = [
    "forecast_figure",
    "front_frame",
    "front_series",
    "load_data",
    "load_study",
    "load_subjects",
    "study_names",
    "to_frame",
]


@takes_kinds(task=PATH, data_dir=PATH)
def load_data(
    task: str | Path, *, device: str = "cpu", data_dir: str | Path | None = None
) -> DeviceData:
    """A task's windows as tensors on `device`: `etth`, `demo`, or the path of a task file.

    Raises:
        UsageError: unknown task, a task file that is wrong, or a device that is not here.
        DataError: data that is missing or unfit.

    >>> load_data("demo").shapes.horizon
    6
    """
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.data.windows import refuse_absent_device, to_device

    refuse_absent_device(device)
    return to_device(
        prepare(load_task(str(task)), data_dir=Path(data_dir) if data_dir else None), device
    )


def forecast_figure(
    model: SavedModel,
    frame: pd.DataFrame,
    *,
    start: str | pd.Timestamp | None = None,
    series: str | Sequence[str] = (),
    columns: str | Sequence[str] = (),
    title: str = "",
) -> go.Figure:
    """What a model forecasts, as fan charts: a panel for each series and target column.

    Args:
        model: of `tuner.load_model`.
        frame: rows as `SavedModel.predict` takes them.
        start: first time to forecast; what came from it on is drawn beside the forecast.
        series: those to draw; all of the frame where none is named.
        columns: target columns to draw; all where none is named.
        title: a line above the figure.

    Raises:
        UsageError: an unknown name, a `start` from which nothing can be forecast, or more panels
            than a figure can show.
        DataError: columns, rows or values that are missing.

    >>> from tuner import load_model
    >>> figure = forecast_figure(load_model("model.safetensors"), pd.read_csv("rows.csv"))
    >>> len(figure.data) > 0
    True
    """
    from tuner.data.recent_rows import rows_of
    from tuner.report.figures.fan import fan_figure, fans_of

    of_series = (series,) if isinstance(series, str) else series
    drawn = (columns,) if isinstance(columns, str) else columns
    rows = rows_of(model.task, model.series, frame, of_series) if series else frame
    fans = fans_of(model, rows, model.predict(rows, start=start), columns=drawn)
    return fan_figure(fans, title=title)


@takes_kinds(storage=TEXT)
def study_names(*, storage: str = DEFAULT_URL) -> list[str]:
    """Names of the studies in a database, oldest first.

    Raises:
        StorageError: there is no such database, or it cannot be read.
    """
    with closing(open_database(absolute(parse_url(storage)), create=False)) as database:
        return list_studies(database)


@takes_kinds(name=TEXT, storage=TEXT)
def load_study(name: str, *, storage: str = DEFAULT_URL) -> StudyResults:
    """The trials of a study, and its front, as they are now.

    Raises:
        UsageError: there is no such study.
        StorageError: the database cannot be read.

    >>> results = load_study("quick", storage="sqlite:///quick.db")
    >>> len(results.front)
    4
    """
    with closing(open_database(absolute(parse_url(storage)), create=False)) as database:
        return read_results(open_study(database, name))


def to_frame(results: StudyResults) -> pd.DataFrame:
    """One row a trial: number, state, parameters, objective values, and the plain attributes.

    `on_front` is true of every trial whose configuration stands on the front; `front_frame` has the
    front's own figures.
    """
    import pandas as pd

    on_front = results.on_front
    rows: list[dict[str, Any]] = []
    for record in results.records:
        values = record.named_values or dict.fromkeys(results.objectives)
        rows.append(
            {"trial": record.number, "state": record.state.name}
            | dict.fromkeys(results.objectives)
            | dict(record.params)
            | record.plain
            | values
            | {"on_front": record.number in on_front}
        )
    return pd.DataFrame(rows)


def front_frame(results: StudyResults) -> pd.DataFrame:
    """One row a configuration of the front, fastest first: its first trial's number, how many runs
    it has, parameters, objective values, epochs, device, whether its timing was disturbed, joules,
    and cost at the study's price; of several runs these are medians.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for record in results.front:
        row: dict[str, Any] = {"trial": record.number, "runs": record.runs}
        row |= record.named_values or {}
        row |= {"epochs": record.recorded.epochs} | dict(record.params)
        row |= {"device": record.recorded.device, "contaminated": record.recorded.contaminated}
        row |= {"energy_j": record.recorded.energy_j, "cost": record.cost}
        rows.append(row)
    return pd.DataFrame(rows)


def load_subjects(
    storage: str | Sequence[str] = DEFAULT_URL, *, names: Sequence[str] | None = None
) -> list[StudySnapshot]:
    """Studies as they are now, for `tuner.report.figures.draw` and `tuner.verdict.compare`: all of
    a database, or those called `names`; or exported ones.

    Args:
        storage: database URL, or the files that `tuner study export` wrote. A database stays open
            for what a figure asks for later.
        names: of the studies, where not all are wanted.

    Raises:
        UsageError: there is no such study or file.
        StorageError: the database cannot be read.
    """
    if not isinstance(storage, str) or is_archive_name(storage):
        files = [storage] if isinstance(storage, str) else storage
        found = [snapshot(read_archive(Path(file))) for file in files]
        return [study for study in found if names is None or study.name in names]
    database = open_database(absolute(parse_url(storage)), create=False)
    return [snapshot(open_study(database, name)) for name in (names or list_studies(database))]
