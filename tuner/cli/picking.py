"""What `tuner best` and `tuner train` take alike: which configuration of a study."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tuner.cli.command import option
from tuner.cli.options import Json, Storage, Study, storage_url
from tuner.cli.replace import Force
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
    """`tuner.verdict.runs_model.Values`, without its imports."""

    SINGLE = "single"
    EXPECTED = "expected"
    VERIFIED = "verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picking:
    """The options of a command that is about a configuration of a study."""

    variant: str | None = option("NAME", "Variant whose searches are picked from (or --study).")
    pick: Pick = option(
        None,
        "What saves most time and is as good as the default; or of the front the lowest MQL, the "
        "lowest time, or the knee.",
        default=Pick.SAME_QUALITY,
    )
    margin: str | None = option(
        "1%", "As good is an MQL at most so much above the default's (the study's; 1%)."
    )
    against: str | None = option(
        "NAME", "As good as another's default: a variant, study:NAME, or an exported study."
    )
    values: FrontValues | None = option(
        None,
        "Which front: of single runs, of what all runs expect (this one, where trials are enough), "
        "of medians over fresh seeds.",
    )
    max_time: float | None = option("S", "At most this many seconds.")
    max_mql: float | None = option("Q", "At most this MQL.")
    trial: int | None = option("N", "This trial, on the front or not.", min=0)
    study: Study = None
    storage: Storage = None
    force: Force = False
    json: Json = False


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
