"""One real step of a network's training: what it means that a variant works, before hours are spent
on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tuner.config import Architecture, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import PreparedData
from tuner.data.windows import to_device
from tuner.errors import TunerError, UsageError
from tuner.models.fault import on_one_line
from tuner.models.registry import build_model
from tuner.training.step import Step

MOST_WINDOWS = 32
"""In the batch: enough for every operation of a step, on any machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStep:
    """What was seen of it."""

    parameters: int
    windows: int
    loss: float


def train_one_step(
    architecture: Architecture,
    hyperparameters: Hyperparameters,
    training: TrainingSettings,
    prepared: PreparedData,
) -> OneStep:
    """Build the network, train it for one step on the task's first training windows, and validate
    it once: on the CPU.

    Raises:
        UsageError: a class or settings that cannot be used, or a network that a step fails on.
        TunerError: a loss that is no number.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build_model(architecture, prepared.shapes, hyperparameters)
    parameters = sum(p.numel() for p in model.parameters())
    if not any(p.requires_grad for p in model.parameters()):
        raise UsageError(f"{architecture.model}: has no parameters that could be trained")
    data = to_device(prepared, "cpu")
    windows = min(MOST_WINDOWS, hyperparameters.batch_size, len(data.train))
    config = RunConfig(
        architecture=architecture, hyperparameters=hyperparameters, training=training, seed=0
    )
    step = Step(config, data, model)
    try:
        model.train()
        loss = float(step.train(data.train.gather(torch.arange(windows))))
        model.eval()
        with torch.no_grad():
            step.loss(data.val.gather(torch.arange(min(windows, len(data.val)))))
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise TunerError(
            f"{architecture.model}: one training step needs more memory than there is"
        ) from error
    except Exception as error:
        what = f"one training step on {windows} windows failed: {on_one_line(error)}"
        raise UsageError(f"{architecture.model}: {what}") from error
    if not math.isfinite(loss):
        raise TunerError(
            f"{architecture.model}: the loss of its first {windows} windows is {loss}; check its "
            "arithmetic, "
            "and its initial weights"
        )
    return OneStep(parameters=parameters, windows=windows, loss=loss)
