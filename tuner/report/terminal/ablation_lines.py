"""What a gain is made of, as lines of a terminal."""

from __future__ import annotations

from tuner.files.plain import harmless
from tuner.verdict.ablation import Ablation
from tuner.verdict.ablation_words import what_is_set_back


def ablation_lines(found: Ablation) -> list[str]:
    """A heading, and a line for each value that was set back, what made most first."""
    name = harmless(found.study)
    if not found.rows:
        return [f"{name}: trial {found.trial} is being taken apart; too few runs are finished"]
    rest = "" if found.complete else ", not all finished"
    heading = (
        f"{name}: trial {found.trial} with one value set back to the default, against trial "
        f"{found.trial} itself ({found.seeds} runs of each{rest}; 95 %):"
    )
    lines = [heading]
    width = max(len(what_is_set_back(row)) for row in found.rows)
    for row in found.rows:
        missed = f", {row.missed} missed" if row.missed else ""
        lines.append(
            f"  {what_is_set_back(row):<{width}}  {row.time_ratio:.2f} x the time, "
            f"{row.mql_ratio:.4f} x the MQL{missed}"
        )
    return lines
