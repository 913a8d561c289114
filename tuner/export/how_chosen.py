"""How a configuration was chosen, as the plain data that every written form carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.export.best_config import Chosen
from tuner.export.pick import Picked
from tuner.spec.objectives import axis_title
from tuner.verdict.runs_model import Estimate
from tuner.verdict.same_quality import Answer


def how_chosen(picked: Picked, objectives: Sequence[str]) -> Chosen:
    """`objectives` are the study's, which name seconds and MQL."""
    clock, error = objectives
    expected = picked.expected
    return Chosen(
        on=None if picked.chosen_on is None else picked.chosen_on.value,
        why=_of_split(picked.why, error),
        expected=None
        if expected is None
        else {clock: expected.seconds, error: expected.mql, "runs": expected.runs},
        recommendation=None
        if picked.answer is None
        else _recommendation(picked.answer, picked.own, objectives),
        notes=tuple(_of_split(n, error) for n in picked.notes),
    )


def _of_split(said: str, error: str) -> str:
    """With whose MQL it speaks of, where that is not the test split's."""
    if "MQL" not in said or error == "test_mql":
        return said
    return f"{said.removesuffix('.')}. Each MQL in this is a {axis_title(error)}."


def _recommendation(
    answer: Answer, own: Answer | None, objectives: Sequence[str]
) -> dict[str, Any]:
    level = answer.against
    return {
        "margin": answer.margin,
        "chance": answer.chosen.chance,
        "sure_enough": answer.sure_enough,
        "least_runs": answer.least_runs,
        "default_stands": answer.default_stands,
        "default": _estimate(answer.default, objectives),
        "default_cut_at_epochs": answer.cut_at,
        "nearest": _estimate(answer.nearest, objectives),
        "against": level
        and {
            "study": level.study,
            "trial": level.trial,
            objectives[1]: level.mql,
            "relative_error": level.error,
            "cut_at_epochs": level.cut_at,
        },
        "own": own
        and (_estimate(own.chosen, objectives) or {}) | {"default_stands": own.default_stands},
    }


def _estimate(found: Estimate | None, objectives: Sequence[str]) -> dict[str, Any] | None:
    if found is None:
        return None
    clock, error = objectives
    return {
        "trial": found.trial,
        clock: found.seconds,
        error: found.mql,
        "chance": found.chance,
        "runs": found.runs,
    }
