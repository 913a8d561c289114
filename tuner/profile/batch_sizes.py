"""Memory and time against batch size: a few steps at each, and none that could end the process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import psutil
import torch

from tuner.config import Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.devices.free_memory import free_memory_bytes
from tuner.errors import TunerError
from tuner.models.fault import on_one_line
from tuner.profile.profile_records import AtBatch
from tuner.profile.stage_times import NoMemoryError, guarded
from tuner.profile.timed_training import running
from tuner.training.stage_marks import Stage
from tuner.trial.survival import lost_context

FACTORS = (0.5, 1, 2, 4, 8, 16)
COMPILED_FACTORS = (1, 4)
"""Each size is compiled anew, for up to half a minute."""

COMPILING = (Backend.COMPILE, Backend.TRITON)

STEPS = 6
SETTLE = 2

SPARE = 0.5
"""Of the host's free memory: what may come to more is not tried on a CPU. No allocation fails there
until it is too late."""

BATCHES = 2
"""That an epoch has to have at least."""


def at_batch_sizes(config: RunConfig, data: DeviceData, ran: Backend) -> Iterator[AtBatch]:
    """Half the batch to sixteen times of it, as far as it fits; the smallest first. With a backend
    that compiles on a GPU (`ran` is the one that the training comes to), two of these.
    """
    batch = config.hyperparameters.batch_size
    compiles = ran in COMPILING and data.minimum.device.type == "cuda"
    factors = COMPILED_FACTORS if compiles else FACTORS
    sizes = sorted({max(1, int(batch * factor)) for factor in factors})
    most = max(batch, len(data.train) // BATCHES)
    found: list[AtBatch] = []
    for size in sizes:
        if size > most or (found and found[-1].failure):
            break
        found.append(_at(config, data, size, found))
        yield found[-1]


def _at(config: RunConfig, data: DeviceData, size: int, before: Sequence[AtBatch]) -> AtBatch:
    if data.minimum.device.type == "cpu" and (expected := _expected(size, before)) is not None:
        free = free_memory_bytes()
        if expected > SPARE * free:
            why = f"not tried: about {expected / 1e9:.1f} GB of {free / 1e9:.1f} GB that are free"
            return AtBatch(batch_size=size, peak_bytes=None, step_s=None, failure=why)
    sizes = replace(config.hyperparameters, batch_size=size)
    try:
        return guarded(lambda: _measured(replace(config, hyperparameters=sizes), data))
    except NoMemoryError as error:
        failure = f"out of memory: {error}"
    except (TunerError, RuntimeError) as error:
        if lost_context(error):
            raise
        failure = on_one_line(error)
    return AtBatch(batch_size=size, peak_bytes=None, step_s=None, failure=failure)


def _measured(config: RunConfig, data: DeviceData) -> AtBatch:
    device = data.minimum.device
    on_gpu = device.type == "cuda"
    peak = _PeakOfProcess()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    with running(config, data) as found:
        if not on_gpu:
            found.engine.mark_with(peak)
        found.steps(SETTLE)
        took = found.steps(STEPS)
        peak_bytes = torch.cuda.max_memory_allocated(device) if on_gpu else peak.n_bytes
    return AtBatch(
        batch_size=config.hyperparameters.batch_size,
        peak_bytes=peak_bytes,
        step_s=took.seconds / took.windows * config.hyperparameters.batch_size,
    )


class _PeakOfProcess:
    """The most that the process holds at the end of a stage: a `Mark`."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.n_bytes = 0

    def __call__(self, stage: Stage) -> None:
        del stage
        self.n_bytes = max(self.n_bytes, self._process.memory_info().rss)


def _expected(size: int, before: Sequence[AtBatch]) -> float | None:
    """Bytes beyond what the process holds, as memory has grown with the batch so far."""
    known = [(each.batch_size, each.peak_bytes) for each in before if each.peak_bytes is not None]
    if len(known) < 2:  # noqa: PLR2004 - a line takes two points
        return None
    (small, less), (large, more) = known[-2:]
    return max(0.0, (more - less) / (large - small)) * (size - large)
