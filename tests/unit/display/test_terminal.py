from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from tuner.display.terminal import Console, line, lines, make_console

NAMES = ("exp [/v2]", "[bold]a[/]", ":smile:", "1.5 'x'", "a\\[b]")


def printed(*what: object) -> str:
    console = make_console()
    console.file, console.width = io.StringIO(), 200
    for each in what:
        console.print(each)
    return console.file.getvalue()


def test_brackets_and_emoji_codes_are_text_in_lines_cells_headings_and_titles() -> None:
    table = Table(*NAMES, title=NAMES[0], caption=NAMES[1])
    table.add_row(*NAMES)
    for text in (
        printed(*NAMES),
        printed(table),
        printed(*map(line, NAMES)),
        printed(*map(lines, NAMES)),
    ):
        for name in NAMES:
            assert name in text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_nothing_printed_acts_upon_the_terminal(text: str) -> None:
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text)
    for each in printed(text, table, line(text, (text, "bold"))).split("\n"):
        assert each.isprintable()


def test_colours_are_given_beside_the_text() -> None:
    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system="standard",
        markup=False,
        highlight=False,
    )
    console.print("[red]5[/red]", style="red")
    assert console.file.getvalue() == "\x1b[31m[red]5[/red]\x1b[0m\n"  # type: ignore[attr-defined]


def test_lines_of_our_own_stay_lines() -> None:
    assert printed(lines("a\nb\x1b")).split() == ["a", "b\\u001b"]
