"""The rows of a task's own file as a table: read in the file's dialect, its gaps and clocks dealt
with as the task says.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tuner.data.recent_rows import ROW, id_column, is_counted, time_column
from tuner.data.source_kinds import FileSource
from tuner.data.sources import open_source
from tuner.data.split_rows import runs_of
from tuner.data.task import Task, load_task
from tuner.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from tuner.data.series import Series


def rows_of_task(path: Path, data_dir: Path | None = None) -> pd.DataFrame:
    """What the file of a task holds, one row for each series and time, oldest first.

    Args:
        path: the task file, or the name of a built-in task.
        data_dir: where its data lies, if not where the task says.

    Raises:
        UsageError: no such task, or one of many files.
        DataError: data that is missing or unfit.
    """
    import pandas as pd

    task = load_task(str(path))
    if runs_of(task) is not None:
        raise UsageError(
            f"{path}: task {task.name!r} has many files, and a forecast begins at the end of one; "
            "name that file in place of the task"
        )
    series = open_source(task, data_dir).parse()
    return pd.concat([_rows(task, one, named=len(series) > 1) for one in series])


def _rows(task: Task, one: Series, *, named: bool) -> pd.DataFrame:
    import pandas as pd

    columns = [*task.target_columns, *task.past_covariates, *task.future_covariates]
    frame = pd.DataFrame(one.values, columns=columns)
    if is_counted(task):
        frame.insert(0, ROW, np.arange(len(frame)))
    else:
        times = pd.DatetimeIndex(one.timestamps)
        zoned = isinstance(task.source, FileSource) and task.source.timezone is not None
        frame.insert(0, time_column(task), times.tz_localize("UTC") if zoned else times)
    if named or (isinstance(task.source, FileSource) and task.source.id_column):
        frame.insert(0, id_column(task), one.name)
    return frame
