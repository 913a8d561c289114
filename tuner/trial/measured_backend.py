"""What `auto` means for a job whose backend is to be measured, before any of its trainings."""

from __future__ import annotations

import dataclasses

from tuner.data.windows import DeviceData
from tuner.devices import Gpu
from tuner.training.engines.measure import what_auto_means
from tuner.trial.device_turn import alone_on
from tuner.trial.job import TrialJob
from tuner.trial.run import run_config
from tuner.trial.time_left import TimeLeft


def with_backend(job: TrialJob, data: DeviceData, left: TimeLeft) -> TrialJob | None:
    """The job with the backend that all runs of its sizes have in this study; None where it was to
    stop before that was measured.

    Measured once, alone on the device and before any clock runs; the job's `on_backend` is told.

    Raises:
        UsageError: an architecture that cannot be built.
    """
    if job.backend is not None or not isinstance(job.device, Gpu):
        return job
    config = run_config(job.definition, job.hyperparameters, 0)
    data = data.seeing(job.hyperparameters.input_size)
    with alone_on(job.device, job.should_stop, job.on_phase, left) as held:
        if not held:
            return None
        job.on_phase("set-up")
        choice = what_auto_means(config, data)
    return job if choice is None else dataclasses.replace(job, backend=job.on_backend(choice))
