"""What a gain is made of, in words."""

from __future__ import annotations

from tuner.display.text import shown, shown_value
from tuner.files.plain import harmless
from tuner.verdict.ablation import WHOLE, Ablation, CutOff, SetBack, what_made_most_first


def ablation_sentence(found: Ablation) -> str:
    """What made most first: `learning_rate 0.0009 -> 0.0001: 2.92 [2.65, 3.21] x the time, ...`."""
    rows = said_of_each(found)
    if not rows:
        return too_few(found)
    each = "; ".join([*(f"{what}: {how_much}" for what, how_much in rows), *left_out(found)])
    name, what = harmless(found.study), as_set_back(found)
    return f"{name}, {what}, against itself {runs_of_each(found)}: {each}"


def said_of_each(found: Ablation) -> list[tuple[str, str]]:
    """What was set back, and how much slower and worse that is: what made most first, the whole
    default last.
    """
    rows: list[SetBack | CutOff] = [*found.cut_off, *found.rows]
    rows.sort(key=what_made_most_first)
    return [
        (what_is_set_back(row), at_least(row) if isinstance(row, CutOff) else ratios(row))
        for row in rows
    ]


def too_few(found: Ablation) -> str:
    """In place of figures, where there is none."""
    name = harmless(found.study)
    if found.complete:
        return f"{name}: of trial {found.trial}, taken apart, too few runs converged undisturbed"
    return f"{name}: trial {found.trial} is being taken apart; too few runs are finished"


def as_set_back(found: Ablation) -> str:
    """What is compared. A gain that nobody has confirmed is called so."""
    confirmed = "" if found.confirmed else " (not confirmed)"
    return f"trial {found.trial}{confirmed} with one value set back to the default"


def runs_of_each(found: Ablation) -> str:
    rest = "" if found.complete else ", not all finished"
    return f"({found.seeds} runs of each{rest}; 95 %)"


def left_out(found: Ablation) -> list[str]:
    """What can say nothing, once everything has run."""
    said = "too few of its runs converged undisturbed"
    return [f"{shown(name)}: {said}" for name in found.unsaid] if found.complete else []


def ratios(row: SetBack) -> str:
    """`2.92 [2.65, 3.21] x the time, 0.9961 [0.9885, 1.0039] x the MQL`."""
    missed = f", {row.missed} did not converge" if row.missed else ""
    return f"{row.time_ratio:.2f} x the time, {row.mql_ratio:.4f} x the MQL{missed}"


def at_least(row: CutOff) -> str:
    """`at least 5.70 x the time (9 of 10 runs cut off before they converged)`."""
    runs = f"{row.cut} of {row.runs} runs cut off before they converged"
    return f"at least {row.least:.2f} x the time ({runs})"


def what_is_set_back(row: SetBack | CutOff) -> str:
    """`learning_rate 0.0009 -> 0.0001`."""
    if row.name == WHOLE:
        return "all of them: the default"
    assert row.value is not None, "a value was set back"
    assert row.default is not None, "to the default's"
    return f"{shown(row.name)} {shown_value(row.value, 4)} -> {shown_value(row.default, 4)}"
