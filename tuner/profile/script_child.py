"""The process in which somebody else's script runs: told by a file what to do, it answers in one.

python -m tuner.profile.script_child PARENT
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tuner.devices import Gpu, list_gpus
from tuner.errors import first_line
from tuner.models.fault import on_one_line, out_of_memory
from tuner.profile.script_changes import READS, changed, of_torch, on_network, replaced
from tuner.profile.script_hooks import EnoughError, Hooks, numbers_of
from tuner.profile.script_profile import ORDER, Order, Script, serve
from tuner.profile.step_operations import Watching, operations
from tuner.profile.variant_faults import batched_gain, dead_parts, loops_in, step_s, there_and_back

# Which lines of a script read a tensor's value: on a GPU the host waits for it there.


SKIPPED = 3
"""Reads of a line in the first steps are not looked at: what is read once is no fault."""

MOST_STEPS_BETWEEN = 1.5
"""A line is read `each step` where so many steps lie between two reads, at most."""


class Reads:
    """Counts them."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, int, str]] = Counter()
        self._on_gpu = torch.cuda.is_available()

    def counted(self) -> AbstractContextManager[None]:
        """In there each read is counted, by its line."""
        counting = {name: self.counting(name, getattr(Tensor, name)) for name in READS}
        return replaced(Tensor, counting)

    def counting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, with a count of who calls it."""

        def read(tensor: Tensor, *args: Any, **named: Any) -> Any:
            if tensor.is_cuda or not self._on_gpu:
                frame = sys._getframe(1)  # noqa: SLF001 - whoever calls is what it is about
                file = frame.f_code.co_filename
                if not of_torch(file) and "/tuner/" not in file:
                    self._seen[file, frame.f_lineno, name] += 1
            return method(tensor, *args, **named)

        return read

    def each_step(self, steps: int) -> list[str]:
        """`train.py, line 30: .item()` of each line that reads in about every step."""
        return [
            f"{Path(file).name}, line {line}: {_called(name)}"
            for (file, line, name), count in self._seen.items()
            if count >= SKIPPED and steps / count <= MOST_STEPS_BETWEEN
        ]


def _called(name: str) -> str:
    if name.startswith("__"):
        return f"a tensor as {name.strip('_')}"
    return f".{name}()"


LOOKED_AT = 3
"""Steps under torch.profiler, and as many in which reads of values are counted."""


def run(order: Order) -> dict[str, Any]:
    """Run the script to its last wanted step; what was seen, as plain data."""
    with ExitStack() as stack:

        def ended() -> None:
            raise EnoughError

        hooks = Hooks(
            order.script.steps,
            on_network=lambda network: on_network(network, order.changes, stack),
            ended=ended,
        )
        watching = Watching(_gpu()) if order.look else None
        stack.enter_context(changed(order.changes))
        stack.enter_context(hooks.installed())
        reads = Reads()
        if watching is not None:
            stack.enter_context(reads.counted())
            stack.enter_context(watching)
        failure = _run_script(order.script)
        hooks.finish_early()
    answer = numbers_of(hooks)
    answer["failure"] = failure
    if watching is not None and not failure:
        answer["busy"] = asdict(watching.busy)
        answer["reads"] = reads.each_step(hooks.number)
        answer |= _looked(hooks, order.script.trace)
    return answer


def _gpu() -> Gpu | None:
    return next(iter(list_gpus(os.environ)), None)


def _run_script(script: Script) -> str:
    """Why it failed, in one line; empty where it did not."""
    sys.argv = [str(script.path), *script.arguments]
    sys.path.insert(0, str(script.path.absolute().parent))
    try:
        runpy.run_path(str(script.path), run_name="__main__")
    except EnoughError:
        return ""
    except SystemExit as end:
        if end.code in (None, 0):
            return ""
        code = isinstance(end.code, int)
        return f"it ended with code {end.code}" if code else f"it ended: {first_line(end)}"
    except BaseException as error:  # noqa: BLE001 - it is somebody else's
        if (reason := out_of_memory(error)) is not None:
            return f"out of memory: {first_line(reason)}"
        traceback.print_exc()
        return on_one_line(error)
    return ""


def _looked(hooks: Hooks, trace: Path | None) -> dict[str, Any]:
    """Dead parts, loops and operations of the script's network, on its own last inputs."""
    network, inputs = hooks.seen.network, hooks.seen.inputs
    if network is None or inputs is None:
        return {}
    args, named = inputs
    device = next(network.parameters()).device
    network.train()
    forward = lambda: network(*args, **named)  # noqa: E731 - it is called again and again
    dead = [name for name, p in network.named_parameters() if p.requires_grad]
    dead = [name for name in dead if name not in hooks.seen.alive]
    found: dict[str, Any] = {"dead": list(dead_parts(network, dead)), "loops": []}
    with torch.enable_grad():
        loops = loops_in(network, forward, device)
        whole_s = step_s(network, forward, device, fused=False) if loops else 0.0
        for loop in loops:
            found["loops"].append(_of_loop(loop, device) | {"whole_s": whole_s})
        steps = partial(_steps, network, forward)
        found["operations"] = asdict(operations(steps, device, steps=LOOKED_AT, trace=trace))
    return found


def _of_loop(loop: Any, device: torch.device) -> dict[str, Any]:
    said = {"name": loop.name, "kind": loop.kind, "calls": len(loop.calls), "share": loop.share}
    try:
        loop_s, one_s = batched_gain(loop, device, fused=False)
    except Exception as error:  # noqa: BLE001 - a class may do anything
        return said | {"failure": on_one_line(error)}
    return said | {"loop_s": loop_s, "one_s": one_s}


def _steps(network: nn.Module, forward: Callable[[], object]) -> None:
    """As often as they are looked at."""
    weights = [w for w in network.parameters() if w.requires_grad]
    for _ in range(LOOKED_AT):
        there_and_back(forward, weights)


def answer_to(order: Path) -> None:
    """An order's answer goes where the order says."""
    wanted = ORDER.validate_json(order.read_bytes())
    wanted.answer.write_text(json.dumps(run(wanted)), encoding="utf-8")


if __name__ == "__main__":
    serve(int(sys.argv[1]), answer_to)
