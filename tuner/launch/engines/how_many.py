"""How many workers an engine is to place, where it cannot tell how many GPUs there are."""

from __future__ import annotations

from tuner.errors import UsageError
from tuner.launch.request import DeviceChoice


def workers_asked(choice: DeviceChoice) -> int:
    """The number that `--gpus` or `--workers` says.

    Raises:
        UsageError: neither does, or it is no number.
    """
    if choice.cpu:
        if choice.workers is None:
            raise UsageError(f"--cpu --on {choice.on}: say how many workers with --workers N")
        return choice.workers
    wanted = choice.gpus
    if wanted is None:
        raise UsageError(f"--on {choice.on}: say how many GPUs with --gpus N, or --cpu --workers N")
    if not wanted.isdecimal() or not wanted.isascii() or not 0 < len(wanted) < 7:  # noqa: PLR2004
        raise UsageError(
            f"--gpus: {wanted!r} with --on {choice.on} is how many GPUs; expected e.g. 4"
        )
    if int(wanted) == 0:
        raise UsageError(f"--gpus: 0 with --on {choice.on}; expected at least 1")
    return int(wanted)
