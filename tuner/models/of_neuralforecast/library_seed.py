"""The random seed that neuralforecast's constructors ask for, and set in the whole process."""

from __future__ import annotations

import contextlib
import logging
import os
import random
from collections.abc import Iterator

import numpy as np
import torch

_SET = ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")
"""Environment variables that Lightning leaves behind."""
_LOGGER = "lightning_fabric.utilities.seed"


@contextlib.contextmanager
def library_seed() -> Iterator[int]:
    """A seed drawn from torch's random state: ours decides the weights.

    The constructor seeds Python's, numpy's and torch's generators with it, notes it in the
    environment and logs it. Afterwards all of that is as it was, but for the one number drawn.
    """
    seed = int(torch.randint(2**31, ()))
    environment = {name: os.environ.get(name) for name in _SET}
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the one it seeds
    logger = logging.getLogger(_LOGGER)
    level = logger.level
    initialised = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if initialised else ()
    logger.setLevel(logging.WARNING)
    try:
        with torch.random.fork_rng(devices=list(devices)):
            yield seed
    finally:
        logger.setLevel(level)
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
