"""A look at a network while it is trained for some steps."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tuner.data.windows import Batch, DeviceData
from tuner.training.inspection.dead_parts import Gradients, constant_forecasts
from tuner.training.inspection.host_waits import host_waits
from tuner.training.inspection.ignored_inputs import (
    forecasts,
    ignored_inputs,
    moved_by_others,
    random_batch,
)
from tuner.training.inspection.notices import Findings
from tuner.training.step import Step

STEPS = 4
"""As many layers that begin at 0 may lie behind each other: each step wakes one."""

MOST_WINDOWS = 8
"""In each: a look at a large network takes about as long as two steps on a batch of the check."""


def look(step: Step, data: DeviceData, windows: int) -> Findings:
    """Trains it for `STEPS` steps on a few windows each, from all over the training split.

    What it then does to random numbers counts as well: a task may have one series only, whose
    static covariates are 0.

    Args:
        step: whose network is on the CPU; it is trained.
        data: on the CPU.
        windows: of a batch; at most as many as the training split has.
    """
    windows = min(windows, MOST_WINDOWS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        noise = random_batch(_batch(step, data, windows, 0))
        gradients = Gradients(step.model)
        before = _forecasts(step, data, windows, noise)
        for number in range(STEPS):
            step.model.train()
            loss = float(step.train(_batch(step, data, windows, number)))
            if not math.isfinite(loss):
                return Findings(diverged=f"the loss is {loss} after {number + 1} steps")
            gradients.note()
        after = _forecasts(step, data, windows, noise)
        batch = _batch(step, data, windows, 0)
        ignored = ignored_inputs(step.model, batch, data.shapes)
        moved = max(moved_by_others(step.model, each) for each in (batch, noise))
        step.model.zero_grad(set_to_none=True)
        step.model.train()
        step.training_loss(noise).backward()  # type: ignore[no-untyped-call]
        gradients.note()
        waits = host_waits(step, batch)
    task = data.task
    return Findings(
        dead_parameters=gradients.dead(),
        constant_forecasts=constant_forecasts(before, after, task.target_columns, task.quantiles),
        ignored_inputs=ignored,
        moved_by_others=moved,
        waits=waits,
    )


def _batch(step: Step, data: DeviceData, windows: int, number: int) -> Batch:
    """The same number of windows at even distances, others each time."""
    n = len(data.train)
    index = torch.arange(windows) * n // windows + number
    return step.gathered(data.train, index % n)


def _forecasts(step: Step, data: DeviceData, windows: int, noise: Batch) -> Tensor:
    """(2 B, T, C, Q), of windows and of random numbers."""
    both = [forecasts(step.model, each) for each in (_batch(step, data, windows, 0), noise)]
    return torch.cat(both)
