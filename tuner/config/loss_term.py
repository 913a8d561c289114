"""What a user adds to the training loss, as a record. Nothing here is imported or called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from tuner.config.references import NetworkName, names_own_code
from tuner.files.plain import Label
from tuner.settings import Settings

LARGEST_WEIGHT = 1e30


def _own(term: str) -> str:
    if not names_own_code(term):
        raise ValueError(
            f"{term!r} is no function or class of yours; expected FILE.py:name or "
            "package.module:name"
        )
    return term


def _weight(weight: float | str) -> float | str:
    if not isinstance(weight, str) and not 0 <= weight <= LARGEST_WEIGHT:
        raise ValueError(f"must be 0 or more, not {weight:g}; or the name of a hyperparameter")
    return weight


class LossTerm(Settings):
    """training loss = quantile loss + `weight` x `term`; whatever is judged is the former alone."""

    term: Annotated[NetworkName, AfterValidator(_own)]
    """`FILE.py:name` or `package.module:name`, of a function or a class."""
    weight: Annotated[float | Label, AfterValidator(_weight)]
    """0 or more, or the name of the hyperparameter that it is."""

    @property
    def hyperparameter(self) -> str | None:
        """The one that the weight is; None where it is a number."""
        return self.weight if isinstance(self.weight, str) else None

    def weight_in(self, own: Mapping[str, float | int | str | bool]) -> float:
        """The weight in a configuration with these hyperparameters of its own.

        Raises:
            KeyError: the weight is none of them.
        """
        return float(own[self.weight] if isinstance(self.weight, str) else self.weight)

    def in_words(self) -> str:
        """Without the folder, e.g. `lambda_physics x physics.py:continuity`."""
        return f"{self.weight} x {self.term.rpartition('/')[2]}"
