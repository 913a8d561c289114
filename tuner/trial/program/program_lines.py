"""What a program says of its training: lines of JSON, each checked before anything reads it.

`{"started": true}`, once its set-up is over; then, for each epoch, `{"epoch": 1, "train_loss": 0.9,
"val_loss": 0.8}`; at last `{"final": {"test_mql": 0.7}}`. The page docs/own-loops.md says it all.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tuner.errors import TunerError
from tuner.files.kinds import LARGEST_FIGURE, MOST_EPOCHS
from tuner.files.plain import LARGEST, excerpt

LINE_BYTES = 1 << 16
"""Of one line; none that is meant is longer."""


class ProgramError(TunerError):
    """What is wrong with a program or with what it said, in one line: its trial's failure."""


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


Seconds = Annotated[float, Field(ge=0, le=LARGEST_FIGURE, allow_inf_nan=False)]


class Started(_Said):
    """Its set-up is over: the clock starts."""

    started: Literal[True]


class EpochSaid(_Said):
    """An epoch is over, training and validation. A loss may be NaN: then it has diverged."""

    epoch: Annotated[int, Field(ge=1, le=MOST_EPOCHS)]
    train_loss: float
    val_loss: float
    learning_rate: Annotated[float, Field(ge=0, le=LARGEST_FIGURE, allow_inf_nan=False)] | None = (
        None
    )
    elapsed_s: Seconds | None = None
    """On the clock of one of tuner's callbacks, since it started in this process."""

    @property
    def diverged(self) -> bool:
        return not (is_figure(self.train_loss) and is_figure(self.val_loss))


class Figures(_Said):
    """How good it became, and what else is known of it."""

    test_mql: float | None = None
    val_mql: float | None = None
    converged: bool | None = None
    epochs: Annotated[int, Field(ge=1, le=MOST_EPOCHS)] | None = None
    """How many its training had: for one that had told all of them before it was interrupted."""
    n_parameters: Annotated[int, Field(ge=0, le=LARGEST)] | None = None
    peak_memory_bytes: Annotated[int, Field(ge=0, le=LARGEST)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Figures:
        if self.test_mql is None and self.val_mql is None:
            raise ValueError("has neither test_mql nor val_mql")
        return self


class Final(_Said):
    """The last line."""

    final: Figures


Said = Started | EpochSaid | Final
_KINDS: dict[str, type[Said]] = {"started": Started, "epoch": EpochSaid, "final": Final}


class _TwiceError(Exception):
    """A key of a table, which has two values."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(excerpt(next(key for key in keys if keys.count(key) > 1), at_most=40))
    return table


def is_whole(line: bytes) -> bool:
    """Whether it is a line that was written to its end: some JSON."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def is_figure(value: float | None) -> bool:
    """Whether it is a number that can be kept."""
    return value is not None and math.isfinite(value) and abs(value) <= LARGEST_FIGURE


def read_line(line: bytes) -> Said:
    """What one line says.

    Raises:
        ProgramError: it says nothing that is known here.
    """
    shown = excerpt(line.decode("utf-8", "replace").strip(), at_most=80)
    try:
        data = json.loads(line, object_pairs_hook=_once)
    except _TwiceError as error:
        raise ProgramError(f"its report holds {shown!r}, which says {error} twice") from None
    except (ValueError, RecursionError):
        raise ProgramError(f"its report holds {shown!r}, which is no line of JSON") from None
    named = data if isinstance(data, dict) else {}
    kind = next((kind for name, kind in _KINDS.items() if name in named), None)
    if kind is None:
        raise ProgramError(
            f"its report holds {shown!r}; expected a table with started, epoch or final"
        )
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise ProgramError(f"its report holds {shown!r}: {_what_is_wrong(kind, error)}") from None


def _what_is_wrong(kind: type[Said], error: ValidationError) -> str:
    details = error.errors(include_url=False)
    # An unknown key first: a misspelt one is also why another is missing.
    first = next((each for each in details if each["type"] == "extra_forbidden"), details[0])
    where = excerpt(".".join(str(part) for part in first["loc"]) or "the table", at_most=80)
    if first["type"] == "extra_forbidden":
        within = Figures if len(first["loc"]) > 1 else kind
        return f"{where} is unknown; expected some of {', '.join(within.model_fields)}"
    return excerpt(f"{where}: {first['msg']}", at_most=160)
