"""Which of a task's covariates a model class of neuralforecast is given, and what is said of the
others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.config import ModelShapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Covariates:
    """How many columns of each kind are handed over, and how many are left out.

    A multivariate class has one table of static values for all windows, where ours differ by window
    (the number of the series they were cut from). It gets them as past columns that do not change.
    """

    past: int
    future: int
    static: int
    static_as_past: int
    left_out: tuple[str, ...]
    """What the class does not take, as in "6 future"."""

    @staticmethod
    def of(model_class: Any, shapes: ModelShapes) -> Covariates:
        """Those of a task with these shapes, for a class with neuralforecast's flags."""
        past = shapes.n_past if model_class.EXOGENOUS_HIST else 0
        future = shapes.n_future if model_class.EXOGENOUS_FUTR else 0
        static = shapes.n_static if model_class.EXOGENOUS_STAT else 0
        as_past = 0
        if model_class.MULTIVARIATE:
            as_past, static = (static if model_class.EXOGENOUS_HIST else 0), 0
        kinds = (
            ("past", shapes.n_past - past),
            ("future", shapes.n_future - future),
            ("static", shapes.n_static - static - as_past),
        )
        return Covariates(
            past=past,
            future=future,
            static=static,
            static_as_past=as_past,
            left_out=tuple(f"{number} {kind}" for kind, number in kinds if number),
        )

    def lists(self) -> dict[str, list[str] | None]:
        """The constructor's lists of names; the library asks for names, nobody reads them."""
        numbers = {
            "hist_exog_list": self.past + self.static_as_past,
            "futr_exog_list": self.future,
            "stat_exog_list": self.static,
        }
        return {
            key: [f"{key[:4]}{n}" for n in range(number)] or None for key, number in numbers.items()
        }

    def notice(self, reference: str) -> str:
        """That some are not used, for the person who starts a study; empty where all are."""
        if not self.left_out:
            return ""
        listed = " and ".join(filter(None, (", ".join(self.left_out[:-1]), self.left_out[-1])))
        return f"{reference} does not take the task's {listed} covariates: they are left out"
