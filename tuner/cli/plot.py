"""`tuner plot`: a figure of one study or several, as a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import Storage, note, storage_url

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from tuner.figures import Subject


class Kind(StrEnum):
    """Which figure."""

    FRONT = "front"
    HYPERVOLUME = "hypervolume"
    HYPERVOLUME_TIME = "hypervolume-time"
    CURVES = "curves"
    CURVES_TIME = "curves-time"
    IMPORTANCES = "importances"
    TRADE = "trade"
    TIMELINE = "timeline"


def plot(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help=f"One of: {', '.join(Kind)}.", show_default=False)],
    output: Annotated[Path, typer.Option(metavar="FILE", help=".png, .svg or .pdf (these need a Chromium), or .html.")],
    study: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE[,...]", help="Studies, or files of exported ones (default: all of the database)."
        ),
    ] = None,
    title: Annotated[str, typer.Option(metavar="TEXT", help="A line above the figure.")] = "",
    width: Annotated[int, typer.Option(min=200, max=10_000, metavar="N", help="Pixels.")] = 900,
    height: Annotated[int, typer.Option(min=150, max=10_000, metavar="N", help="Pixels.")] = 540,
    storage: Storage = None,
) -> int:
    """Draw a figure of one study or several into a file."""
    from tuner.figures import draw
    from tuner.plots.files import check_kind, save

    check_kind(output)
    names = [name.strip() for name in study.split(",")] if study is not None else None
    if kind is Kind.IMPORTANCES:
        figure = _importances(names, storage, title)
    else:
        with _subjects(names, storage) as subjects:
            figure = draw(kind.value, subjects, title=title)
    save(figure, output, width=width, height=height)
    note(f"wrote {output}")
    return 0


def _importances(names: list[str] | None, storage: str | None, title: str) -> go.Figure:
    """Each hyperparameter's share in each objective, of every study: what `tuner explain` says in figures."""
    from tuner.compare import read_subjects
    from tuner.compare.understanding import understand
    from tuner.plots import importances_figure

    address = storage_url(storage)
    if names is None:
        from tuner.api import study_names

        names = study_names(storage=address)
    subjects = read_subjects([name if is_file(name) else f"study:{name}" for name in names], task="", storage=address)
    shares = {
        f"{subject.name}: {objective}" if len(subjects) > 1 else objective: share
        for subject in subjects
        for objective, share in understand(subject).importances.items()
    }
    return importances_figure(shares, title=title)


def is_file(name: str) -> bool:
    """True for an exported study, which is named by its file."""
    from tuner.study.archive import is_archive_name

    return is_archive_name(name)


@contextmanager
def _subjects(names: list[str] | None, storage: str | None) -> Iterator[list[Subject]]:
    """The studies of these names: exported ones from their files, others from the database, which then has to be there.

    Raises:
        UsageError: there is no such study or file.
        StorageError: the database cannot be read.
    """
    from tuner.figures import of_archive, of_study
    from tuner.storage import absolute, open_database, parse_url
    from tuner.study import list_studies, open_study
    from tuner.study.archive import read_archive

    if names is not None and all(is_file(name) for name in names):
        yield [of_archive(read_archive(Path(name))) for name in names]
        return
    database = open_database(absolute(parse_url(storage_url(storage))), create=False)
    try:
        yield [
            of_archive(read_archive(Path(name))) if is_file(name) else of_study(open_study(database, name))
            for name in (names or list_studies(database))
        ]
    finally:
        database.close()
