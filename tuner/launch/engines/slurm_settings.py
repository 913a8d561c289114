"""What Slurm is told of the workers beside their number: the keys of `--placement`, checked.

Each value becomes an option in a script, so none may hold a blank, a quote or a line end.
"""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from tuner.files.plain import Strict

LEAST_LEFT_S = 30
"""Of a time limit beside the notice: less, and a worker would be stopped before it began."""
_TIME = re.compile(
    r"^(?:(?P<days>\d{1,4})-(?P<of_day>\d{1,2}(?::\d{1,2}){0,2})|(?P<short>\d{1,7}(?::\d{1,2}){0,2}))$",
    re.ASCII,
)

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,127}$")]
Words = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:@+,-]{0,511}$")]
"""One, or several with commas."""
Hosts = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]{0,511}$")]
Features = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\[(!][A-Za-z0-9_.:,&|*!()\[\]-]{0,511}$")]
Memory = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}[KMGT]?$")]


def limit_s(text: str) -> int:
    """Seconds of a time limit as Slurm writes it: `30` are minutes, `2:00:00` hours, `1-0` a day.

    Raises:
        ValueError: it is none.
    """
    found = _TIME.match(text)
    if found is None:
        raise ValueError("no time limit; expected e.g. 30 (minutes), 2:00:00 or 1-12:00:00")
    if found["days"] is not None:
        parts = [int(part) for part in found["of_day"].split(":")]
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return ((int(found["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    parts = [int(part) for part in found["short"].split(":")]
    if len(parts) == 3:  # noqa: PLR2004 - hours, minutes, seconds
        return (parts[0] * 60 + parts[1]) * 60 + parts[2]
    minutes, seconds = (*parts, 0)[:2]
    return minutes * 60 + seconds


def _time(text: str) -> str:
    limit_s(text)
    return text


def _line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds a control character; one line of a shell has none")
    return text


TimeLimit = Annotated[str, AfterValidator(_time)]
Line = Annotated[str, Field(max_length=2000), AfterValidator(_line)]


class SlurmSettings(Strict):
    """The keys of `--placement`, or of the table `[slurm]`, that Slurm takes."""

    partition: Words | None = None
    account: Word | None = None
    qos: Word | None = None
    reservation: Word | None = None
    time: TimeLimit | None = None
    """At most so long a worker runs before Slurm begins it anew; None: what the partition has."""
    gres: Words | None = None
    """The GPU of a worker: `gpu:h100:1`. By default `gpu:1`."""
    constraint: Features | None = None
    nodelist: Hosts | None = None
    exclude: Hosts | None = None
    cores: int | None = Field(None, ge=1, le=4096)
    """Of each worker. By default 1, and 4 beside a GPU."""
    memory: Memory | None = None
    """Of each worker: `16G`."""
    notice: int = Field(90, ge=10, le=3600)
    """Seconds before the time limit at which a worker is told to hand back what it runs. Slurm
    rounds up by as much as a minute."""
    setup: tuple[Line, ...] = Field((), max_length=100)
    """Lines of a shell before the worker: `module load cuda`. In a file only: it is code."""

    @model_validator(mode="after")
    def _leaves_time(self) -> Self:
        if self.time is not None and limit_s(self.time) < self.notice + LEAST_LEFT_S:
            raise ValueError(
                f"time={self.time} leaves a worker nothing; expected {LEAST_LEFT_S} s more than "
                f"the notice of {self.notice} s before its end"
            )
        return self
