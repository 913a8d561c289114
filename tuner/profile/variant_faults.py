"""Faults in a network that trains here: dead parts, loops, lines that wait for the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from tuner.config import RunConfig
from tuner.data.windows import DeviceData
from tuner.models.fault import on_one_line
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.profile.repeated_calls import Loop, loops_in, step_s
from tuner.training.determinism import arithmetic, seeded
from tuner.training.inspection.dead_parts import Gradients
from tuner.training.inspection.host_waits import Waits, host_waits
from tuner.training.step import Step

STEPS = 3
MOST_WINDOWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What was seen in a few plain steps."""

    dead: tuple[str, ...] = ()
    """Parts no parameter of which ever gets a gradient, by their names; the outermost."""
    loops: tuple[Loop, ...] = ()
    whole_s: float = 0.0
    """Of a step on the batch that the loops were seen in; 0 without a loop."""
    waits: Waits = field(default_factory=Waits)
    failure: str = ""


def faults_in(config: RunConfig, data: DeviceData) -> Faults:
    """Of a network of somebody's own; the built-in ones have none."""
    if config.architecture.model in builtin_names():
        return Faults()
    device = data.minimum.device
    with arithmetic(config.training.precision), seeded(config.seed, device):
        model = build_model(config.architecture, data.shapes, config.hyperparameters).to(device)
        step = Step(config, data, model)
        windows = min(config.hyperparameters.batch_size, len(data.train), MOST_WINDOWS)
        batch = step.gathered(data.train, torch.arange(windows, device=device))
        try:
            gradients = Gradients(model)
            model.train()
            for _ in range(STEPS):
                step.train(batch)
                gradients.note()
            dead = dead_parts(model, [each.name for each in gradients.dead()])
            loops = loops_in(model, lambda: step.training_loss(batch), device)
            forward = lambda: step.training_loss(batch)  # noqa: E731 - it is called again and again
            whole_s = step_s(model, forward, device, fused=True) if loops else 0.0
            waits = host_waits(step, batch)
        except (RuntimeError, TypeError, ValueError) as error:
            return Faults(failure=on_one_line(error))
        finally:
            step.release()
    return Faults(dead=dead, loops=tuple(loops), whole_s=whole_s, waits=waits)


def dead_parts(model: nn.Module, names: Sequence[str]) -> tuple[str, ...]:
    """The largest parts of a network all of whose parameters are among `names`."""
    dead = set(names)
    found: list[str] = []
    for name, part in model.named_modules():
        own = [f"{name}.{inner}" if name else inner for inner, _ in part.named_parameters()]
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if name and own and not inside and dead.issuperset(own):
            found.append(name)
    return tuple(found)
