"""Pages around answers and figures: live ones that a server fills, and frozen ones that are a
single file. Whatever a template shows is escaped.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from tuner.display.text import shown
from tuner.errors import TunerError
from tuner.report.figures.static import check_installed, for_page

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from jinja2 import Environment

    from tuner.report.overview import Answer, StudyLine

FOLDER = Path(__file__).parent / "templates"
WIDTH, HEIGHT = 760, 460
"""Pixels of a picture in a page."""


@functools.cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _printable(value: object) -> object:
    """Names may hold anything; what is HTML already comes as such."""
    return shown(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def rendered(template: str, **said: Any) -> Markup:
    """A template of `report/templates`, filled."""
    return Markup(_templates().get_template(template).render(said))  # noqa: S704 - it is escaped


Pictures = Mapping[tuple[str, str], "go.Figure"]
"""Figures by their headings and by what each says."""


def frozen(
    title: str,
    *,
    one: Answer | None,
    lines: Sequence[StudyLine] = (),
    said: Sequence[str] = (),
    pictures: Pictures,
    body: str = "",
) -> str:
    """A page that is a single file and needs nothing else, as a mail takes it. The first picture
    stands with the answer; what is `said` stands first. Where no pictures
    can be drawn it says what they need.
    """
    drawn: list[tuple[str, str, Markup]] = []
    missing = ""
    try:
        check_installed()
        for (heading, says), figure in pictures.items():
            svg = for_page(figure, width=WIDTH, height=HEIGHT, says=says)
            drawn.append((heading, says, Markup(svg)))  # noqa: S704 - drawn of escaped labels
    except TunerError as error:
        missing = f"{str(error).partition(' (')[0]}."
    return rendered(
        "frozen.html",
        title=title,
        css=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own
        one=one,
        lines=lines,
        said=said,
        pictures=drawn,
        no_pictures=missing,
        body=Markup(body),  # noqa: S704 - whoever made it has escaped it
    )
