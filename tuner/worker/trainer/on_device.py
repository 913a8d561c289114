"""What trains on a device, once the data is there. It imports torch."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping

from tuner.data.prepare import PreparedData
from tuner.data.windows import DeviceData, to_device
from tuner.devices import CpuCores, Gpu, exclusive
from tuner.devices.lock import giving_up, logs_waiting
from tuner.errors import TunerError, first_line
from tuner.training.engines.pool import EnginePool
from tuner.trial.job import TrialRunner, lost_context
from tuner.trial.run import git_revision
from tuner.trial.seeds_and_reruns import run_job


def on_device(
    prepared: Mapping[str, PreparedData], device: Gpu | CpuCores
) -> dict[str, DeviceData]:
    """All of it, by data hash; a CPU's trainings take as many threads as they have cores."""
    if isinstance(device, CpuCores):
        import torch

        torch.set_num_threads(len(device.cores))
    target = "cpu" if isinstance(device, CpuCores) else "cuda:0"
    return {name: to_device(each, target) for name, each in prepared.items()}


def load_onto(
    device: Gpu | CpuCores,
    prepare: Callable[[], Mapping[str, PreparedData]],
    give_up: Callable[[], bool],
    on_phase: Callable[[str], None],
) -> TrialRunner | None:
    """What trains on the data, once that is on the device; None when it was told to give up.

    `prepare` gives the data by data hash. What reads it uses the device too, where that is a CPU:
    it is not done beside somebody's timed training.

    Raises:
        TunerError: the device does not even take the data.
        DeviceLockError: devices cannot be locked.
    """
    with exclusive(
        device.lock_names,
        give_up=giving_up(on_phase, give_up),
        waiting=logs_waiting(device.label),
    ) as held:
        return _runner(prepare(), device) if held else None


def _runner(prepared: Mapping[str, PreparedData], device: Gpu | CpuCores) -> TrialRunner:
    try:
        data = on_device(prepared, device)
    except Exception as error:
        if not lost_context(error):
            raise
        raise TunerError(
            f"{device.label} cannot be used: {first_line(error)}; see 'tuner doctor'"
        ) from error
    if not isinstance(device, Gpu):
        return functools.partial(run_job, data=data)
    # On a CPU it would disturb a timing: git looks through the whole checkout, in seconds.
    threading.Thread(target=git_revision, name="revision", daemon=True).start()
    return functools.partial(run_job, data=data, engines=EnginePool())
