"""Figures as files: the ending of the name says which kind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import TunerError, UsageError
from tuner.files.durable import marked, put

if TYPE_CHECKING:
    import plotly.graph_objects as go

PICTURES = (".png", ".svg", ".pdf")
KINDS = (*PICTURES, ".html")
SIZE = (900, 540)

LONGEST_TMPDIR = 60
"""Characters. Chromium makes a socket some 45 characters below it, and its name may have 107."""


NO_BROWSER = (
    "pictures need a Chromium or Chrome: apt-get install chromium (or name one with BROWSER_PATH, "
    "or write .html, which needs none)"
)


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
    check_drawing(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = path.suffix.lower().removeprefix(".")
        if kind == "html":
            content = figure.to_html(include_plotlyjs=True).encode()
        else:
            content = _picture(figure, kind, width=width, height=height)
        put(path, marked(content, kind))
    except OSError as error:
        raise TunerError(f"cannot write {path}: {error.strerror or error}") from None
    return path


def check_drawing(path: Path) -> None:
    """Look for what draws pictures, where that is one: before any work is done for it.

    Raises:
        TunerError: kaleido or a browser is missing.
    """
    if path.suffix.lower() not in PICTURES:
        return
    try:
        import kaleido.errors
        from choreographer.browsers import Chromium
    except ImportError:
        raise TunerError(
            "pictures need kaleido: pip install 'tuner[notebooks]' (or write .html, which needs "
            "nothing)"
        ) from None
    del kaleido
    if Chromium.find_browser(skip_local=False) is None:
        raise TunerError(NO_BROWSER)


def _picture(figure: go.Figure, kind: str, *, width: int, height: int) -> bytes:
    from kaleido.errors import BrowserFailedError, ChromeNotFoundError

    try:
        with _short_temporary_folder():
            picture: bytes = figure.to_image(
                format=kind, width=width, height=height, scale=2 if kind == "png" else 1
            )
    except ChromeNotFoundError:
        raise TunerError(NO_BROWSER) from None
    except BrowserFailedError as error:
        why = error.args[0] if error.args else type(error).__name__
        first = why[0] if isinstance(why, tuple) else str(why).splitlines()[0]
        raise TunerError(
            f"the browser that draws pictures failed: {first} (.html needs none)"
        ) from None
    return picture


@contextmanager
def _short_temporary_folder() -> Iterator[None]:
    """Have the browser put its sockets where their names fit: schedulers give jobs long TMPDIRs."""
    given = os.environ.get("TMPDIR")
    if given is None or len(given) <= LONGEST_TMPDIR:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tuner-", dir="/tmp") as short:
        os.environ["TMPDIR"] = short
        try:
            yield
        finally:
            os.environ["TMPDIR"] = given
