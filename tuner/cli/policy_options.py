"""What a launch says of how its studies are searched:
only what was said changes, and a limit can be lifted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tuner.cli.options import above_zero, duration_s, share, size_bytes
from tuner.config import SAMPLERS
from tuner.errors import UsageError, unknown_name
from tuner.spec.policy import LARGEST_SEED, NONE


def check_sampler(name: str | None) -> None:
    """Raises UsageError for a sampler that there is not."""
    if name is not None and name not in SAMPLERS:
        raise unknown_name("sampler", name, SAMPLERS)


def said_policy(
    *,
    sampler: str | None,
    sampler_seed: str | None,
    prune: bool | None,
    reruns: int | None,
    checkpoint_every: str | None,
    max_time: str | None = None,
    max_mql: str | None = None,
    max_memory: str | None = None,
    search_time: str | None = None,
    margin: str | None = None,
    max_gpu_hours: str | None = None,
) -> dict[str, Any]:
    """The fields of a `SearchPolicy` that these flags name, with their values; a flag that is None
    was not given.

    Raises:
        UsageError: a value that its flag does not take.
    """
    check_sampler(sampler)
    said: dict[str, Any] = {"sampler": sampler, "prune": prune, "reruns": reruns}
    said = {name: value for name, value in said.items() if value is not None}
    liftable: dict[str, tuple[str | None, str, Callable[[str, str], Any]]] = {
        "seed": (sampler_seed, "--sampler-seed", _seed),
        "max_time_s": (max_time, "--max-time", above_zero),
        "max_mql": (max_mql, "--max-mql", above_zero),
        "max_memory_bytes": (max_memory, "--max-memory", size_bytes),
        "search_s": (search_time, "--search-time", duration_s),
        "max_gpu_s": (max_gpu_hours, "--max-gpu-hours", _hours),
    }
    for name, (text, flag, read) in liftable.items():
        if text is not None:
            said[name] = None if text.strip() == NONE else _read(read, text, flag)
    if checkpoint_every is not None:
        nothing = checkpoint_every.strip() in {NONE, "0", "0s"}
        said["checkpoint_s"] = (
            0.0 if nothing else _read(duration_s, checkpoint_every, "--checkpoint-every")
        )
    if margin is not None:
        said["margin"] = share(margin, "--margin")
    return said


def _read(read: Callable[[str, str], Any], text: str, flag: str) -> Any:
    try:
        return read(text, flag)
    except UsageError as error:
        raise UsageError(f"{error}, or '{NONE}'") from None


def _hours(text: str, flag: str) -> float | None:
    hours = above_zero(text, flag)
    return None if hours is None else 3600.0 * hours


def _seed(text: str, flag: str) -> int:
    digits = text.strip()
    if not re.fullmatch("[0-9]{1,10}", digits) or int(digits) > LARGEST_SEED:
        raise UsageError(
            f"{flag}: {text!r} is no seed; expected a whole number from 0 to {LARGEST_SEED}"
        )
    return int(digits)
