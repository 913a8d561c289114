"""`tuner plot`: a figure of one study or several, as a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.command import argument, command, option
from tuner.cli.options import Storage, note, storage_url
from tuner.cli.predict import check_data, draw_fans, read_rows
from tuner.cli.replace import Force, check_free, is_figure
from tuner.errors import UsageError

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from tuner.study.snapshot import StudySnapshot


class Kind(StrEnum):
    """Which figure."""

    FRONT = "front"
    CONFIRMED = "confirmed"
    HYPERVOLUME = "hypervolume"
    HYPERVOLUME_TIME = "hypervolume-time"
    CURVES = "curves"
    CURVES_TIME = "curves-time"
    IMPORTANCES = "importances"
    TRADE = "trade"
    THROUGHPUT = "throughput"
    TIMELINE = "timeline"
    FORECAST = "forecast"


KINDS = ", ".join(Kind)


@command
def plot(
    kind: Kind = argument("KIND", f"One of: {KINDS}."),
    output: Path = option(
        "FILE", ".png, .svg or .pdf (these need a Chromium), or .html.", default=...
    ),
    study: str | None = option(
        "NAME|FILE[,...]", "Studies, or files of exported ones (default: all of the database)."
    ),
    model: Path | None = option("MODEL.safetensors", "Of a forecast: what 'tuner train' wrote."),
    data: Path | None = option("DATA", "Of a forecast: as 'tuner predict' takes it."),
    title: str = option("TEXT", "A line above the figure.", default=""),
    width: int | None = option(
        "N", "Pixels (900; of a forecast by its panels).", min=200, max=10_000
    ),
    height: int | None = option(
        "N", "Pixels (540; of a forecast by its panels).", min=150, max=10_000
    ),
    storage: Storage = None,
    force: Force = False,
) -> int:
    """Draw a figure of one study or several into a file; or of what a trained model forecasts."""
    from tuner.report.figures.draw import draw
    from tuner.report.figures.save import SIZE, check_kind, save

    check_kind(output)
    check_free(output, is_figure, force=force)
    if kind is Kind.FORECAST or model is not None or data is not None:
        if kind is not Kind.FORECAST:
            raise UsageError(f"--model and --data belong to 'tuner plot forecast', not to {kind}")
        if study is not None or storage is not None:
            raise UsageError("a forecast is of a model and data: leave --study and --storage out")
        _forecast(model, data, output, title, (width, height))
        return 0
    names = [name.strip() for name in study.split(",")] if study is not None else None
    address = storage_url(storage)
    if kind is Kind.IMPORTANCES:
        figure = _importances(names, address, title)
    else:
        with _studies(names, address) as studies:
            figure = draw(kind.value, studies, title=title)
    save(figure, output, width=width or SIZE[0], height=height or SIZE[1])
    note(f"wrote {output}")
    return 0


def _forecast(
    model: Path | None,
    data: Path | None,
    output: Path,
    title: str,
    size: tuple[int | None, int | None],
) -> None:
    """Fan charts; 'tuner predict' says more of the same forecast."""
    if model is None or data is None:
        raise UsageError("'tuner plot forecast' takes --model MODEL.safetensors and --data DATA")
    check_data(data)
    from tuner.report.figures.save import check_drawing

    check_drawing(output)
    from tuner.export.saved_model import load_model

    saved = load_model(model)
    frame = read_rows(data, saved.task)
    draw_fans(saved, frame, saved.predict(frame), output, title=title, size=size)
    note(f"wrote {output}")


def _importances(names: list[str] | None, storage: str, title: str) -> go.Figure:
    """Each hyperparameter's share in each objective,
    of every study: what `tuner explain` says in figures.
    """
    from tuner.api import study_names
    from tuner.report.figures.draw import importances_figure
    from tuner.study.snapshot import STUDY, says_which
    from tuner.verdict.compare.studies import read_studies
    from tuner.verdict.explain import explain_study

    wanted = study_names(storage=storage) if names is None else names
    known = [name if names is not None and says_which(name) else STUDY + name for name in wanted]
    studies = read_studies(known, task="", storage=storage)
    shares = {
        f"{study.name}: {objective}" if len(studies) > 1 else objective: share
        for study in studies
        for objective, share in explain_study(study).importances.items()
    }
    return importances_figure(shares, title=title)


@contextmanager
def _studies(names: list[str] | None, storage: str) -> Iterator[list[StudySnapshot]]:
    """The studies of these names, of the database or exported ones;
    all of the database where none is named.

    Raises:
        UsageError: there is no such study or file.
        StorageError: the database cannot be read.
    """
    from tuner.study.open import list_studies
    from tuner.study.snapshot import STUDY, names_meant, opened_if_needed, snapshot_named

    with opened_if_needed(storage) as database:
        wanted = (
            [STUDY + name for name in list_studies(database())]
            if names is None
            else [each for name in names for each in names_meant(name, database)]
        )
        yield [snapshot_named(name, database) for name in wanted]
