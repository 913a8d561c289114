"""What a Social-xLSTM is built with beside its hidden size and dropout: read from a study, checked.
Nothing heavy is imported.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tuner.errors import UsageError, unknown_name
from tuner.models.names import SHARED


class Kind(StrEnum):
    """Which memory."""

    MLSTM = "mlstm"
    """A matrix a head, all time steps at once."""
    SLSTM = "slstm"
    """A number a unit, step after step."""


class Cell(StrEnum):
    """Whose code."""

    AUTO = "auto"
    """The package `xlstm` where it can be imported, else tuner's own."""
    OWN = "own"
    XLSTM = "xlstm"


class Pooling(StrEnum):
    """What a detector sees of the others."""

    SOCIAL = "social"
    NONE = "none"


OF_POOLING = ("pool_radius", "pool_grid")


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSettings:
    """The arguments of a network; each is a fixed setting of a study, or searched."""

    hidden_size: int
    dropout: float
    n_layers: int = 1
    n_heads: int = 4
    kind: Kind = Kind.MLSTM
    cell: Cell = Cell.AUTO
    reversible_norm: bool = True
    pooling: Pooling = Pooling.SOCIAL
    pool_radius: float = 2.0
    """How far a detector sees, to each side, in the usual distance from one to the next."""
    pool_grid: int = 4
    """Cells of the grid to each side of the square; even, so that no cell is on both sides."""
    group_size: int | None = None
    """Of `SHARED`: so many detectors share their weights; all, where it is not given."""

    @staticmethod
    def of(variant: str, arguments: Mapping[str, Any]) -> VariantSettings:
        """From the arguments of a study.

        Raises:
            UsageError: one line that names what is wrong.
        """
        where = f"variant {variant!r}, settings"
        names = [each.name for each in dataclasses.fields(VariantSettings)]
        if variant != SHARED:
            names.remove("group_size")
        for name in arguments:
            if name not in names:
                raise unknown_name(f"setting of variant {variant!r}", name, names[2:])
        given = dict(arguments)
        if given.get("pooling") is False:
            given["pooling"] = Pooling.NONE
        for name, choices in (("kind", Kind), ("cell", Cell), ("pooling", Pooling)):
            if name in given:
                given[name] = _choice(where, name, given[name], choices)
        found = VariantSettings(**given)
        found._check(where)
        for name in OF_POOLING:
            if found.pooling is Pooling.NONE and name in arguments:
                raise UsageError(
                    f"{where}: pooling is 'none', so {name} means nothing; leave {name} out of "
                    "[space], [defaults] and [model_settings]"
                )
        return found

    def _check(self, where: str) -> None:
        for name in ("n_layers", "n_heads", "pool_grid", "group_size"):
            value = getattr(self, name)
            if name == "group_size" and value is None:
                continue
            if not _is_number(value) or not isinstance(value, int) or value < 1:
                raise UsageError(
                    f"{where}: {name} must be a whole number of at least 1, not {value!r}"
                )
        if self.pool_grid % 2:
            raise UsageError(f"{where}: pool_grid must be even, not {self.pool_grid}")
        radius = self.pool_radius
        if not _is_number(radius) or not math.isfinite(radius) or radius < 1:
            raise UsageError(
                f"{where}: pool_radius must be a number of at least 1 (the usual distance from one "
                f"detector to the next), not {radius!r}"
            )
        if not isinstance(self.reversible_norm, bool):
            raise UsageError(
                f"{where}: reversible_norm must be true or false, not {self.reversible_norm!r}"
            )
        if self.hidden_size % self.n_heads:
            raise UsageError(
                f"{where}: hidden_size {self.hidden_size} is no multiple of n_heads "
                f"{self.n_heads}; choose sizes that are"
            )
        if self.cell is Cell.XLSTM and self.kind is Kind.SLSTM:
            raise UsageError(
                f"{where}: cell = 'xlstm' is for kind = 'mlstm': each step of the package's sLSTM "
                "waits for the device; set cell = 'own'"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _choice(where: str, name: str, value: object, choices: type[StrEnum]) -> StrEnum:
    known = [each.value for each in choices]
    if not isinstance(value, str) or value not in known:
        listed = ", ".join(map(repr, known))
        raise UsageError(f"{where}: {name} must be one of {listed}, not {value!r}")
    return choices(value)
