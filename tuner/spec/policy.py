"""How a study is searched and run: what may change
between two launches, unlike the study's definition.

Stored with the study, so that a worker on another machine needs only the database's address and the
data.
"""

from __future__ import annotations

import json
import re
from typing import Annotated

from pydantic import Field

from tuner.config import SAMPLERS, SamplerName
from tuner.errors import StorageError, UsageError, unknown_name
from tuner.files.plain import LARGEST, UNREADABLE, excerpt, explained, read_json
from tuner.settings import DURATION, HOURS, NUMBER, SIZE, Flag, Settings, Unit, in_percent
from tuner.spec.margin import MARGIN, OF_MARGIN, TOO_MUCH

LARGEST_SEED = 2**32 - 1
"""What NumPy's generators and Optuna's samplers take."""
MOST_RERUNS = 1_000_000


def sampler_named(name: str, flag: str = "sampler") -> str:
    """Raises UsageError for a sampler that there is not."""
    del flag  # the sentence tells by itself what it is about
    if name not in SAMPLERS:
        raise unknown_name("sampler", name, SAMPLERS)
    return name


def _seed(text: str, flag: str) -> int:
    digits = text.strip()
    if not re.fullmatch("[0-9]{1,10}", digits) or int(digits) > LARGEST_SEED:
        raise UsageError(
            f"{flag}: {text!r} is no seed; expected a whole number from 0 to {LARGEST_SEED}"
        )
    return int(digits)


class SearchPolicy(Settings):
    """What the launches of a study have said, the later over the earlier.
    Workers read it before each trial.

    As what one launch says of it, only what is named counts, and None lifts a limit.
    """

    first = (
        "sampler",
        "seed",
        "prune",
        "max_time_s",
        "max_mql",
        "max_memory_bytes",
        "reruns",
        "checkpoint_s",
    )

    sampler: Annotated[
        SamplerName,
        Flag(
            "--sampler",
            f"{', '.join(SAMPLERS[:-1])} or {SAMPLERS[-1]} (a new study: auto).",
            "NAME",
            Unit(sampler_named, str),
        ),
    ] = "auto"
    seed: Annotated[
        int | None,
        Field(ge=0, le=LARGEST_SEED),
        Flag(
            "--sampler-seed",
            "Of the search, which one worker then repeats exactly (none: from its name).",
            "N|none",
            Unit(_seed, str),
            none=None,
        ),
    ] = None
    """Of the sampler; with one worker the search is then reproducible."""
    prune: Annotated[
        bool | None,
        Flag(
            "--prune",
            "End trials early whose best possible end is dominated (on; off with kg, and so "
            "with auto).",
            usual="pruning as the sampler has it",
        ),
    ] = None
    """End trials early whose best possible end is dominated by finished ones; None where nobody has
    said it: as the sampler has it (`tuner.search.methods.prunes`)."""
    max_time_s: Annotated[
        float | None,
        Field(gt=0),
        Flag(
            "--max-time", "Configurations must take at most S seconds.", "S|none", NUMBER, none=None
        ),
    ] = None
    """Constraint on the time objective, seconds."""
    max_mql: Annotated[
        float | None,
        Field(gt=0),
        Flag("--max-mql", "Configurations must have at most Q.", "Q|none", NUMBER, none=None),
    ] = None
    max_memory_bytes: Annotated[
        int | None,
        Field(gt=0, le=LARGEST),
        Flag(
            "--max-memory",
            "Configurations must need at most this (GPU: allocated).",
            "8GB|none",
            SIZE,
            none=None,
        ),
    ] = None
    reruns: Annotated[
        int,
        Field(ge=0, le=MOST_RERUNS),
        Flag("--reruns", "How often a contaminated timing is run again (1).", "N"),
    ] = 1
    checkpoint_s: Annotated[
        float,
        Field(ge=0),
        Flag(
            "--checkpoint-every",
            "Time between two checkpoints of a training (30s).",
            "30s|none",
            DURATION,
            none=0.0,
        ),
    ] = 30.0
    """Seconds between two checkpoints of a training; 0: none."""
    margin: Annotated[
        float | None,
        Field(ge=0, lt=TOO_MUCH),
        Flag(
            "--margin",
            "As good as the default is an MQL at most so much above its own (a new study: 1%).",
            "1%",
            OF_MARGIN,
            usual=f"--margin {in_percent(MARGIN)}",
        ),
    ] = None
    """How much higher than the default's an MQL may be that is as good, relative; None where nobody
    has said it yet and no confirmation has begun."""
    search_s: Annotated[
        float | None,
        Field(gt=0),
        Flag(
            "--search-time",
            "No trial begins once those of its search have had their devices for so long.",
            "5m|none",
            DURATION,
            none=None,
        ),
    ] = None
    max_gpu_s: Annotated[
        float | None,
        Field(gt=0),
        Flag(
            "--max-gpu-hours",
            "Device hours for all that is trained for these studies, on all devices together: no "
            "training begins that cannot be paid, and one under way ends at the limit.",
            "H|none",
            HOURS,
            none=None,
        ),
    ] = None
    """Seconds of devices, for all that is trained for the studies that share it
    (`tuner.storage.queue.gpu_hours`)."""
    gpu_shared: Annotated[
        tuple[str, ...], Flag("", words=lambda names: f"(shared by {', '.join(names)})")
    ] = ()
    """The names of these studies; empty: this one alone."""

    @property
    def counted_margin(self) -> float:
        """The margin that counts."""
        return MARGIN if self.margin is None else self.margin

    def to_json(self) -> str:
        """The stored form."""
        return json.dumps(self.as_dict(), sort_keys=True)

    @staticmethod
    def from_json(text: str | None, study: str | None = None) -> SearchPolicy:
        """The stored policy; where none was stored, that of a new study. `study` is the name of
        whose it is.

        Raises:
            StorageError: a newer tuner wrote settings that this one does not know, or somebody what
                is none.
        """
        whose = "the study's policy" if study is None else f"the policy of study {study!r}"
        try:
            data = read_json(text) if text else {}
            unknown = data.keys() - SearchPolicy.model_fields.keys()
            if unknown:
                raise StorageError(
                    f"{whose} holds settings that this tuner does not know "
                    f"({excerpt(', '.join(sorted(unknown)))}); upgrade tuner on this machine"
                )
            return SearchPolicy.model_validate_json(text or "{}", strict=True)
        except UNREADABLE as error:
            raise StorageError(
                f"{whose} cannot be read ({explained(error)}); restore it from a backup, or start "
                "another study with --study NAME"
            ) from None
