"""What a gain is made of, as lines of a terminal."""

from __future__ import annotations

from tuner.files.plain import harmless
from tuner.verdict.ablation import Ablation
from tuner.verdict.ablation_words import (
    as_set_back,
    left_out,
    ratios,
    runs_of_each,
    too_few,
    what_is_set_back,
)


def ablation_lines(found: Ablation) -> list[str]:
    """A heading, and a line for each value that was set back, what made most first."""
    if not found.rows:
        return [too_few(found)]
    heading = (
        f"{harmless(found.study)}: {as_set_back(found)}, against trial {found.trial} itself "
        f"{runs_of_each(found)}:"
    )
    width = max(len(what_is_set_back(row)) for row in found.rows)
    lines = [f"  {what_is_set_back(row):<{width}}  {ratios(row)}" for row in found.rows]
    return [heading, *lines, *(f"  {line}" for line in left_out(found))]
