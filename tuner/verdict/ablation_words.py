"""What a gain is made of, in words."""

from __future__ import annotations

from tuner.display.text import shown, shown_value
from tuner.files.plain import harmless
from tuner.verdict.ablation import Ablation, SetBack


def ablation_sentence(found: Ablation) -> str:
    """What made most first: `learning_rate 0.0009 -> 0.0001: 2.92 [2.65, 3.21] x the time, ...`."""
    name = harmless(found.study)
    if not found.rows:
        return f"{name}: trial {found.trial} is being taken apart; too few runs are finished"
    rest = "" if found.complete else ", not all finished"
    each = "; ".join(
        f"{what_is_set_back(row)}: {row.time_ratio:.2f} x the time, {row.mql_ratio:.4f} x the MQL"
        for row in found.rows
    )
    return (
        f"{name}, trial {found.trial} with one value set back to the default, against itself "
        f"({found.seeds} runs of each{rest}; 95 %): {each}"
    )


def what_is_set_back(row: SetBack) -> str:
    """`learning_rate 0.0009 -> 0.0001`."""
    if not row.name:
        return "all of them: the default"
    assert row.value is not None, "a value was set back"
    assert row.default is not None, "to the default's"
    return f"{shown(row.name)} {shown_value(row.value, 4)} -> {shown_value(row.default, 4)}"
