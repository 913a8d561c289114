"""What a gain is made of, as lines of a terminal."""

from __future__ import annotations

from tuner.files.plain import harmless
from tuner.verdict.ablation import Ablation
from tuner.verdict.ablation_words import (
    as_set_back,
    left_out,
    runs_of_each,
    said_of_each,
    too_few,
)


def ablation_lines(found: Ablation) -> list[str]:
    """A heading, and a line for each value that was set back, what made most first."""
    rows = said_of_each(found)
    if not rows:
        return [too_few(found)]
    heading = (
        f"{harmless(found.study)}: {as_set_back(found)}, against trial {found.trial} itself "
        f"{runs_of_each(found)}:"
    )
    width = max(len(what) for what, _ in rows)
    lines = [f"  {what:<{width}}  {how_much}" for what, how_much in rows]
    return [heading, *lines, *(f"  {line}" for line in left_out(found))]
