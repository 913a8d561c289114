"""The profile of somebody else's training script."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from tuner.devices import CpuCores, Gpu, Watch
from tuner.errors import TunerError
from tuner.files.child import ChildProcess, Orders, SilentError, end_with, in_words
from tuner.profile.profile_records import (
    ADVICE,
    MEMORY,
    Advice,
    AtBatch,
    Busy,
    Operations,
    Pace,
    Profile,
    Span,
    Stages,
    Tell,
    of_falling,
    silent,
    told,
    trend_of,
)
from tuner.profile.script_changes import Changes
from tuner.profile.tried_advice import (
    LEAST_SHARE,
    NEAR,
    NO_WAIT,
    TINY,
    computing,
    judged,
    of_dead,
    of_loop,
)
from tuner.profile.variant_faults import saved_share
from tuner.training.stage_marks import Stage

# Somebody else's training: profiled from outside, in processes of its own.


# A process that has imported what every run of a script needs, and forks for each: torch takes
# seconds to import, and a profile has some ten runs.


CHILD = "tuner.profile.script_child"


class ScriptHost:
    """In its context, runs are made one after the other, each in a process group of its own: what
    a run has started ends with it, and all of them end with this process.
    """

    def __enter__(self) -> Self:
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
        self._child = ChildProcess(
            "the process that runs scripts",
            [sys.executable, "-m", CHILD, str(os.getpid())],
            environment={**os.environ, "PYTHONPATH": path},  # as if its user ran it
            told=True,
            asked=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()

    def run(self, order: Path, *, within_s: float | None = None) -> int | None:
        """Make a run, and wait for its end.

        Args:
            order: the file that says what is wanted.
            within_s: seconds after which it is ended; None for as long as it takes.

        Returns:
            The exit code, as of `Popen.returncode`; None where it was ended after `within_s`.

        Raises:
            ChildError: the host itself has ended.
        """
        self._child.say(str(order))
        pid: int = self._child.hear()
        code: int | None = None
        try:
            code = self._child.hear(within_s)
        except SilentError:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        if code is None:
            self._child.hear()  # of the end that it has just been put to
        return code


def serve(parent: int, run: Callable[[Path], None]) -> None:
    """Fork for each order that comes on standard input, and answer with the process and its end.

    Args:
        parent: whose process asks: this one ends with that one.
        run: makes the run of an order, in the forked process.
    """
    orders = Orders(parent)
    for order in orders:
        pid = os.fork()
        if pid == 0:
            _forked(orders, Path(order), run)
        orders.answer(pid)
        _, status = os.waitpid(pid, 0)
        orders.answer(os.waitstatus_to_exitcode(status))


def _forked(orders: Orders, order: Path, run: Callable[[Path], None]) -> None:
    """Never returns."""
    try:
        os.setsid()
        end_with(os.getppid(), signal.SIGKILL)
        orders.close()
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)
        run(order)
    except BaseException:  # noqa: BLE001 - this process is the run's, and ends here
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    # Threads and workers of the script may still be at work: nobody waits for them.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What is run."""

    path: Path
    arguments: tuple[str, ...]
    steps: int
    trace: Path | None = None
    within_s: float | None = None
    """Seconds that a run of it may take, its process's start included; None: all that it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the process of a run is told."""

    script: Script
    changes: Changes
    answer: Path
    look: bool = False
    """Whether faults, operations and utilisation are wanted, too, and the script's trace."""


ORDER = TypeAdapter(Order)


class ScriptError(TunerError):
    """A run of the script that came to nothing, in one line."""


class TooLongError(ScriptError):
    """It was ended: it took longer than it may."""


def run_script(
    script: Script,
    host: ScriptHost,
    changes: Changes | None = None,
    *,
    steps: int | None = None,
    look: bool = False,
) -> dict[str, Any]:
    """What a run of it came to.

    Raises:
        ScriptError: it failed, or took no step that could be timed.
        TooLongError: it was not done within the seconds that it may take.
    """
    with tempfile.TemporaryDirectory(prefix="tuner-profile-") as folder:
        answer, order = Path(folder) / "answer.json", Path(folder) / "order.json"
        trace = None if script.trace is None else script.trace.absolute()
        now = replace(script, steps=steps or script.steps, trace=trace)
        wanted = Order(script=now, changes=changes or Changes(), answer=answer, look=look)
        order.write_bytes(ORDER.dump_json(wanted))
        code = host.run(order, within_s=script.within_s)
        if code is None:
            raise TooLongError(
                f"{script.path}: it took longer than {script.within_s:.3g} s, and was ended"
            )
        if not answer.exists():
            raise ScriptError(f"{script.path}: its process {in_words(code)} and gave no answer")
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if found["failure"]:
        raise ScriptError(f"{script.path}: {found['failure']}")
    if not found["steps"]:
        raise ScriptError(
            f"{script.path}: it took too few optimiser steps to be timed; let it take some dozens"
        )
    return found


def pace_of(found: dict[str, Any]) -> Pace:
    """Of a run; an epoch is as long as its DataLoader."""
    step_s = usual(found["steps"])
    loader = found["loader"]
    a_step = found["samples_a_step"] or loader["batch_size"] or 1
    windows = _windows(loader)
    validation_s = statistics.median(found["validations"]) if found["validations"] else 0.0
    return Pace(
        batch_size=_batch(a_step, loader["batch_size"]),
        windows=windows,
        step_s=step_s,
        epoch_s=step_s * windows / a_step + validation_s if windows else step_s,
        validation_s=validation_s,
        setup_s=found["setup_s"],
    )


def usual(steps: Sequence[float], parts: int = 5) -> float:
    """Seconds of a step: the median of the means of some stretches.

    A mean, since loaders with workers are fast and slow in turns; a median, since whatever else a
    machine does comes in stretches.
    """
    return statistics.median(ticks_of(steps, parts))


def _batch(a_step: float, loaded: int | None) -> int:
    """Windows of a usual step: of the loader's batch, or of as many as add up to one update.

    The mean is a little less where an epoch's last batch is short.
    """
    if loaded is None or a_step < loaded / 2:
        return max(1, round(a_step))
    return loaded * max(1, round(a_step / loaded))


def _windows(loader: dict[str, Any]) -> int:
    """Of an epoch; 0 where its length is unknown."""
    if loader["batches"] and loader["batch_size"]:
        whole = int(loader["batches"]) * int(loader["batch_size"])
        return min(whole, loader["samples"] or whole)
    return loader["samples"] or 0


def stages_of(found: dict[str, Any]) -> Stages:
    """Of an epoch, or of a step where nobody knows how long an epoch is."""
    pace = pace_of(found)
    recorded = {Stage(name): took for name, took in found["recorded"].items()}
    recorded.pop(Stage.VALIDATION, None)  # as often as it came just then
    whole, training_s = sum(recorded.values()), pace.epoch_s - pace.validation_s
    if not whole or not found["recorded_steps"]:
        return Stages(seconds={Stage.OTHER: training_s}, how=found["how"], difference=0.0)
    seconds = {stage: took / whole * training_s for stage, took in recorded.items()}
    seconds[Stage.VALIDATION] = pace.validation_s
    return Stages(
        seconds={stage: seconds[stage] for stage in Stage if stage in seconds},
        how=found["how"],
        difference=whole / found["recorded_steps"] / pace.step_s - 1,
        spans=TypeAdapter(tuple[Span, ...]).validate_python(found["spans"]),
    )


# Advice on somebody else's training: each piece tried by running the script again, changed.


DATA_SHARE = 0.25
"""Of an epoch: from so much on, waiting for data is a fault."""

MOST_WORKERS = 4
FACTORS = (4, 16)
FEW = 30
"""Steps of each batch size."""

MOST_S = 8.0
"""For the steps of one run, as the present pace has it."""


@dataclass(frozen=True, slots=True)
class _Try:
    """A change, and the advice that it would be."""

    changes: Changes
    advice: Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """A script that was run as it is, and what came of that; it is run again with changes."""

    script: Script
    host: ScriptHost
    found: dict[str, Any]
    pace: Pace
    stages: Stages
    announce: Callable[[str], None]

    def advice(self) -> Iterator[Advice]:
        """Faults and settings, each tried where that can be done from outside."""
        found, stages, pace = self.found, self.stages, self.pace
        steps = max(FEW, min(self.script.steps, int(MOST_S / pace.step_s)))
        on_gpu = found["operations"]["kernels"] is not None if "operations" in found else False
        for loop in found.get("loops", ()):
            yield _of_loop(loop, pace, stages)
        for each in (*_faults(found, stages, on_gpu=on_gpu), *_settings(found, on_gpu=on_gpu)):
            if isinstance(each, Advice):
                yield each
                continue
            self.announce(f"trying: {each.advice.change}")
            try:
                after = pace_of(self.again(each.changes, steps))
            except ScriptError as error:
                yield replace(each.advice, outcome=f"failed: {error}")
            else:
                yield judged(each.advice, after, pace)
        yield from _reckoned(stages, pace)
        yield self.larger_batch(steps)

    def again(self, changes: Changes, steps: int) -> dict[str, Any]:
        """Of one that takes too long it is said at once: it has cost minutes.

        Raises:
            ScriptError: it came to nothing.
        """
        try:
            return run_script(self.script, self.host, changes, steps=steps)
        except TooLongError as error:
            self.announce(f"given up: {error}")
            raise

    def larger_batch(self, steps: int) -> Advice:
        """The smallest of those tried that is about as fast as any."""
        pace, begun = self.pace, Advice(change="a larger batch")
        if self.found["loader"]["batch_size"] is None:
            return replace(begun, outcome="not tried: the batches are not made by a DataLoader")
        tried: dict[int, Pace] = {}
        said = "an epoch has no more windows"
        for factor in FACTORS:
            if pace.windows and pace.batch_size * factor * 2 > pace.windows:
                break
            self.announce(f"trying: batches {factor} times as large")
            try:
                after = self.again(Changes(batch=factor), max(FEW, steps // factor))
            except ScriptError as error:
                said = str(error)
                break
            tried[factor] = pace_of(after)
        if not tried:
            return replace(begun, outcome=f"none was tried: {said}")
        fastest = min(each.window_s for each in tried.values())
        best = next(each for each in tried.values() if each.window_s <= fastest * NEAR)
        size, ratio = best.batch_size, best.step_s / pace.step_s
        advice = Advice(
            change=f"batch_size {size} in place of {pace.batch_size}",
            why=f"a step of {size} takes {ratio:.1f} times as long as one of {pace.batch_size}",
            mathematics="fewer updates an epoch: tune the learning rate anew",
            fault=pace.window_s / best.window_s >= TINY,
        )
        return judged(advice, best, pace)

    def memory_of_batches(self) -> Iterator[AtBatch]:
        """At half, once and twice the batch, each in a process of its own: none ends ours."""
        for factor in (0.5, 1, 2) if self.found["loader"]["batch_size"] is not None else (1,):
            size = max(1, int(self.pace.batch_size * factor))
            other = self.found
            if factor != 1:
                self.announce(f"memory at batch {size}")
                try:
                    other = self.again(Changes(batch=factor), FEW)
                except ScriptError as error:
                    yield AtBatch(size, None, None, str(error))
                    continue
            yield AtBatch(size, other["peak_bytes"], pace_of(other).step_s)


def _faults(found: dict[str, Any], stages: Stages, *, on_gpu: bool) -> Iterator[_Try | Advice]:
    share = stages.share(Stage.DATA, Stage.TRANSFER)
    if share >= DATA_SHARE:
        yield from _of_data(found["loader"], share)
    if dead := tuple(found.get("dead", ())):
        yield _Try(Changes(without=dead), of_dead(dead, "loss"))
    if reads := found.get("reads"):
        begun = Advice(
            change="read values once in a while, or collect them on the device",
            why=f"each step waits for the device: {'; '.join(reads[:3])}",
            fault=True,
        )
        yield _Try(Changes(no_reads=True), begun) if on_gpu else replace(begun, outcome=NO_WAIT)


def _of_data(loader: dict[str, Any], share: float) -> Iterator[_Try]:
    why = f"a step waits for its data in {share:.0%} of an epoch"
    once = Advice(
        change="transform the data once, before the first epoch, and keep what came of it",
        why=why,
        fault=True,
        outcome="tried with one sample, given again and again",
    )
    yield _Try(Changes(one_sample=True), once)
    workers = min(MOST_WORKERS, len(os.sched_getaffinity(0)))
    if workers > loader["workers"]:
        change = f"num_workers {workers} in place of {loader['workers']}"
        yield _Try(Changes(workers=workers), Advice(change=change, why=why, fault=True))


def _settings(found: dict[str, Any], *, on_gpu: bool) -> Iterator[_Try | Advice]:
    of_steps = Advice(change="the optimiser with fused=True", why="one kernel for all parameters")
    tf32 = Advice(
        change='torch.set_float32_matmul_precision("high")',
        why="products in TF32, on tensor cores",
        mathematics="rounding: compare the error",
    )
    if on_gpu and found["operations"]["tensor_cores"] not in (None, 1.0):
        yield _Try(Changes(precision="tf32"), tf32)
    bf16 = replace(tf32, change="torch.autocast with bfloat16", why="products in 16 bits")
    yield _Try(Changes(precision="bf16"), bf16)
    yield _Try(Changes(fused=True), of_steps)
    if on_gpu:
        for mode, why in (
            ("default", "fewer kernels"),
            ("reduce-overhead", "fewer kernels, launched as one"),
        ):
            advice = Advice(change=f'torch.compile(network, mode="{mode}")', why=why)
            yield _Try(Changes(compiled=mode), advice)
    yield Advice(
        change="accumulation",
        outcome="not tried: the loop is the script's own, and decides when it steps",
    )
    yield Advice(
        change="the whole step as one capture",
        outcome="not tried: torch.cuda.graph needs a loop that is written for it",
    )


def _reckoned(stages: Stages, pace: Pace) -> Iterator[Advice]:
    """What needs no run: half of a known part."""
    share = stages.share(Stage.VALIDATION)
    if share < LEAST_SHARE:
        return
    begun = Advice(
        change="validation every other epoch",
        why=f"validation takes {share:.0%} of an epoch",
        mathematics="early stopping looks less often",
    )
    yield replace(
        judged(begun, replace(pace, epoch_s=pace.epoch_s - pace.validation_s / 2), pace),
        outcome="reckoned from the measured validation",
    )


def _of_loop(each: dict[str, Any], pace: Pace, stages: Stages) -> Advice:
    begun = of_loop(each["name"], each["kind"], each["calls"], each["share"])
    if "failure" in each:
        return replace(begun, outcome=f"not tried: {each['failure']}")
    saved = computing(stages) * saved_share(each["loop_s"], each["one_s"], each["whole_s"])
    return judged(begun, replace(pace, epoch_s=pace.epoch_s * (1 - saved)), pace)


TICKS = 60
"""Stretches that the throughput is looked at in."""
TIMES, LEAST_S = 5.0, 120.0
"""A run with something changed may take so many times as long as the present one, and in any case
so many seconds: `torch.compile` takes minutes where the run itself takes seconds."""


RUNS = 7
"""Usually: of advice and of batch sizes."""


def profile_script(
    script: Script,
    device: Gpu | CpuCores,
    *,
    advice: bool,
    announce: Callable[[str], None] = lambda _line: None,
    tell: Tell = silent,
) -> Profile:
    """Where the time of this script's training goes, and what would help; `tell` is told what there
    is, each time that more of it is measured.

    Raises:
        ScriptError: the script fails, or trains nothing.
    """
    with ScriptHost() as host:
        watch = Watch(device)
        announce(f"running {script.path.name} for {script.steps} steps")
        began = time.monotonic()
        found = run_script(script, host, look=True)
        took_s = time.monotonic() - began
        seen = seen_of(found)
        now = replace(
            seen,
            subject=script.path.name,
            device=device.model,
            settings={"network": found["network"], **seen.settings},
            operations=operations_of(found),
            busy=TypeAdapter(Busy).validate_python(found["busy"]),
            left=(ADVICE, MEMORY) if advice else (),
        )
        now = told(now, watch, tell)
        if not advice:
            return now
        announce(f"that took {took_s:.0f} s; it is run about {RUNS} times more, with changes")
        ran = _Ran(
            script=replace(script, within_s=max(LEAST_S, TIMES * took_s)),
            host=host,
            found=found,
            pace=now.pace,
            stages=now.stages,
            announce=announce,
        )
        for piece in ran.advice():
            now = told(replace(now, advice=(*now.advice, piece)), watch, tell)
        now = told(replace(now, left=(MEMORY,)), watch, tell)
        for row in ran.memory_of_batches():
            now = told(replace(now, memory=(*now.memory, row)), watch, tell)
        return told(replace(now, left=()), watch, tell)


def seen_of(found: dict[str, Any], steps: int | None = None) -> Profile:
    """Pace, stages and throughput of a run, and whether that falls within so many steps, or within
    an epoch: the rest needs more than the run itself.
    """
    pace = pace_of(found)
    trend = trend_of(ticks_of(found["steps"]), found["all_steps"])
    within = round(pace.windows / pace.batch_size) if steps is None else steps
    falling = of_falling(trend, within)
    return Profile(
        subject=found["network"],
        device="",
        settings={"batch": pace.batch_size, "workers": found["loader"]["workers"]},
        pace=pace,
        stages=stages_of(found),
        trend=trend,
        advice=() if falling is None else (falling,),
    )


def operations_of(found: dict[str, Any]) -> Operations:
    """Of a run that was looked at."""
    if "operations" not in found:
        return Operations(failure="no network was seen in training")
    return TypeAdapter(Operations).validate_python(found["operations"])


def ticks_of(steps: Sequence[float], parts: int = TICKS) -> list[float]:
    """Means of equal stretches."""
    each = max(1, len(steps) // parts)
    firsts = range(0, len(steps) - each + 1, each)
    return [statistics.fmean(steps[first : first + each]) for first in firsts]
