"""Faults in a network that trains here: dead parts, loops, lines that wait for the GPU."""

from __future__ import annotations

import re
import time
import timeit
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.utils._pytree import tree_leaves

from tuner.config import RunConfig
from tuner.data.windows import DeviceData
from tuner.models.fault import on_one_line
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.training.clock import arithmetic, seeded, synchronizer
from tuner.training.inspection.host_waits import Waits, host_waits
from tuner.training.inspection.look import Gradients
from tuner.training.step import Step

# Which calls of a forward pass need what others of them gave, by the graph that autograd keeps.


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """Where in the graph a call stands."""

    came: Node | None
    """What gave its input; None where no gradient flows there."""
    made: tuple[Node, ...]
    """What gave its outputs."""


def made_by(output: object) -> tuple[Node, ...]:
    """What gave these outputs, of which some may be no tensors."""
    tensors = [each for each in tree_leaves(output) if isinstance(each, Tensor)]
    return tuple(each.grad_fn for each in tensors if each.grad_fn is not None)


def most_apart(calls: Sequence[Traced]) -> list[int]:
    """The places of the most calls that could be made at once: none needs what another gave,
    directly or through others.

    Args:
        calls: in the order in which they were made.
    """
    depths: dict[Node, int] = {}
    by_depth: dict[int, list[int]] = defaultdict(list)
    for place, call in enumerate(calls):
        depth = _depth(call.came, depths)
        by_depth[depth].append(place)
        for node in call.made:
            depths[node] = max(depth, depths.get(node, 0))
    return max(by_depth.values(), key=len, default=[])


def _depth(came: Node | None, depths: dict[Node, int]) -> int:
    """How many calls, each of which needs the one before, lead to what came from there."""
    seen: set[Node] = set()
    deepest, ahead = 0, [came]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in depths:  # what lies behind a call is less deep than the call
            deepest = max(deepest, 1 + depths[node])
            continue
        ahead += [each for each, _ in node.next_functions]
    return deepest


# Parts of a network that are called one after the other where one call would do: a loop.


FEWEST = 8
"""Calls of one kind in a step: heads and blocks of a usual network are fewer."""

LEAST_SHARE = 0.1
"""Of the forward pass."""

PASSES = 3
"""That are watched: the fastest counts, which nothing else held up."""

TIMED = 5
"""Passes of each way: their fastest."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a part, as it was made."""

    part: nn.Module
    given: Tensor
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Calls of the same kind in one forward pass, none of which needs what another one gave."""

    name: str
    """`encoders.*`: where the parts are in the network."""
    kind: str
    """Their class."""
    calls: tuple[Call, ...]
    share: float
    """Of the forward pass."""


_Calls = dict[tuple[Any, ...], list[tuple[Call, Traced]]]
"""Those that are alike: by where their parts are, their class, and the shape of what is given."""


def loops_in(model: nn.Module, forward: Callable[[], object], device: torch.device) -> list[Loop]:
    """What `forward` calls again and again, the largest share first; parts of such parts are not
    named again.
    """
    forward()
    whole, seen = min((_pass(model, forward, device) for _ in range(PASSES)), key=itemgetter(0))
    found = []
    for (name, kind, *_), alike in seen.items():
        calls = [alike[place][0] for place in most_apart([traced for _, traced in alike])]
        share = sum(call.seconds for call in calls) / whole
        if len(calls) >= FEWEST and share >= LEAST_SHARE:
            found.append(Loop(name=name, kind=kind, calls=tuple(calls), share=share))
    outer = [
        loop for loop in found if not any(loop.name.startswith(f"{other.name}.") for other in found)
    ]
    return sorted(outer, key=lambda loop: -loop.share)


def _pass(
    model: nn.Module, forward: Callable[[], object], device: torch.device
) -> tuple[float, _Calls]:
    """Seconds of a forward pass, and the calls in it."""
    calls: _Calls = defaultdict(list)
    inside: list[tuple[Node | None, float]] = []
    synchronize, names = synchronizer(device), {part: name for name, part in model.named_modules()}

    def entered(_part: nn.Module, args: tuple[Any, ...]) -> None:
        synchronize()
        came = args[0].grad_fn if args and isinstance(args[0], Tensor) else None
        inside.append((came, time.perf_counter()))

    def left(part: nn.Module, args: tuple[Any, ...], output: object) -> None:
        synchronize()
        took, (came, began) = time.perf_counter(), inside.pop()
        given = args[0] if len(args) == 1 and isinstance(args[0], Tensor) else None
        if given is None or not names[part]:
            return
        where = re.sub(r"(?<![^.])\d+(?![^.])", "*", names[part])
        key = (where, type(part).__name__, tuple(given.shape))
        traced = Traced(came=came, made=made_by(output))
        calls[key].append((Call(part, given.detach(), took - began), traced))

    with ExitStack() as stack:
        for part in names:
            stack.callback(part.register_forward_pre_hook(entered).remove)
            stack.callback(part.register_forward_hook(left).remove)
        synchronize()
        began = time.perf_counter()
        forward()
        synchronize()
        return time.perf_counter() - began, calls


def batched_gain(loop: Loop, device: torch.device, *, fused: bool) -> tuple[float, float]:
    """Seconds that the loop's forward and backward passes and its update take, one after the other
    and as one.

    As one: the first part is called with the inputs of all of them, and weights of all of them in
    one tensor each are updated. That has the arithmetic of a batched product, and its launches.

    Args:
        loop: whose calls have inputs of one shape.
        device: where they are.
        fused: whether AdamW updates all weights in one kernel.

    Raises:
        Exception: whatever keeps these parts from being run so.
    """
    parts = list(dict.fromkeys(call.part for call in loop.calls))
    weights = [w for part in parts for w in part.parameters() if w.requires_grad]
    first, every = parts[0], torch.cat([call.given for call in loop.calls])

    def apart() -> None:
        outputs = [_tensor_of(call.part(_leaf(call.given))).sum() for call in loop.calls]
        torch.autograd.grad(torch.stack(outputs).sum(), weights, allow_unused=True)

    def together() -> None:
        own = [w for w in first.parameters() if w.requires_grad]
        torch.autograd.grad(_tensor_of(first(_leaf(every))).sum(), own, allow_unused=True)

    stacked = [
        torch.stack([w.detach()] * len(parts)) for w in first.parameters() if w.requires_grad
    ]
    loop_s = _fastest(apart, device) + _fastest(_update(weights, fused=fused), device)
    return loop_s, _fastest(together, device) + _fastest(_update(stacked, fused=fused), device)


def step_s(
    model: nn.Module, forward: Callable[[], object], device: torch.device, *, fused: bool
) -> float:
    """Seconds of the whole network's forward and backward pass and its update, as `batched_gain`
    times a part of it.
    """
    weights = [w for w in model.parameters() if w.requires_grad]
    passes_s = _fastest(lambda: there_and_back(forward, weights), device)
    return passes_s + _fastest(_update(weights, fused=fused), device)


def there_and_back(forward: Callable[[], object], weights: Sequence[Tensor]) -> None:
    """A forward and a backward pass; weights stay as they are."""
    outputs = [
        each.float().sum()
        for each in tree_leaves(forward())
        if isinstance(each, Tensor) and each.requires_grad
    ]
    if outputs:
        torch.autograd.grad(torch.stack(outputs).sum(), weights, allow_unused=True)


def _update(weights: Sequence[Tensor], *, fused: bool) -> Callable[[], object]:
    """AdamW's, of copies of these weights."""
    copies = [w.detach().clone().requires_grad_() for w in weights]
    for copy in copies:
        copy.grad = torch.ones_like(copy)
    return torch.optim.AdamW(copies, lr=0.0, fused=True if fused else None).step


def _leaf(given: Tensor) -> Tensor:
    return given.requires_grad_() if given.is_floating_point() else given


def _tensor_of(output: object) -> Tensor:
    if isinstance(output, Tensor):
        return output
    if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
        return output[0]
    raise TypeError("its output is no tensor")


def _fastest(work: Callable[[], object], device: torch.device) -> float:
    synchronize = synchronizer(device)

    def whole() -> None:
        work()
        synchronize()

    whole()
    return min(timeit.repeat(whole, number=1, repeat=TIMED))


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
