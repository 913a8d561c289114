"""The profile of somebody else's training script."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from tuner.devices import CpuCores, Gpu, Watch
from tuner.errors import TunerError
from tuner.files.child import ChildProcess, Orders, SilentError, end_with, in_words
from tuner.profile.profile_records import (
    ADVICE,
    MEMORY,
    Advice,
    AtBatch,
    Operations,
    Pace,
    Profile,
    Stages,
    Tell,
    silent,
    told,
)
from tuner.profile.script_changes import Changes
from tuner.profile.script_hooks import Loader
from tuner.profile.tried_advice import (
    LEAST_SHARE,
    NO_LARGER,
    NO_WAIT,
    judged,
    larger_batch,
    of_dead,
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run came to."""

    failure: str = ""
    profile: Profile | None = None
    """As far as one run tells; None where it took too few steps to be timed."""
    loader: Loader = field(default_factory=Loader)
    peak_bytes: int = 0
    dead: tuple[str, ...] = ()
    """Parts of the network that no loss depends on, where they were looked for."""
    reads: tuple[str, ...] = ()
    """Lines that wait for a value in each step, likewise."""

    @property
    def seen(self) -> Profile:
        """Of a run whose steps were timed."""
        assert self.profile is not None, "it was timed"
        return self.profile


ORDER, RAN = TypeAdapter(Order), TypeAdapter(Ran)


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
) -> Ran:
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
        found = RAN.validate_json(answer.read_bytes())
    if found.failure:
        raise ScriptError(f"{script.path}: {found.failure}")
    if found.profile is None:
        raise ScriptError(
            f"{script.path}: it took too few optimiser steps to be timed; let it take some dozens"
        )
    return found


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
class _Tried:
    """A script that was run as it is, and what came of that; it is run again with changes."""

    script: Script
    host: ScriptHost
    ran: Ran
    announce: Callable[[str], None]

    @property
    def pace(self) -> Pace:
        return self.ran.seen.pace

    def advice(self) -> Iterator[Advice]:
        """Faults and settings, each tried where that can be done from outside."""
        steps = max(FEW, min(self.script.steps, int(MOST_S / self.pace.step_s)))
        for each in (*_faults(self.ran), *_settings(self.ran.seen.operations)):
            if isinstance(each, Advice):
                yield each
                continue
            self.announce(f"trying: {each.advice.change}")
            try:
                after = self.again(each.changes, steps)
            except ScriptError as error:
                yield replace(each.advice, outcome=f"failed: {error}")
            else:
                yield judged(each.advice, after.seen.pace, self.pace)
        yield from _reckoned(self.ran.seen.stages, self.pace)
        yield self.larger_batch(steps)

    def again(self, changes: Changes, steps: int) -> Ran:
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
        pace, tried = self.pace, {self.pace.batch_size: self.pace}
        if self.ran.loader.batch_size is None:
            outcome = "not tried: the batches are not made by a DataLoader"
            return Advice(change="a larger batch", outcome=outcome)
        said = NO_LARGER
        for factor in FACTORS:
            if pace.windows and pace.batch_size * factor * 2 > pace.windows:
                break
            self.announce(f"trying: batches {factor} times as large")
            try:
                after = self.again(Changes(batch=factor), max(FEW, steps // factor)).seen.pace
            except ScriptError as error:
                said = str(error)
                break
            tried[after.batch_size] = after
        step_s = {size: each.step_s for size, each in tried.items()}
        size, advice = larger_batch(pace.batch_size, step_s, said)
        return advice if size == pace.batch_size else judged(advice, tried[size], pace)

    def memory_of_batches(self) -> Iterator[AtBatch]:
        """At half, once and twice the batch, each in a process of its own: none ends ours."""
        for factor in (0.5, 1, 2) if self.ran.loader.batch_size is not None else (1,):
            size = max(1, int(self.pace.batch_size * factor))
            other = self.ran
            if factor != 1:
                self.announce(f"memory at batch {size}")
                try:
                    other = self.again(Changes(batch=factor), FEW)
                except ScriptError as error:
                    yield AtBatch(size, None, None, str(error))
                    continue
            yield AtBatch(size, other.peak_bytes, other.seen.pace.step_s)


def _faults(ran: Ran) -> Iterator[_Try | Advice]:
    share = ran.seen.stages.share(Stage.DATA, Stage.TRANSFER)
    if share >= DATA_SHARE:
        yield from _of_data(ran.loader.workers, share)
    if ran.dead:
        yield _Try(Changes(without=ran.dead), of_dead(ran.dead, "loss"))
    if ran.reads:
        begun = Advice(
            change="read values once in a while, or collect them on the device",
            why=f"each step waits for the device: {'; '.join(ran.reads[:3])}",
            fault=True,
        )
        on_gpu = ran.seen.operations.kernels is not None
        yield _Try(Changes(no_reads=True), begun) if on_gpu else replace(begun, outcome=NO_WAIT)


def _of_data(present: int, share: float) -> Iterator[_Try]:
    why = f"a step waits for its data in {share:.0%} of an epoch"
    once = Advice(
        change="transform the data once, before the first epoch, and keep what came of it",
        why=why,
        fault=True,
        outcome="tried with one sample, given again and again",
    )
    yield _Try(Changes(one_sample=True), once)
    workers = min(MOST_WORKERS, len(os.sched_getaffinity(0)))
    if workers > present:
        change = f"num_workers {workers} in place of {present}"
        yield _Try(Changes(workers=workers), Advice(change=change, why=why, fault=True))


def _settings(launched: Operations) -> Iterator[_Try | Advice]:
    on_gpu = launched.kernels is not None
    of_steps = Advice(change="the optimiser with fused=True", why="one kernel for all parameters")
    tf32 = Advice(
        change='torch.set_float32_matmul_precision("high")',
        why="products in TF32, on tensor cores",
        mathematics="rounding: compare the error",
    )
    if on_gpu and launched.tensor_cores not in (None, 1.0):
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
        ran = run_script(script, host, look=True)
        took_s, seen = time.monotonic() - began, ran.seen
        now = replace(
            seen,
            subject=script.path.name,
            device=device.model,
            settings={"network": seen.subject, **seen.settings},
            left=(ADVICE, MEMORY) if advice else (),
        )
        now = told(now, watch, tell)
        if not advice:
            return now
        announce(f"that took {took_s:.0f} s; it is run about {RUNS} times more, with changes")
        within_s = max(LEAST_S, TIMES * took_s)
        tried = _Tried(
            script=replace(script, within_s=within_s), host=host, ran=ran, announce=announce
        )
        for piece in tried.advice():
            now = told(replace(now, advice=(*now.advice, piece)), watch, tell)
        now = told(replace(now, left=(MEMORY,)), watch, tell)
        for row in tried.memory_of_batches():
            now = told(replace(now, memory=(*now.memory, row)), watch, tell)
        return told(replace(now, left=()), watch, tell)
