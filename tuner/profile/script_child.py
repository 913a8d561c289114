"""The process in which somebody else's script runs: told by a file what to do, it answers in one.

python -m tuner.profile.script_child PARENT
"""

from __future__ import annotations

import os
import runpy
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Self

import scipy.stats  # noqa: F401 - once, not in each run
import torch
from torch import Tensor, nn

from tuner.devices import list_gpus
from tuner.errors import first_line
from tuner.estimate.driven import peak_bytes
from tuner.models.fault import of_the_user, on_one_line, out_of_memory
from tuner.profile.profile_records import Operations
from tuner.profile.script_changes import READS, changed, of_torch, on_network, replaced
from tuner.profile.script_hooks import EnoughError, Hooks, profile_of
from tuner.profile.script_profile import ORDER, RAN, Hot, Order, Ran, Script, serve
from tuner.profile.step_operations import operations, watched
from tuner.profile.tried_advice import of_loop
from tuner.profile.variant_faults import dead_parts, loops_in, step_s, there_and_back

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

    def each_step(self, steps: int) -> tuple[str, ...]:
        """`train.py, line 30: .item()` of each line that reads in about every step."""
        return tuple(
            f"{Path(file).name}, line {line}: {_called(name)}"
            for (file, line, name), count in self._seen.items()
            if count >= SKIPPED and steps / count <= MOST_STEPS_BETWEEN
        )


def _called(name: str) -> str:
    if name.startswith("__"):
        return f"a tensor as {name.strip('_')}"
    return f".{name}()"


# Which lines of a script take the time in which neither the network nor the optimiser runs.


SAMPLED_S = 0.005


class Lines:
    """Looks every few milliseconds at what the script's main thread is at."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, bool]] = Counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._main = threading.main_thread().ident or 0

    def __enter__(self) -> Self:
        # It would look after the usual 5 ms, or earlier where the script lets others run: always
        # at the same lines.
        sys.setswitchinterval(SAMPLED_S / 50)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def shares(self) -> tuple[Hot, ...]:
        """The lines that it was met at most, of all moments since the first step."""
        whole = self._seen.total()
        most = [each for each in self._seen.most_common(HOTTEST + 1) if each[0][0]]
        return tuple(Hot(line, n / whole, loads) for (line, loads), n in most[:HOTTEST])

    def outside(self) -> float:
        """The share of all lines that no loader runs."""
        found = sum(n for (line, loads), n in self._seen.items() if line and not loads)
        return found / max(self._seen.total(), 1)

    def forget(self) -> None:
        """What was before the network was known."""
        self._seen.clear()

    def _look(self) -> None:
        while not self._over.wait(SAMPLED_S):
            frame = sys._current_frames().get(self._main)  # noqa: SLF001 - there is no other way
            self._seen[_at(frame)] += 1


def _at(frame: FrameType | None) -> tuple[str, bool]:
    """The script's line that is run, and whether a loader runs it; no line where it is torch that
    runs, or a network: a loss, an optimiser, a forward pass.
    """
    line, loads = "", False
    while frame is not None:
        file = frame.f_code.co_filename
        if "/torch/utils/data/" in file:
            loads = True
        elif of_torch(file) and (not line or frame.f_code.co_name == CALLS):
            return "", False
        elif not line and of_the_user(file):
            line = f"{Path(file).name}, line {frame.f_lineno}"
        frame = frame.f_back
    return line, loads


CALLS = "_call_impl"
"""In torch, what calls a network."""

HOTTEST = 3

LOOKED_AT = 3
"""Steps under torch.profiler, and as many in which reads of values are counted."""


def run(order: Order) -> Ran:
    """Run the script to its last wanted step; what was seen."""
    with ExitStack() as stack:

        def ended() -> None:
            raise EnoughError

        reads, lines = Reads(), Lines()

        def known(network: nn.Module) -> None:
            lines.forget()
            on_network(network, order.changes, stack)

        hooks = Hooks(order.script.steps, on_network=known, ended=ended)
        stack.enter_context(changed(order.changes))
        stack.enter_context(hooks.installed())
        busy = stack.enter_context(watched(next(iter(list_gpus(os.environ)), None)))
        if order.look:
            stack.enter_context(reads.counted())
            stack.enter_context(lines)
        failure = _run_script(order.script)
        hooks.finish()
    if failure or not hooks.seen.steps:
        return Ran(failure=failure)
    profile = profile_of(hooks, of_an_epoch=True)
    now = replace(profile, busy=replace(busy[0], process=profile.busy.process))
    loader, peak = hooks.seen.loader, peak_bytes(hooks.device)
    ran = Ran(
        profile=now, loader=loader, peak_bytes=peak, lines=lines.shares(), outside=lines.outside()
    )
    if not order.look:
        return ran
    return _looked(hooks, replace(ran, reads=reads.each_step(hooks.number)), order)


LESS_MEMORY = "a smaller batch whose gradients accumulate, or bf16, takes less"


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
            return f"out of memory: {first_line(reason)}; {LESS_MEMORY}"
        traceback.print_exc()
        return on_one_line(error)
    return ""


def _looked(hooks: Hooks, ran: Ran, order: Order) -> Ran:
    """With dead parts, loops and operations of the script's network, on its own last inputs."""
    network, inputs = hooks.seen.network, hooks.seen.inputs
    if network is None or inputs is None:
        nothing = Operations(failure="no network was seen in training")
        return replace(ran, profile=replace(ran.seen, operations=nothing))
    args, named = inputs
    device = next(network.parameters()).device
    network.train()
    forward = lambda: network(*args, **named)  # noqa: E731 - it is called again and again
    dead = [name for name, p in network.named_parameters() if p.requires_grad]
    dead = [name for name in dead if name not in hooks.seen.alive]
    advice = list(ran.seen.advice)
    with torch.enable_grad():
        loops = loops_in(network, forward, device)
        whole_s = step_s(network, forward, device, fused=False) if loops else 0.0
        gain_of = partial(of_loop, device=device, fused=False, seen=ran.seen)
        advice += [gain_of(loop, whole_s) for loop in loops]
        steps = partial(_steps, network, forward)
        launched = operations(steps, device, steps=LOOKED_AT, trace=order.script.trace)
    now = replace(ran.seen, advice=tuple(advice), operations=launched)
    return replace(ran, profile=now, dead=dead_parts(network, dead))


def _steps(network: nn.Module, forward: Callable[[], object]) -> None:
    """As often as they are looked at."""
    weights = [w for w in network.parameters() if w.requires_grad]
    for _ in range(LOOKED_AT):
        there_and_back(forward, weights)


def answer_to(order: Path) -> None:
    """An order's answer goes where the order says."""
    wanted = ORDER.validate_json(order.read_bytes())
    wanted.answer.write_bytes(RAN.dump_json(run(wanted)))


if __name__ == "__main__":
    serve(int(sys.argv[1]), answer_to)
