"""Text that came from outside (names, failures, attributes):
shown as it is, never taken for an instruction.

What a stranger wrote may hold anything: sequences that steer a terminal, line breaks, characters
that turn the reading direction, HTML, Markdown, words for a shell. Each place that shows it has its
function here.
"""

from __future__ import annotations

import csv
import html
import io
import re
import shlex
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~$!:@])|(?<=\bwww)(\.)", re.IGNORECASE)
_BACKTICKS = re.compile(r"`+")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_LAST_OF_16_BITS = 0xFFFF


def shown(text: object) -> str:
    r"""One line that a terminal prints and does not act upon:
    what is not printable is escaped, ESC as `\u001b`.

    The escapes are those of TOML, JSON and Python: a document whose strings are escaped so means
    the same.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def shown_value(value: float | str | bool, digits: int = 6) -> str:
    """The value of a hyperparameter: a number that is no whole one with so many digits, else as it
    is.
    """
    return f"{value:.{digits}g}" if isinstance(value, float) else shown(value)


def shown_lines(text: str) -> str:
    """The same for a text of several lines, whose line breaks are our own."""
    return "\n".join(shown(line) for line in text.split("\n"))


def shortened(text: object, width: int) -> str:
    """`shown`, of more than `width` characters both ends:
    names of a series differ at their ends.
    """
    line = shown(text)
    if len(line) <= width:
        return line
    half = width // 2
    return f"{line[: width - half - 1]}…{line[-half:]}"


def in_html(text: object) -> str:
    """As HTML; also as plotly takes it, which reads tags
    in every label, and formulas between dollar signs.
    """
    return html.escape(shown(text)).replace("$", "&#36;")


def in_csv(value: object) -> object:
    """As a cell of a CSV: a text that a spreadsheet would take for a formula begins with an
    apostrophe.
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def csv_text(rows: Sequence[Mapping[str, object]], *, first: Iterable[str] = ()) -> str:
    """A CSV of these rows, with every column that one of them has, those named `first` before the
    others; a cell is empty where its row has no such column.
    """
    columns = list(dict.fromkeys([*first, *(name for row in rows for name in row)]))
    text = io.StringIO(newline="")
    written = csv.writer(text)
    written.writerow(map(in_csv, columns))
    written.writerows([in_csv(row.get(name, "")) for name in columns] for row in rows)
    return text.getvalue()


def in_markdown(text: object) -> str:
    """As Markdown, in a sentence or in a table's cell: no emphasis, link, image, formula or tag
    comes of it.
    """
    escaped = _MARKDOWN.sub(r"\\\1\2", shown(text).replace("&", "&amp;"))
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def in_code(text: object) -> str:
    """As Markdown's code span."""
    line = shown(text)
    fence = "`" * (1 + max((len(found) for found in _BACKTICKS.findall(line)), default=0))
    blank = " " if "`" in line else ""  # one is taken off at each end
    return f"{fence}{blank}{line}{blank}{fence}"


def command_line(words: Iterable[str]) -> str:
    """A command that a shell takes as these very words: for a person to copy."""
    return " ".join(_word(word) for word in words)


def option(flag: str, value: str) -> list[str]:
    """A flag with its value as words of a command line, also where the value looks like a flag."""
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]


def _word(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{shown(escaped)}'"  # as bash, zsh and ksh read escapes


def _escape(character: str) -> str:
    number = ord(character)
    return _SHORT.get(character) or (
        f"\\u{number:04x}" if number <= _LAST_OF_16_BITS else f"\\U{number:08x}"
    )


def filled(template: Path, *, each: Callable[[Any], str] | None = None, **said: Any) -> str:
    """A text of ours with what is said in its places, every value as `each` writes it. Functions
    are said as well, and are its filters, as are those of this module that escape.
    """
    from jinja2 import Environment, StrictUndefined

    texts = Environment(  # noqa: S701 - it is no page: filters escape
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=each,
    )
    texts.filters |= {"shown": shown, "in_markdown": in_markdown, "in_code": in_code}
    texts.filters |= {name: value for name, value in said.items() if callable(value)}
    return texts.from_string(template.read_text(encoding="utf-8")).render(said)


# What a signal is called.


def signal_name(number: int) -> str:
    """`SIGKILL`; `signal 40` where it has no name, as those that are numbered from SIGRTMIN on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
