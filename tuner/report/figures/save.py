"""Figures as files: the ending of the name says which kind."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import TunerError, UsageError
from tuner.files.durable import marked, put
from tuner.report.figures.static import check_installed, picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

PICTURES = (".png", ".svg", ".pdf")
KINDS = (*PICTURES, ".html")
SIZE = (900, 540)


def check_kind(path: Path) -> None:
    """Refuse a name whose ending says no kind of figure, or one that nothing here draws: before any
    work is done for it.

    Raises:
        UsageError: it ends otherwise.
        TunerError: it is a picture, and matplotlib is missing.
    """
    if path.suffix.lower() not in KINDS:
        raise UsageError(
            f"{path}: a figure is written as {', '.join(KINDS)}; end the name with one of them"
        )
    if path.suffix.lower() in PICTURES:
        check_installed()


def save(
    figure: go.Figure, path: str | Path, *, width: int = SIZE[0], height: int = SIZE[1]
) -> Path:
    """Write `figure` to `path`: .html (a page of its own
    that needs no network), .png, .svg or .pdf.

    Pictures have `width` times `height` CSS pixels; a .png has twice as many dots each way, for
    sharp screens.

    Raises:
        UsageError: the name ends otherwise.
        TunerError: pictures need matplotlib, and it is missing; or the file cannot be written.
    """
    path = Path(path)
    check_kind(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = path.suffix.lower().removeprefix(".")
        if kind == "html":
            content = figure.to_html(include_plotlyjs=True).encode()
        else:
            content = picture(figure, kind, width=width, height=height)
        put(path, marked(content, kind))
    except OSError as error:
        raise TunerError(f"cannot write {path}: {error.strerror or error}") from None
    return path


def show(figure: go.Figure, *, width: int = SIZE[0], height: int = SIZE[1]) -> None:
    """Show `figure` in a notebook: live where that can be, and as a picture everywhere else, as on
    the page of a repository.

    Raises:
        TunerError: pictures need matplotlib, and it is missing.
    """
    from IPython import display as notebook

    drawn = base64.b64encode(_small(picture(figure, "png", width=width, height=height))).decode()
    live = json.loads(figure.to_json())
    show_it: Any = notebook.display
    show_it({"application/vnd.plotly.v1+json": live, "image/png": drawn}, raw=True)


def _small(png: bytes) -> bytes:
    """The same in 64 colours: what is committed with a notebook is kept for ever."""
    from PIL import Image

    into = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(64).save(into, "png", optimize=True)
    return into.getvalue()
