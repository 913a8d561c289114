"""`tuner plot`: a figure of one study or several, as a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tuner.cli.command import argument, command, option
from tuner.cli.options import Storage, storage_url
from tuner.cli.output import note
from tuner.cli.replace import Force, check_free, is_figure

if TYPE_CHECKING:
    from tuner.study.snapshot import StudySnapshot


Kind = Literal[
    "front",
    "confirmed",
    "hypervolume",
    "hypervolume-time",
    "curves",
    "curves-time",
    "importances",
    "parallel",
    "trade",
    "throughput",
]


@command
def plot(
    kind: Kind = argument("KIND", "Which figure."),
    output: Path = option("FILE", ".png, .svg, .pdf or .html.", default=...),
    study: str | None = option(
        "NAME|FILE[,...]", "Studies, group:NAME, or exported ones (default: all)."
    ),
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
        figure = draw(kind, studies)
    save(figure, output)
    note(f"wrote {output}")
    return 0


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
