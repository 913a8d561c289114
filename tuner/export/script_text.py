"""What written forms of a configuration have in common: what it is, why it is the one, its figures
and where it comes from; and, in scripts, plain data and the user's own code.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.config import OBJECTIVES, library_class, names_own_code
from tuner.display import text
from tuner.errors import UsageError
from tuner.export.best_config import BestConfig
from tuner.files.plain import excerpt
from tuner.spec.objectives import axis_title
from tuner.study.baselines import told_all

SCRIPTS = Path(__file__).with_name("scripts")


def filled(template: str, config: BestConfig, **said: Any) -> str:
    """A script for a configuration; what is data in it has gone through `literal`."""
    model = config.architecture.model
    said |= {"of_library": library_class(model), "headline": comment(config), "config": config}
    said["own_class"] = users_class(model) if names_own_code(model) else ""
    return text.filled(SCRIPTS / f"{template}.py.jinja", literal=literal, **said)


def comment(config: BestConfig) -> str:
    """What every script says at its head."""
    lines = headline(config)
    if names_own_code(config.architecture.model):
        lines.append(f"Its network is {one_line(config.architecture.model)}, whose code runs here.")
    if config.added_term is not None:
        term = one_line(config.added_term.term)
        lines.append(f"Its training loss has the term {term}, whose code runs here.")
    return "\n".join(f"# {line}" for line in lines)


def users_class(model: str) -> str:
    """The function that finds a class of the user's own, which stays where it is; nothing is
    imported to write it.
    """
    location, _, name = model.rpartition(":")
    template = SCRIPTS / "users_class.py.jinja"
    return text.filled(template, literal=literal, location=location, name=name)


def literal(value: Any) -> str:
    """Plain data as Python writes it, whatever texts are in it.

    Raises:
        UsageError: it is no plain data, or not finite.
    """
    written = repr(value)
    try:
        ast.literal_eval(written)
    except (ValueError, SyntaxError):
        raise UsageError(
            f"{excerpt(written)} cannot be written into a script; use --format json"
        ) from None
    return written


def headline(config: BestConfig) -> list[str]:
    """What every written form says first, one line each, in the words of a comment."""
    (clock, seconds), (error, mql) = config.values.items()
    p, known = config.provenance, config.baselines
    errors = dict.fromkeys((config.definition.objectives[1], "test_mql"))
    columns = p.get("test_mql_of", {}).items()
    lines = text.filled(
        SCRIPTS / "headline.txt.jinja",
        each=lambda value: one_line(str(value)),  # a comment ends with its line
        config=config,
        p=p,
        values={"clock": clock, "seconds": seconds, "error": error, "mql": mql},
        versions=", ".join(f"{name} {v}" for name, v in (p["versions"] or {}).items() if v),
        baselines="; ".join(f"{axis_title(e)}: {', '.join(told_all(known, e))}" for e in errors),
        columns=", ".join(f"{name} {mql:.4g}" for name, mql in columns if mql is not None),
        gains=config.confirmed is not None and config.confirmed.get("gain") is not None,
        usual_clock=OBJECTIVES[0],
        axis_title=axis_title,
        few=_few,
        short=_short,
    )
    return [line for line in lines.split("\n") if line]


MOST_NAMED = 6


def _few(numbers: Sequence[int]) -> str:
    """The first ones; all of them are with the provenance."""
    more = len(numbers) - MOST_NAMED
    first = ", ".join(map(str, numbers[:MOST_NAMED]))
    return first if more <= 0 else f"{first} and {more} more"


def one_line(words: str) -> str:
    """Text as part of a comment, which ends with its line."""
    return "".join(c if c.isprintable() else " " for c in words)


def _short(digest: str) -> str:
    """Enough of a hash to recognise it, with the mark of an edited checkout."""
    name, plus, changes = digest.partition("+")
    return name[:12] + plus + changes
