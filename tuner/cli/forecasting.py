"""What `tuner predict` and `tuner plot forecast` have in common: the rows, and the figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from tuner.data.task import Task
    from tuner.export.saved_model import SavedModel

TASK_FILE = ".toml"


def check_data(data: Path) -> None:
    """Refuse a name that is neither a table's nor a task file's.

    Raises:
        UsageError: it ends otherwise.
        TunerError: what reads it is not installed.
    """
    from tuner.data.frames import check_frame_kind

    if data.suffix != TASK_FILE:
        check_frame_kind(data)


def read_rows(data: Path, task: Task, *, separator: str = ",", decimal: str = ".") -> pd.DataFrame:
    """The rows of a table, or of a task's own file.

    Raises:
        UsageError: no such file.
        DataError: it cannot be read as what its name says.
    """
    from tuner.data.frames import read_frame
    from tuner.data.recent_rows import id_column, time_column
    from tuner.data.task_rows import rows_of_task

    if data.suffix == TASK_FILE:
        return rows_of_task(data)
    texts = [time_column(task), id_column(task)]
    return read_frame(data, texts=texts, separator=separator, decimal=decimal)


def draw_fans(
    model: SavedModel,
    frame: pd.DataFrame,
    forecast: pd.DataFrame,
    path: Path,
    *,
    columns: Sequence[str] = (),
    title: str = "",
    size: tuple[int | None, int | None] = (None, None),
) -> None:
    """Fan charts of a forecast in a file, by default as large as their panels want.

    Raises:
        UsageError: more panels than a figure can show.
        TunerError: the file cannot be written.
    """
    from tuner.report.figures.fan import fan_figure, size_of
    from tuner.report.figures.forecast import fans_of
    from tuner.report.figures.save import save

    fans = fans_of(model, frame, forecast, columns=columns)
    width, height = size_of(len(fans))
    save(fan_figure(fans, title=title), path, width=size[0] or width, height=size[1] or height)
