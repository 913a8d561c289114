"""`tuner plot`: a figure of one study or several, as a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.command import argument, command, option
from tuner.cli.options import Storage, storage_url
from tuner.cli.output import note
from tuner.cli.replace import Force, check_free, is_figure

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
    title: str = option("TEXT", "A line above the figure.", default=""),
    width: int = option("N", "Pixels.", default=900, min=200, max=10_000),
    height: int = option("N", "Pixels.", default=540, min=150, max=10_000),
    storage: Storage = None,
    force: Force = False,
) -> int:
    """Draw a figure of one study or several into a file."""
    from tuner.report.figures.draw import draw
    from tuner.report.figures.save import check_kind, save

    check_kind(output)
    check_free(output, is_figure, force=force)
    names = [name.strip() for name in study.split(",")] if study is not None else None
    with _studies(names, storage_url(storage)) as studies:
        if kind is Kind.IMPORTANCES:
            figure = _importances(studies, title)
        else:
            figure = draw(kind.value, studies, title=title)
    save(figure, output, width=width, height=height)
    note(f"wrote {output}")
    return 0


def _importances(studies: Sequence[StudySnapshot], title: str) -> go.Figure:
    """Each hyperparameter's share in each objective,
    of every study: what `tuner explain` says in figures.
    """
    from tuner.report.figures.draw import importances_figure
    from tuner.verdict.explain import explain_study

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
