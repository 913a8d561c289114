"""How a network's layers begin, beside those of the one that it is a rewrite of: a layer written
another way may draw its weights from another distribution, and then wants another learning rate.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tuner.config import RunConfig
from tuner.data.prepare import PreparedData
from tuner.data.windows import Batch, to_device
from tuner.files.plain import in_json
from tuner.training.one_step import MOST_WINDOWS, build_within_memory, tried
from tuner.training.step import Step

SEEDS = 5
FACTOR = 1.5
"""Medians of spreads that are further apart differ. Those of the five mixers, which are one
architecture, are within 1.07 on the demo task and the reference job; single seeds are within 1.6.
"""
FORECAST = "forecast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What a layer gives from each seed, all its numbers together."""

    name: str
    means: tuple[float, ...]
    spreads: tuple[float, ...]
    """Standard deviations."""
    inside: bool
    """It is part of a block, whose norm may hide what it does."""

    @property
    def mean(self) -> float:
        """The median seed's."""
        return statistics.median(self.means)

    @property
    def spread(self) -> float:
        """The median seed's."""
        return statistics.median(self.spreads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginnings:
    """Of a network: its layers in the order of its forward pass, the forecast last."""

    losses: tuple[float, ...]
    layers: tuple[Beginning, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A layer, and the one of the reference that it is held against."""

    ours: Beginning
    theirs: Beginning

    @property
    def factor(self) -> float:
        """Of the reference's spread."""
        if self.theirs.spread == 0:
            return 1.0 if self.ours.spread == 0 else math.inf
        return self.ours.spread / self.theirs.spread

    @property
    def differs(self) -> bool:
        """By more than `FACTOR`, and than seeds do: every seed's is on the same side."""
        ours, theirs = self.ours.spreads, self.theirs.spreads
        apart = min(ours) > max(theirs) or max(ours) < min(theirs)
        return apart and not 1 / FACTOR <= self.factor <= FACTOR

    def as_dict(self) -> dict[str, Any]:
        """For `--json`; the factor is null where the reference's spread is 0."""
        layers = {
            whose: in_json(each, "name", "mean", "spread", "means", "spreads")
            for whose, each in (("layer", self.ours), ("reference", self.theirs))
        }
        factor = self.factor if math.isfinite(self.factor) else None
        return {**layers, "factor": factor, "differs": self.differs}


def beginnings(config: RunConfig, prepared: PreparedData) -> Beginnings:
    """The outputs of each layer and the loss of untrained networks from `SEEDS` seeds, in training
    mode, on the task's first training windows.

    Raises:
        UsageError: a network that cannot be built, or whose forward pass fails.
        TunerError: it does not fit into memory.
    """
    chosen, name = config.hyperparameters, config.architecture.model
    data = to_device(prepared, "cpu").seeing(chosen.input_size)
    index = torch.arange(min(MOST_WINDOWS, chosen.batch_size, len(data.train)))
    losses: list[float] = []
    seen: dict[str, list[tuple[float, float]]] = {}
    for seed in range(SEEDS):
        model = build_within_memory(config.architecture, chosen, data.shapes, seed=seed)
        step = Step(config, data, model.train())
        batch = step.gathered(data.train, index)
        loss, outputs = tried(
            name, f"one forecast of {len(index)} windows", partial(_outputs, step, batch, seed)
        )
        losses.append(loss)
        for layer, output in outputs.items():
            seen.setdefault(layer, []).append(output)
    layers, blocks = [], {FORECAST, *_blocks(step.model)}
    for layer, found in seen.items():
        means, spreads = zip(*found, strict=True)
        inside = layer not in blocks
        layers.append(Beginning(name=layer, means=means, spreads=spreads, inside=inside))
    return Beginnings(losses=tuple(losses), layers=tuple(layers))


@torch.no_grad()
def _outputs(step: Step, batch: Batch, seed: int) -> tuple[float, dict[str, tuple[float, float]]]:
    """The loss; mean and spread of what each layer gives when it is called first, in that order."""
    found: dict[str, tuple[float, float]] = {}

    def keep(layer: str, _module: nn.Module, _inputs: object, output: object) -> None:
        first = output[0] if isinstance(output, tuple) and output else output
        if not isinstance(first, Tensor) or not first.is_floating_point() or layer in found:
            return
        spread, mean = torch.std_mean(first.double(), correction=0)
        with contextlib.suppress(RuntimeError):  # inside a vmap a tensor has no numbers to read
            found[layer] = float(mean), float(spread)

    hooks = [
        module.register_forward_hook(partial(keep, layer or FORECAST))
        for layer, module in step.model.named_modules()
        if any(True for _ in module.parameters())
    ]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        loss = float(step.loss(batch))
    for hook in hooks:
        hook.remove()
    return loss, found


def _blocks(model: nn.Module, prefix: str = "") -> list[str]:
    """Names of the parts of a network, those of a list one by one. Where there is one part alone,
    of what that has.
    """
    found: list[str] = []
    for name, part in model.named_children():
        if isinstance(part, nn.ModuleList | nn.Sequential | nn.ModuleDict):
            found += _blocks(part, f"{prefix}{name}.")
        elif any(True for _ in part.parameters()):
            found.append(f"{prefix}{name}")
    if len(found) == 1 and not prefix:
        return [*found, *_blocks(model.get_submodule(found[0]), f"{found[0]}.")]
    return found


def paired(ours: Beginnings, theirs: Beginnings) -> tuple[Pair, ...]:
    """Each of our layers beside the reference's of that name. Else a block is held against the one
    at its depth, and what is inside of one against nothing.
    """
    named = {each.name: each for each in theirs.layers}
    mine, others = ([each for each in of.layers if not each.inside] for of in (ours, theirs))
    pairs = []
    for layer in ours.layers:
        if layer.name in named:
            pairs.append(Pair(ours=layer, theirs=named[layer.name]))
        elif not layer.inside:
            depth = mine.index(layer) / (len(mine) - 1)  # the forecast is another
            at_depth = others[round(depth * (len(others) - 1))]
            pairs.append(Pair(ours=layer, theirs=at_depth))
    return tuple(pairs)


def first_that_differs(pairs: Sequence[Pair]) -> Pair | None:
    """In the order of the forward pass."""
    return next((pair for pair in pairs if pair.differs), None)


def in_words(pairs: Sequence[Pair], reference: str) -> str:
    """Where the two begin to differ, and what follows."""
    first = first_that_differs(pairs)
    if first is None:
        return (
            f"no layer starts with a spread {FACTOR:g} times that of {reference}, or as much less"
        )
    return (
        f"from {first.ours.name} on it starts with a spread {first.factor:.2g} times that of "
        f"{reference} ({first.ours.spread:.3g}, there {first.theirs.spread:.3g}): expect another "
        "learning rate"
    )
