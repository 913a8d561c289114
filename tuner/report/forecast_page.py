"""The page of a forecast: the answer, fans of what comes, and those of earlier origins with what
came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tuner.data.recent_rows import id_column, rows_of
from tuner.report.figures.fan import Fan, fan_figure, fans_of
from tuner.report.pages import frozen, rendered

if TYPE_CHECKING:
    from tuner.launch.forecast import Forecast, Record

MOST = 4
"""Pictures of what comes: of more columns or series the table tells."""


def forecast_page(name: str, record: Record, ahead: Forecast, earlier: Sequence[Forecast]) -> str:
    """A page that is a single file, of the forecast of the file called `name`.

    Raises:
        UsageError: rows that cannot be drawn.
    """
    answer = record.answer
    assert answer is not None, "a page is made of one"
    said = f"{answer.begins} to {answer.ends}, by {answer.in_words(answer.model)}."
    pictures = {(f"Forecast of {fan.name}", said): fan_figure([fan]) for fan in _fans(ahead)}
    for begins, each in zip(answer.back_test, earlier, strict=False):
        (fan, *_), came = _fans(each), "As if nothing later had been known, with what came."
        pictures[f"Back-test of {fan.name} from {begins} on", came] = fan_figure([fan])
    body = rendered("forecast.html", record=record, answer=answer)
    return frozen(name, one=None, said=answer.sentences, pictures=pictures, body=body)


def _fans(of: Forecast) -> list[Fan]:
    """As many as a page shows: of the first columns, and of as many series as leaves room."""
    model, rows = of.model, of.rows
    column, columns = id_column(model.task), model.task.target_columns[:MOST]
    names = list(dict.fromkeys(of.table[column]))[: MOST // len(columns)]
    if column in rows.columns:
        rows = rows_of(model.task, model.series, rows, names)
    fans = fans_of(model, rows, of.table[of.table[column].isin(names)], columns=columns)
    return [replace(each, unit="") for each in fans]  # the heading names it
