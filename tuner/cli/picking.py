"""What `tuner best` and `tuner train` take alike: which configuration of a study."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from tuner.cli.options import storage_url
from tuner.spec.margin import margin_of

if TYPE_CHECKING:
    from tuner.export import BestConfig


class Pick(StrEnum):
    """Which configuration."""

    SAME_QUALITY = "same-quality"
    MQL = "mql"
    TIME = "time"
    KNEE = "knee"


class PointOfFront(StrEnum):
    """Which point of the front."""

    MQL = "mql"
    TIME = "time"
    KNEE = "knee"


class FrontValues(StrEnum):
    """`tuner.verdict.front_by_values.Values`, without its imports."""

    SINGLE = "single"
    EXPECTED = "expected"
    VERIFIED = "verified"


PickName = Annotated[
    Pick,
    typer.Option(
        help="What saves most time and is as good as the default; or of the front the lowest "
        "MQL, the lowest time, or the knee."
    ),
]
ValuesName = Annotated[
    FrontValues | None,
    typer.Option(
        help="Which front: of single runs, of what all runs expect (this one, where trials are "
        "enough), of medians over fresh seeds."
    ),
]
Margin = Annotated[
    str | None,
    typer.Option(
        metavar="1%",
        help="As good is an MQL at most so much above the default's (the study's; 1%).",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="As good as another's default: a variant, study:NAME, or an exported study.",
    ),
]
MaxTime = Annotated[float | None, typer.Option(metavar="S", help="At most this many seconds.")]
MaxMql = Annotated[float | None, typer.Option(metavar="Q", help="At most this MQL.")]
TrialNumber = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="This trial, on the front or not.")
]


class Picking(Protocol):
    """The options that both commands have."""

    @property
    def variant(self) -> str | None: ...
    @property
    def pick(self) -> Pick: ...
    @property
    def values(self) -> FrontValues | None: ...
    @property
    def margin(self) -> str | None: ...
    @property
    def against(self) -> str | None: ...
    @property
    def max_time(self) -> float | None: ...
    @property
    def max_mql(self) -> float | None: ...
    @property
    def trial(self) -> int | None: ...
    @property
    def study(self) -> str | None: ...
    @property
    def storage(self) -> str | None: ...


def picked(options: Picking, *, task: str, trust: bool = False) -> BestConfig:
    """The configuration that the options name."""
    from tuner.export.load import best_of, is_archive
    from tuner.export.pick import Asked

    wanted = Asked(
        pick=options.pick.value,
        values=options.values and options.values.value,
        margin=margin_of(options.margin, "--margin"),
        against=options.against,
        bounds=(options.max_time, options.max_mql),
        trial=options.trial,
    )
    storage = options.storage
    storage = storage if storage and is_archive(storage) else storage_url(storage)
    return best_of(
        wanted, options.variant, task=task, study=options.study, storage=storage, trust=trust
    )
