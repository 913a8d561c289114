"""What a gain is made of, as lines of a terminal."""

from __future__ import annotations

from tuner.files.plain import harmless
from tuner.verdict.ablation import Ablation
from tuner.verdict.ablation_words import (
    left_out,
    ratios,
    what_is_set_back,
    which_is_not_confirmed,
)


def ablation_lines(found: Ablation) -> list[str]:
    """A heading, and a line for each value that was set back, what made most first."""
    name = harmless(found.study)
    if not found.rows:
        return [f"{name}: trial {found.trial} is being taken apart; too few runs are finished"]
    rest = "" if found.complete else ", not all finished"
    heading = (
        f"{name}: trial {found.trial}{which_is_not_confirmed(found)} with one value set back to "
        f"the default, against trial {found.trial} itself ({found.seeds} runs of each{rest}; 95 %):"
    )
    width = max(len(what_is_set_back(row)) for row in found.rows)
    lines = [f"  {what_is_set_back(row):<{width}}  {ratios(row)}" for row in found.rows]
    return [heading, *lines, *(f"  {line}" for line in left_out(found))]
