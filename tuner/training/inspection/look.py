"""A look at a network while it is trained for some steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from tuner.config import ModelShapes, RunConfig
from tuner.data.windows import Batch, DeviceData
from tuner.errors import TunerError
from tuner.files.plain import in_json
from tuner.training.inspection.host_waits import Waits, host_waits
from tuner.training.own_term import named_faults, tried_term
from tuner.training.step import Step

# What takes no part in a training: parameters without a gradient, forecasts that never change.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadParameter:
    """One that should be trained and never is."""

    name: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} ({' x '.join(map(str, self.shape)) or 'a number'})"


class Gradients:
    """Which parameters ever get one.

    One look is not enough: behind a layer that begins at 0, the first gradient is 0 as well.
    """

    def __init__(self, model: nn.Module) -> None:
        self._trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self._alive: set[str] = set()

    def note(self) -> None:
        """After a backward pass."""
        for name, parameter in self._trained:
            if parameter.grad is not None and bool(parameter.grad.any()):
                self._alive.add(name)

    def dead(self) -> tuple[DeadParameter, ...]:
        """Those whose gradients were None or exactly 0 each time, in the network's order."""
        return tuple(
            DeadParameter(name=name, shape=tuple(parameter.shape))
            for name, parameter in self._trained
            if name not in self._alive
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantForecasts:
    """Forecasts that are the same for every window, and that training leaves as they are."""

    quantiles: tuple[float, ...] = ()
    """Levels of which all forecasts are."""
    targets: tuple[str, ...] = ()
    """Columns of which all forecasts are."""
    steps: tuple[int, ...] = ()
    """Time steps, from 1, of which all forecasts are."""
    count: int = 0
    """Of a window's forecasts, each a time step, target and quantile."""
    total: int = 0

    def __str__(self) -> str:
        if self.count == self.total:
            return "all forecasts"
        named = [f"quantile {each:g}" for each in self.quantiles]
        named += [f"target {each}" for each in self.targets]
        named += [f"time step {each}" for each in self.steps]
        if named:
            return f"all forecasts of {', '.join(named)}"
        return f"a window's forecasts: {self.count} of {self.total}"


def constant_forecasts(
    before: Tensor, after: Tensor, targets: Sequence[str], quantiles: Sequence[float]
) -> ConstantForecasts:
    """What never changes.

    Args:
        before: (N, T, C, Q), forecasts of N windows before some steps of training.
        after: (N, T, C, Q), of the same windows after them.
        targets: C names.
        quantiles: Q levels.
    """
    still = (before == before[:1]).all(0) & (after == after[:1]).all(0) & (before[0] == after[0])
    return ConstantForecasts(
        quantiles=tuple(quantiles[n] for n in _whole(still, (0, 1))),
        targets=tuple(targets[n] for n in _whole(still, (0, 2))),
        steps=tuple(n + 1 for n in _whole(still, (1, 2))),
        count=int(still.sum()),
        total=still.numel(),
    )


def _whole(still: Tensor, others: tuple[int, int]) -> list[int]:
    """The places along one axis where all along the two others are still."""
    whole = still.all(max(others)).all(min(others))
    return [n for n, each in enumerate(whole.tolist()) if each]


# Inputs that change no forecast, and other windows that change one.


SEED = 0
SAME = 1e-4
"""Of the largest forecast, or of 1: by less, the same windows differ by rounding."""


def ignored_inputs(model: nn.Module, batch: Batch, shapes: ModelShapes) -> tuple[str, ...]:
    """Which kinds of input the forecasts of a network in evaluation mode do not depend on.

    Each kind is replaced by random numbers: the targets' past, the past covariates, the future
    covariates with their past, the static ones.
    """
    plain = forecasts(model, batch)
    found = []
    for name, changed in _changed(batch, shapes):
        if torch.equal(forecasts(model, changed), plain):
            found.append(name)
    return tuple(found)


def moved_by_others(model: nn.Module, batch: Batch) -> float:
    """By how much forecasts change, in evaluation mode, where the same windows come in pairs; 0 of
    a network whose windows do not look at each other, or that draws random numbers when it
    forecasts, so that nobody can tell.
    """
    plain = forecasts(model, batch)
    if not torch.equal(forecasts(model, batch, seed=SEED + 1), plain):
        return 0.0
    moved = 0.0
    for first in range(0, len(plain) - 2, 2):
        pair = slice(first, first + 2)
        future, static = _rows(batch.future, pair), _rows(batch.static, pair)
        paired = replace(batch, past=batch.past[pair], future=future, static=static)
        moved = max(moved, float((forecasts(model, paired) - plain[pair]).abs().max()))
    return moved if moved > SAME * max(1.0, float(plain.abs().max())) else 0.0


def _rows(of_all: Tensor | None, rows: slice) -> Tensor | None:
    return None if of_all is None else of_all[rows]


@torch.no_grad()
def forecasts(model: nn.Module, batch: Batch, *, seed: int = SEED) -> Tensor:
    """(B, T, C, Q), in evaluation mode, with the same random numbers each time."""
    model.eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        output: Tensor = model(batch.past, batch.future, batch.static)
    return output.clone()


def random_batch(like: Batch) -> Batch:
    """As many windows of random numbers between 0 and 1."""
    return Batch(
        past=torch.rand_like(like.past),
        future=None if like.future is None else torch.rand_like(like.future),
        static=None if like.static is None else torch.rand_like(like.static),
        target=torch.rand_like(like.target),
        series=like.series,
    )


def _changed(batch: Batch, shapes: ModelShapes) -> Iterator[tuple[str, Batch]]:
    s, noise = shapes, random_batch(batch)
    c, p = s.n_targets, s.n_past
    yield "the targets' past", replace(batch, past=_columns(batch.past, noise.past, 0, c))
    if p:
        yield "past covariates", replace(batch, past=_columns(batch.past, noise.past, c, c + p))
    if s.n_future:
        past = _columns(batch.past, noise.past, c + p, c + p + s.n_future)
        yield "future covariates", replace(batch, past=past, future=noise.future)
    if s.n_static:
        yield "static covariates", replace(batch, static=noise.static)


def _columns(past: Tensor, other: Tensor, first: int, end: int) -> Tensor:
    changed = past.clone()
    changed[..., first:end] = other[..., first:end]
    return changed


# What was seen of a network, as records for programs and as sentences for a person.


NAMED = 3
"""So many of a kind are named in a sentence; all of them are in the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Nothing of it keeps a network from being trained."""

    dead_parameters: tuple[DeadParameter, ...] = ()
    constant_forecasts: ConstantForecasts = field(default_factory=ConstantForecasts)
    ignored_inputs: tuple[str, ...] = ()
    moved_by_others: float = 0.0
    """By how much a window's forecast changed with the other windows of its batch."""
    waits: Waits = field(default_factory=Waits)
    diverged: str = ""
    """In which of the steps that were looked at the loss became no number, in words."""

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: a list of each kind."""
        found = asdict(self)
        del found["diverged"]
        return found | {"waits": found["waits"]["found"]}

    def notices(self, model: str) -> tuple[str, ...]:
        """One line for each kind of finding: what it is, and what to do.

        Args:
            model: how the network was named.
        """
        return tuple(f"{model}: {said}" for said in self._said())

    def _said(self) -> Iterator[str]:
        if self.diverged:
            yield f"{self.diverged}; begin with a lower learning_rate, or check its arithmetic"
        if self.dead_parameters:
            one = len(self.dead_parameters) == 1
            it = "it" if one else "them"
            yield (
                f"{'parameter' if one else 'parameters'} {_some(self.dead_parameters)} never "
                f"{'gets' if one else 'get'} a gradient: no forecast depends on {it}; use {it} in "
                f"forward, or leave {it} out of the class"
            )
        if self.constant_forecasts.count:
            yield (
                f"{self.constant_forecasts} are the same for every window, and training does not "
                "change them: check what the last layer returns for them"
            )
        if self.ignored_inputs:
            one = len(self.ignored_inputs) == 1 and not self.ignored_inputs[0].endswith("s")
            yield (
                f"{' and '.join(self.ignored_inputs)} {'changes' if one else 'change'} no "
                "forecast: the network does not use what the task has; where that is not meant, "
                "use it in forward"
            )
        if self.moved_by_others:
            yield (
                "a window's forecast depends on the others of its batch (it moved by "
                f"{self.moved_by_others:.2g} among others): one that is forecast alone gets "
                "another; where that is not meant, compute over the windows of a batch in training "
                "only"
            )
        if self.waits.found:
            one = len(self.waits.found) == 1
            yield (
                f"{_some(self.waits.found, '; ')} {'waits' if one else 'wait'} for the GPU: such a "
                "step cannot be captured as a CUDA graph, and runs more slowly; write it with "
                "operations on tensors alone"
            )
        if self.waits.failed:
            yield f"what waits for a GPU could not be looked for: {self.waits.failed}"


def _some(things: Sequence[object], comma: str = ", ") -> str:
    named = comma.join(str(each) for each in things[:NAMED])
    return named if len(things) <= NAMED else f"{named} and {len(things) - NAMED} more"


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


# A look at the term of a training loss: its value, and whether it trains anything.


@dataclass(frozen=True, slots=True, kw_only=True)
class TermSeen:
    """On the first training windows, of the forecasts of the untrained network."""

    name: str
    value: float
    """Not weighted."""
    weight: float
    reaches: bool
    """Whether its gradient by any parameter of the network is not 0."""

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        names = {"term": "name", "gradient_reaches_the_network": "reaches"}
        return in_json(self, "value", "weight", **names)

    def in_words(self) -> str:
        """What was checked of it, for a person."""
        reached = "its gradient reaches the network" if self.reaches else "its gradient is 0"
        return f"{self.value:.4g} at weight {self.weight:g}, a finite scalar; {reached}"

    def notices(self) -> tuple[str, ...]:
        """That it trains nothing, where that is so."""
        if self.reaches:
            return ()
        said = (
            f"the term {self.name}: its gradient by all parameters of the network is 0 on the "
            "first windows; where that is not meant, check what it computes of the forecast"
        )
        return (said,)


def look_at_term(config: RunConfig, step: Step, data: DeviceData, windows: int) -> TermSeen | None:
    """The term, also where its weight is 0; None where the training has none.

    Raises:
        UsageError: the term cannot be used.
        TunerError: its value, or its gradient, is no finite number.
    """
    loss = config.training.loss
    if loss is None:
        return None
    dtype = next(step.model.parameters()).dtype
    term = step.term or tried_term(loss.term, 1.0, data, dtype)
    batch = data.train.gather(torch.arange(windows), with_series=True)
    step.model.eval()
    value = term.value(step.predicted(batch), batch)
    trained = [p for p in step.model.parameters() if p.requires_grad]
    with named_faults(loss.term):
        gradients = torch.autograd.grad(value, trained, allow_unused=True)
    found = [each for each in gradients if each is not None]
    if not all(bool(torch.isfinite(each).all()) for each in (value.detach(), *found)):
        raise TunerError(
            f"the term {loss.term}: its value, or its gradient, is no finite number for the "
            f"forecasts of the untrained network on the first {windows} windows; check its "
            "arithmetic"
        )
    return TermSeen(
        name=loss.term,
        value=float(value.detach()),
        weight=config.loss_weight,
        reaches=any(bool(each.any()) for each in found),
    )
