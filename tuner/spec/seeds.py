"""The seeds that trials are trained with."""

from __future__ import annotations

import numpy as np


def seed_of_trial(number: int, repeat: int = 0) -> int:
    """The training seed of a trial: fixed by its number,
    so that a retry is the same run; unrelated between trials.
    """
    return int(np.random.SeedSequence([number, repeat]).generate_state(1)[0])
