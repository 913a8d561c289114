"""The kinds of source that a task may name: ETT, generated series, or a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from tuner.files.plain import Label

Name = Label


class Frozen(BaseModel):
    """A part of a task file: no key beyond those named, and nothing changes afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EtthSource(Frozen):
    """ETTh1 and ETTh2 of the ETDataset: two series of hourly data."""

    kind: Literal["etth"]


class DemoSource(Frozen):
    """Generated hourly series; `rows` hours each."""

    kind: Literal["demo"]
    rows: int = Field(default=400, ge=1, le=1_000_000)
    seed: int = Field(default=0, ge=0, le=2**63 - 1)


class CsvSource(Frozen):
    """The user's own file.

    Without `id_column` the file is wide: one row per timestamp, one series, named like the task.
    With it the file is
    long: the rows of several series stacked or interleaved, each series named by its id, numbered
    in the order in which the ids first appear. `path` is relative to the folder of the task file.
    Timestamps are ISO 8601 unless `time_format` (as in Python's strptime) says otherwise; those
    with an offset are converted to UTC.
    """

    kind: Literal["csv"]
    path: Path
    time_column: Name = "ds"
    id_column: Name | None = None
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","
    decimal: Literal[".", ","] = "."
    encoding: Name = "utf-8"
    time_format: Name | None = None

    @field_validator("decimal")
    @classmethod
    def _decimal_is_not_the_separator(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("separator") == value:
            raise ValueError(f"{value!r} is the separator as well; set separator = ';'")
        return value

    @field_validator("encoding")
    @classmethod
    def _encoding_is_known(cls, value: str) -> str:
        try:
            "".encode(value)
        except (LookupError, ValueError):
            raise ValueError(
                f"unknown encoding {value!r}; use for example utf-8, cp1252, latin-1, utf-16"
            ) from None
        return value


Source = Annotated[EtthSource | DemoSource | CsvSource, Field(discriminator="kind")]
