"""The profile of somebody else's training script."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import psutil
from pydantic import TypeAdapter

from tuner.devices import CpuCores, Gpu, Watch
from tuner.devices.watch import used_cpu_s
from tuner.errors import TunerError
from tuner.files.child import ChildProcess, Orders, SilentError, end_with, in_words
from tuner.profile.profile_records import (
    ADVICE,
    ANOTHER,
    LEAST_GAIN,
    MEMORY,
    ROUNDED,
    SAME,
    Advice,
    AtBatch,
    Pace,
    Profile,
    Rung,
    Stages,
    Tell,
    silent,
    told,
)
from tuner.profile.script_changes import Changes
from tuner.profile.script_hooks import Loader
from tuner.profile.tried_advice import (
    ACCUMULATED,
    LEAST_SHARE,
    NO_LARGER,
    NO_WAIT,
    judged,
    larger_batch,
    of_dead,
)
from tuner.training.stage_marks import Stage
from tuner.trial.program.program_guard import PR_SET_CHILD_SUBREAPER, prctl

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

    def cpu_s(self) -> float:
        """What all runs have used of the cores so far."""
        total, host = 0.0, psutil.Process(self._child.popen.pid)
        with contextlib.suppress(psutil.Error):
            ended = host.cpu_times()
            total += ended.children_user + ended.children_system
            for each in (host, *host.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    used = each.cpu_times()
                    total += used.user + used.system
        return total

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
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # of what a run has started: its time is the script's, too
    for order in orders:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
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


@dataclass(frozen=True, slots=True)
class Hot:
    """A line of the script, and the share of all moments in which it was being run."""

    line: str
    share: float
    loads: bool
    """A DataLoader runs it."""


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
    lines: tuple[Hot, ...] = ()
    """Where the script itself is at most, likewise."""
    outside: float = 0.0
    """The share of all its own lines that no loader runs, likewise."""

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

FACTORS = (0.5, 4, 16)
FEW = 30
"""Steps of each batch size."""

LEAST_RUN_S, MOST_S = 1.0, 8.0
"""For the steps of one run, as the present pace has it: what is shorter is told by chance."""


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
    usual: Ran
    """Of one more run as it is, in which nobody looks: what changes are held against."""
    announce: Callable[[str], None]

    @property
    def pace(self) -> Pace:
        return self.usual.seen.pace

    @property
    def steps(self) -> int:
        """Of one run."""
        return _steps_of(self.script, self.ran.seen.pace)

    def advice(self) -> Iterator[Advice]:
        """Faults, then the ladder of settings, each tried where that can be done from outside."""
        for each in _faults(self.ran):
            yield each if isinstance(each, Advice) else self.tried(each)[0]
        yield from _reckoned(self.ran.seen.stages, self.pace)
        yield from self.ladder()

    def tried(self, each: _Try) -> tuple[Advice, Ran | None]:
        """What a change came to, and the run of it."""
        self.announce(f"trying: {each.advice.change}")
        steps = max(FEW // 2, self.steps // each.changes.accumulate)
        try:
            after = self.again(each.changes, steps)
        except ScriptError as error:
            return replace(each.advice, outcome=f"failed: {error}"), None
        return judged(each.advice, after.seen.pace, self.pace), after

    def ladder(self) -> Iterator[Advice]:
        """Each change alone, and, where it helps, with all before it that help, if they together
        are faster with it.
        """
        kept, together_s, places = Changes(), self.pace.window_s, itertools.count(1)
        foot = replace(_rung(SAME, self.usual), place=next(places))
        yield Advice(change=AS_IT_IS, gain=1.0, epoch_s=self.pace.epoch_s, rung=foot)
        for group, rungs in LADDER:
            for each in rungs(self.ran, kept):
                advice, alone = self.tried(each)
                rung = replace(_rung(group, alone), place=next(places))
                both = kept.and_those(each.changes)
                if advice.helps and alone is not None and group != ANOTHER:
                    with contextlib.suppress(ScriptError):
                        all_of_it = alone
                        if both != each.changes:
                            all_of_it = self.again(both, self.steps)
                        if all_of_it.seen.pace.window_s * LEAST_GAIN <= together_s:
                            kept, together_s = both, all_of_it.seen.pace.window_s
                            rung = replace(rung, together_per_s=1 / together_s)
                yield replace(advice, rung=rung)

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

    def batches(self) -> Iterator[AtBatch]:
        """At other batch sizes, as far as an epoch has windows for them."""
        pace = self.pace
        yield AtBatch(pace.batch_size, self.usual.peak_bytes, pace.step_s)
        for factor in FACTORS if self.ran.loader.batch_size is not None else ():
            size = max(1, int(pace.batch_size * factor))
            if pace.windows and size * 2 > pace.windows:
                return
            self.announce(f"trying: batch {size}")
            try:
                after = self.again(Changes(batch=factor), max(FEW, int(self.steps / factor)))
            except ScriptError as error:
                yield AtBatch(size, None, None, str(error))
                if factor > 1:  # a larger one takes more still
                    return
            else:
                yield AtBatch(after.seen.pace.batch_size, after.peak_bytes, after.seen.pace.step_s)

    def larger_batch(self, tried: Sequence[AtBatch]) -> Advice:
        """The advice that follows from these."""
        pace, rung = self.pace, Rung(group=ANOTHER)
        if self.ran.loader.batch_size is None:
            outcome = "not tried: the batches are not made by a DataLoader"
            return Advice(change="a larger batch", outcome=outcome, rung=rung)
        step_s = {each.batch_size: each.step_s for each in tried if each.step_s is not None}
        step_s = {size: took for size, took in step_s.items() if size >= pace.batch_size}
        why = next((each.failure for each in tried if each.failure), NO_LARGER)
        size, advice = larger_batch(pace.batch_size, step_s, why)
        if size == pace.batch_size:
            return replace(advice, rung=rung)
        gain = pace.step_s / pace.batch_size / (step_s[size] / size)
        after = replace(pace, step_s=pace.step_s / gain, epoch_s=pace.epoch_s / gain)
        peak = next(each.peak_bytes for each in tried if each.batch_size == size)
        rung = replace(rung, samples_per_s=size / step_s[size], peak_bytes=peak)
        return replace(judged(advice, after, pace), rung=rung)


def _steps_of(script: Script, pace: Pace) -> int:
    """Of a run with something changed: it lasts a second at least, and is not long."""
    wanted = max(script.steps, LEAST_RUN_S / pace.step_s)
    return max(FEW, int(min(wanted, MOST_S / pace.step_s)))


def _waiting(ran: Ran) -> float:
    """The share of an epoch in which a step waits for its data."""
    return ran.seen.stages.share(Stage.DATA, Stage.TRANSFER)


def _idles(ran: Ran) -> bool:
    """Whether this process computes little although nobody else makes its batches."""
    busy = ran.seen.busy.process
    return busy is not None and busy < IDLE and not ran.loader.workers


def _faults(ran: Ran) -> Iterator[_Try | Advice]:
    share = _waiting(ran)
    if share >= DATA_SHARE:
        yield _of_data(ran, share)
    outside = min(ran.outside, ran.seen.stages.share(Stage.OTHER, Stage.BETWEEN))
    if outside >= DATA_SHARE and not ran.seen.trend.falls:  # else what grows is to be found first
        yield _of_host(ran, outside)
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


def _of_data(ran: Ran, share: float) -> _Try:
    """What a data set that is ready would give; how it comes to be so depends on what it does."""
    line = next((f", most of it in {each.line}" for each in ran.lines if each.loads), "")
    change = "transform the data once, before the first epoch, and keep what came of it"
    why = f"a step waits for its data in {share:.0%} of an epoch{line}"
    if _idles(ran):
        change = "read the data into memory once, or have workers read ahead"
        why += "; meanwhile the process computes little: it waits for a disk, or a network"
    outcome = "tried with one sample, given again and again"
    return _Try(
        Changes(one_sample=True), Advice(change=change, why=why, fault=True, outcome=outcome)
    )


def _of_host(ran: Ran, outside: float) -> Advice:
    """Lines of the loop itself: slices of series, one after the other."""
    named = ", ".join(each.line for each in ran.lines if not each.loads)
    begun = Advice(
        change="make all windows once, as tensors on the device, and pick a batch by its numbers",
        why=f"the host prepares batches in {outside:.0%} of a step: {named}",
        fault=True,
        outcome="reckoned from where the time goes: at least that",
    )
    pace, left = ran.seen.pace, 1 - min(outside, MOST)
    after = replace(pace, step_s=pace.step_s * left, epoch_s=pace.epoch_s * left)
    return judged(begun, after, pace)


IDLE = 50.0
"""Of one core, in per cent: a process that does less waits."""

MOST = 0.95
"""Of a step, that a reckoned change can save."""


def _rung(group: str, ran: Ran | None) -> Rung:
    if ran is None:
        return Rung(group=group)
    busy = ran.seen.busy
    cpu = statistics.fmean(busy.cores) if busy.cores else None
    return Rung(
        group=group,
        samples_per_s=1 / ran.seen.pace.window_s,
        gpu=busy.gpu,
        cpu=cpu,
        peak_bytes=ran.peak_bytes,
    )


# The ladder: what is tried of each script, in this order.


def _of_workers(ran: Ran, _kept: Changes) -> Iterator[_Try]:
    """Where a step waits for its loader."""
    cores = len(os.sched_getaffinity(0))
    if ran.loader.batch_size is None or _waiting(ran) < LEAST_SHARE:
        return
    for workers in WORKERS:
        # What computes its samples has no use for more processes than there are cores.
        if workers != ran.loader.workers and (workers <= cores or _idles(ran)):
            advice = Advice(change=f"num_workers {workers} in place of {ran.loader.workers}")
            yield _Try(Changes(workers=workers), advice)


def _of_loading(ran: Ran, kept: Changes) -> Iterator[_Try]:
    workers = ran.loader.workers if kept.workers is None else kept.workers
    if workers and _waiting(ran) >= LEAST_SHARE:
        ahead = Changes(workers=workers, prefetch=AHEAD)
        change = f"prefetch_factor {AHEAD}, persistent_workers, with {workers} workers"
        yield _Try(ahead, Advice(change=change, why="more batches lie ready"))
    if ran.seen.operations.kernels is not None:
        change = "pin_memory, and copies with non_blocking=True"
        yield _Try(Changes(pinned=True), Advice(change=change, why="copies go on beside kernels"))
    change = "zero_grad(set_to_none=True)"
    yield _Try(Changes(to_none=True), Advice(change=change, why="no zeros are written"))


def _of_rounding(ran: Ran, _kept: Changes) -> Iterator[_Try]:
    launched, on_gpu = ran.seen.operations, ran.seen.operations.kernels is not None
    tf32 = Advice(
        change='torch.set_float32_matmul_precision("high")',
        why="products in TF32, on tensor cores",
        mathematics="rounding: compare the error",
    )
    if on_gpu and launched.tensor_cores not in (None, 1.0):
        yield _Try(Changes(precision="tf32"), tf32)
    bf16 = replace(tf32, change="torch.autocast with bfloat16", why="products in 16 bits")
    yield _Try(Changes(precision="bf16"), bf16)
    fused = Advice(change="the optimiser with fused=True", why="one kernel for all parameters")
    yield _Try(Changes(fused=True), fused)
    for mode, why in COMPILED if on_gpu else ():
        advice = Advice(change=f'torch.compile(network, mode="{mode}")', why=why)
        yield _Try(Changes(compiled=mode), advice)


def _of_training(_ran: Ran, _kept: Changes) -> Iterator[_Try]:
    advice = Advice(
        change=f"gradients of {ACCUMULATED} batches added up",
        why="the optimiser steps less often",
        mathematics="fewer updates an epoch: retune, the learning rate first",
    )
    yield _Try(Changes(accumulate=ACCUMULATED), advice)


AS_IT_IS = "as it is"
WORKERS = (0, 2, 4, 8, 16)
AHEAD = 8
COMPILED = (("default", "fewer kernels"), ("reduce-overhead", "fewer kernels, launched as one"))
LADDER: tuple[tuple[str, Callable[[Ran, Changes], Iterator[_Try]]], ...] = (
    (SAME, _of_workers),
    (SAME, _of_loading),
    (ROUNDED, _of_rounding),
    (ANOTHER, _of_training),
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


RUNS = 12
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
        watch = Watch(device, own_cpu_s=lambda: used_cpu_s() + host.cpu_s())
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
        within_s, usual = max(LEAST_S, TIMES * took_s), ran
        with contextlib.suppress(ScriptError):
            usual = run_script(script, host, steps=_steps_of(script, seen.pace))
        tried = _Tried(
            script=replace(script, within_s=within_s),
            host=host,
            ran=ran,
            announce=announce,
            usual=usual,
        )
        for piece in tried.advice():
            now = told(replace(now, advice=(*now.advice, piece)), watch, tell)
        now = told(replace(now, left=(MEMORY,)), watch, tell)
        for row in tried.batches():
            now = told(replace(now, memory=(*now.memory, row)), watch, tell)
        piece = tried.larger_batch(now.memory)
        return told(replace(now, advice=(*now.advice, piece), left=()), watch, tell)
