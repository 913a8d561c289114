"""Figures as files: the ending of the name says which kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import TunerError, UsageError

if TYPE_CHECKING:
    import plotly.graph_objects as go

PICTURES = (".png", ".svg", ".pdf")
KINDS = (*PICTURES, ".html")
SIZE = (900, 540)


def check_kind(path: Path) -> None:
    """Refuse a name whose ending says no kind of figure: before any work is done for it.

    Raises:
        UsageError: it ends otherwise.
    """
    if path.suffix.lower() not in KINDS:
        raise UsageError(
            f"{path}: a figure is written as {', '.join(KINDS)}; end the name with one of them"
        )


def save(
    figure: go.Figure, path: str | Path, *, width: int = SIZE[0], height: int = SIZE[1]
) -> Path:
    """Write `figure` to `path`: .html (a page of its own
    that needs no network), .png, .svg or .pdf.

    Pictures have `width` times `height` CSS pixels; a .png has twice as many dots each way, for
    sharp screens.

    Raises:
        UsageError: the name ends otherwise.
        TunerError: pictures need kaleido and a Chromium, and one is missing; or the file cannot be
            written.
    """
    path = Path(path)
    check_kind(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".html":
            figure.write_html(path, include_plotlyjs=True)
        else:
            path.write_bytes(
                _picture(figure, path.suffix.lower().removeprefix("."), width=width, height=height)
            )
    except OSError as error:
        raise TunerError(f"cannot write {path}: {error.strerror or error}") from None
    return path


def _picture(figure: go.Figure, kind: str, *, width: int, height: int) -> bytes:
    try:
        import kaleido
        from kaleido.errors import BrowserFailedError, ChromeNotFoundError
    except ImportError:
        raise TunerError(
            "pictures need kaleido: pip install 'tuner[notebooks]' (or write .html, which needs "
            "nothing)"
        ) from None
    del kaleido
    try:
        picture: bytes = figure.to_image(
            format=kind, width=width, height=height, scale=2 if kind == "png" else 1
        )
    except ChromeNotFoundError:
        raise TunerError(
            "pictures need a Chromium or Chrome: apt-get install chromium (or name one with "
            "BROWSER_PATH, or write "
            ".html, which needs none)"
        ) from None
    except BrowserFailedError as error:
        raise TunerError(
            f"the browser that draws pictures failed: {str(error).splitlines()[0]}"
        ) from None
    return picture
