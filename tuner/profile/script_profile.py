"""The profile of somebody else's training script."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tuner.devices import CpuCores, Gpu, Watch
from tuner.display.text import signal_name
from tuner.errors import TunerError
from tuner.profile.profile_records import (
    ADVICE,
    MEMORY,
    Advice,
    AtBatch,
    Busy,
    Operation,
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
from tuner.profile.tried_advice import LEAST_SHARE, NEAR, TINY, judged
from tuner.profile.variant_faults import saved_share
from tuner.training.stage_marks import Stage
from tuner.worker.process import end_with

# Somebody else's training: profiled from outside, in processes of its own.


# A process that has imported what every run of a script needs, and forks for each: torch takes
# seconds to import, and a profile has some ten runs.


LINE_BYTES = 4096
"""More than a path, or two numbers, can have."""


class ScriptHost:
    """In its context, runs are made one after the other, each in a process group of its own: what
    a run has started ends with it, and all of them end with this process.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1
        self._read = b""

    def __enter__(self) -> Self:
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
        self._answers, answering = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tuner.profile.script_child",
                    f"{answering}",
                    f"{os.getpid()}",
                ],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=sys.stderr.fileno(),
                pass_fds=(answering,),
                start_new_session=True,
            )
        except OSError:
            os.close(self._answers)
            raise
        finally:
            os.close(answering)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        assert process is not None, "a host that was entered"
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.kill()
        process.wait()
        os.close(self._answers)

    def run(self, order: Path, *, within_s: float | None = None) -> int | None:
        """Make a run, and wait for its end.

        Args:
            order: the file that says what is wanted.
            within_s: seconds after which it is ended; None for as long as it takes.

        Returns:
            The exit code, as of `Popen.returncode`; None where it was ended after `within_s`.

        Raises:
            TunerError: the host itself has ended.
        """
        assert self._process is not None, "a host is used in its context"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{order}\n".encode())
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None
        pid = int(self._line(None) or "0")
        try:
            code = self._line(within_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        if code is None:
            self._line(None)
            return None
        return int(code)

    def _line(self, within_s: float | None) -> str | None:
        """The next answer; None where it does not come in time."""
        while b"\n" not in self._read:
            if not select.select([self._answers], [], [], within_s)[0]:
                return None
            more = os.read(self._answers, LINE_BYTES)
            if not more:
                raise self._ended()
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()

    def _ended(self) -> TunerError:
        assert self._process is not None
        return TunerError(f"the process that runs scripts ended with code {self._process.wait()}")


def serve(answers: int, parent: int, run: Callable[[Path], None]) -> None:
    """Fork for each order that comes on standard input, and answer with the process and its end.

    Args:
        answers: the descriptor to answer on.
        parent: whose process asks: this one ends with that one.
        run: makes the run of an order, in the forked process.
    """
    end_with(parent, signal.SIGKILL)
    os.set_inheritable(answers, False)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _forked(answers, Path(line.removesuffix("\n")), run)
        os.write(answers, f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _forked(answers: int, order: Path, run: Callable[[Path], None]) -> None:
    """Never returns."""
    try:
        os.setsid()
        end_with(os.getppid(), signal.SIGKILL)
        os.close(answers)
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
        plain = {
            "script": str(script.path),
            "arguments": script.arguments,
            "steps": steps or script.steps,
            "changes": asdict(changes or Changes()),
            "answer": str(answer),
            "look": look,
            "trace": str(script.trace.absolute()) if look and script.trace is not None else None,
        }
        order.write_text(json.dumps(plain), encoding="utf-8")
        code = host.run(order, within_s=script.within_s)
        if code is None:
            raise TooLongError(
                f"{script.path}: it took longer than {script.within_s:.3g} s, and was ended"
            )
        if not answer.exists():
            raise ScriptError(f"{script.path}: its process {_died(code)}")
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if found["failure"]:
        raise ScriptError(f"{script.path}: {found['failure']}")
    if not found["steps"]:
        raise ScriptError(
            f"{script.path}: it took too few optimiser steps to be timed; let it take some dozens"
        )
    return found


def _died(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was ended from outside: most likely the host's memory ran out"
    if code < 0:
        return f"was ended by {signal_name(-code)}"
    return f"ended with code {code} and no answer"


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
    each = max(1, len(steps) // parts)
    means = [
        statistics.fmean(steps[first : first + each])
        for first in range(0, len(steps) - each + 1, each)
    ]
    return statistics.median(means)


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
        spans=tuple(
            Span(Stage(each["stage"]), each["start_s"], each["end_s"]) for each in found["spans"]
        ),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """A change, and the advice that it would be."""

    changes: Changes
    advice: Advice


def advice_on(
    script: Script,
    host: ScriptHost,
    found: dict[str, Any],
    pace: Pace,
    stages: Stages,
    announce: Callable[[str], None],
) -> Iterator[Advice]:
    """Faults and settings, each tried where that can be done from outside."""
    steps = max(FEW, min(script.steps, int(MOST_S / pace.step_s)))
    on_gpu = found["operations"]["kernels"] is not None if "operations" in found else False
    for loop in found.get("loops", ()):
        yield _of_loop(loop, pace, stages)
    for each in (*_faults(found, stages, on_gpu=on_gpu), *_settings(found, on_gpu=on_gpu)):
        if isinstance(each, Advice):
            yield each
            continue
        announce(f"trying: {each.advice.change}")
        yield _tried(script, host, each, pace, steps, announce)
    yield from _reckoned(stages, pace)
    yield from _batches(script, host, pace, found, steps, announce)


def _run(
    script: Script,
    host: ScriptHost,
    changes: Changes,
    steps: int,
    announce: Callable[[str], None],
) -> dict[str, Any]:
    """Of one that takes too long it is said at once: it has cost minutes.

    Raises:
        ScriptError: it came to nothing.
    """
    try:
        return run_script(script, host, changes, steps=steps)
    except TooLongError as error:
        announce(f"given up: {error}")
        raise


def _tried(
    script: Script,
    host: ScriptHost,
    each: _Try,
    pace: Pace,
    steps: int,
    announce: Callable[[str], None],
) -> Advice:
    try:
        after = pace_of(_run(script, host, each.changes, steps, announce))
    except ScriptError as error:
        return replace(each.advice, outcome=f"failed: {error}")
    return judged(each.advice, after, pace)


def _faults(found: dict[str, Any], stages: Stages, *, on_gpu: bool) -> Iterator[_Try | Advice]:
    share = stages.share(Stage.DATA, Stage.TRANSFER)
    if share >= DATA_SHARE:
        yield from _of_data(found["loader"], share)
    if dead := tuple(found.get("dead", ())):
        named = ", ".join(dead[:3])
        yield _Try(
            changes=Changes(without=dead),
            advice=Advice(
                change=f"leave {named} out of the network, or use what it gives",
                why=f"no parameter of {named} ever gets a gradient: no loss depends on it",
                fault=True,
            ),
        )
    if reads := found.get("reads"):
        begun = Advice(
            change="read values once in a while, or collect them on the device",
            why=f"each step waits for the device: {'; '.join(reads[:3])}",
            fault=True,
        )
        if on_gpu:
            yield _Try(changes=Changes(no_reads=True), advice=begun)
        else:
            yield replace(begun, outcome="a CPU waits for nothing: the gain is to be had on a GPU")


def _of_data(loader: dict[str, Any], share: float) -> Iterator[_Try]:
    why = f"a step waits for its data in {share:.0%} of an epoch"
    yield _Try(
        changes=Changes(one_sample=True),
        advice=Advice(
            change="transform the data once, before the first epoch, and keep what came of it",
            why=why,
            fault=True,
            outcome="tried with one sample, given again and again",
        ),
    )
    workers = min(MOST_WORKERS, len(os.sched_getaffinity(0)))
    if workers > loader["workers"]:
        yield _Try(
            changes=Changes(workers=workers),
            advice=Advice(
                change=f"num_workers {workers} in place of {loader['workers']}", why=why, fault=True
            ),
        )


def _settings(found: dict[str, Any], *, on_gpu: bool) -> Iterator[_Try | Advice]:
    rounding = "rounding: compare the error"
    if on_gpu and found["operations"]["tensor_cores"] not in (None, 1.0):
        yield _Try(
            changes=Changes(precision="tf32"),
            advice=Advice(
                change='torch.set_float32_matmul_precision("high")',
                why="products in TF32, on tensor cores",
                mathematics=rounding,
            ),
        )
    yield _Try(
        changes=Changes(precision="bf16"),
        advice=Advice(
            change="torch.autocast with bfloat16",
            why="products in 16 bits",
            mathematics=rounding,
        ),
    )
    yield _Try(
        changes=Changes(fused=True),
        advice=Advice(change="the optimiser with fused=True", why="one kernel for all parameters"),
    )
    if on_gpu:
        for mode in ("default", "reduce-overhead"):
            yield _Try(
                changes=Changes(compiled=mode),
                advice=Advice(
                    change=f'torch.compile(network, mode="{mode}")',
                    why="fewer kernels" if mode == "default" else "fewer kernels, launched as one",
                ),
            )
    yield Advice(
        change="accumulation",
        why="",
        outcome="not tried: the loop is the script's own, and decides when it steps",
    )
    yield Advice(
        change="the whole step as one capture",
        why="",
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


def _batches(
    script: Script,
    host: ScriptHost,
    pace: Pace,
    found: dict[str, Any],
    steps: int,
    announce: Callable[[str], None],
) -> Iterator[Advice]:
    """A larger batch: the smallest of those tried that is about as fast as any."""
    begun = Advice(change="a larger batch", why="")
    loader = found["loader"]
    if loader["batch_size"] is None:
        yield replace(begun, outcome="not tried: the batches are not made by a DataLoader")
        return
    tried: dict[int, Pace] = {}
    said = "an epoch has no more windows"
    for factor in FACTORS:
        if pace.windows and pace.batch_size * factor * 2 > pace.windows:
            break
        announce(f"trying: batches {factor} times as large")
        try:
            after = _run(script, host, Changes(batch=factor), max(FEW, steps // factor), announce)
        except ScriptError as error:
            said = str(error)
            break
        tried[factor] = pace_of(after)
    if not tried:
        yield replace(begun, outcome=f"none was tried: {said}")
        return
    fastest = min(each.window_s for each in tried.values())
    factor = min(f for f, each in tried.items() if each.window_s <= fastest * NEAR)
    ratio = tried[factor].step_s / pace.step_s
    size = tried[factor].batch_size
    advice = Advice(
        change=f"batch_size {size} in place of {pace.batch_size}",
        why=f"a step of {size} takes {ratio:.1f} times as long as one of {pace.batch_size}",
        mathematics="fewer updates an epoch: tune the learning rate anew",
        fault=pace.window_s / tried[factor].window_s >= TINY,
    )
    yield judged(advice, tried[factor], pace)


def _of_loop(each: dict[str, Any], pace: Pace, stages: Stages) -> Advice:
    begun = Advice(
        change=f"run {each['name']} as one call over a batched input",
        why=(
            f"{each['name']} ({each['kind']}) is called {each['calls']} times a step, one after "
            f"the other: {each['share']:.0%} of the forward pass"
        ),
        fault=True,
    )
    if "failure" in each:
        return replace(begun, outcome=f"not tried: {each['failure']}")
    computing = stages.share(Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMISER)
    saved = computing * saved_share(each["loop_s"], each["one_s"], each["whole_s"])
    return judged(begun, replace(pace, epoch_s=pace.epoch_s * (1 - saved)), pace)


def memory_of_batches(
    script: Script,
    host: ScriptHost,
    found: dict[str, Any],
    pace: Pace,
    announce: Callable[[str], None],
) -> Iterator[AtBatch]:
    """At half, once and twice the batch, each in a process of its own: none ends ours."""
    for factor in (0.5, 1, 2) if found["loader"]["batch_size"] is not None else (1,):
        size = max(1, int(pace.batch_size * factor))
        if factor == 1:
            yield AtBatch(batch_size=size, peak_bytes=found["peak_bytes"], step_s=pace.step_s)
            continue
        announce(f"memory at batch {size}")
        try:
            other = _run(script, host, Changes(batch=factor), FEW, announce)
        except ScriptError as error:
            yield AtBatch(batch_size=size, peak_bytes=None, step_s=None, failure=str(error))
            continue
        step_s = pace_of(other).step_s
        yield AtBatch(batch_size=size, peak_bytes=other["peak_bytes"], step_s=step_s)


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
        return _profiled(script, host, device, advice=advice, announce=announce, tell=tell)


def _profiled(
    script: Script,
    host: ScriptHost,
    device: Gpu | CpuCores,
    *,
    advice: bool,
    announce: Callable[[str], None],
    tell: Tell,
) -> Profile:
    watch = Watch(device)
    announce(f"running {script.path.name} for {script.steps} steps")
    began = time.monotonic()
    found = run_script(script, host, look=True)
    took_s = time.monotonic() - began
    changed = replace(script, within_s=max(LEAST_S, TIMES * took_s))
    pace, stages = pace_of(found), stages_of(found)
    trend = trend_of(ticks_of(found["steps"]), found["all_steps"])
    a_step = pace.windows / pace.batch_size if pace.windows else 0
    falling = of_falling(trend, round(a_step))
    now = Profile(
        subject=script.path.name,
        device=device.model,
        settings={
            "network": found["network"],
            "batch": pace.batch_size,
            "workers": found["loader"]["workers"],
        },
        pace=pace,
        stages=stages,
        trend=trend,
        operations=operations_of(found),
        busy=Busy(**found["busy"] | {"cores": tuple(found["busy"]["cores"])}),
        advice=() if falling is None else (falling,),
        left=(ADVICE, MEMORY) if advice else (),
    )
    now = told(now, watch, tell)
    if not advice:
        return now
    announce(f"that took {took_s:.0f} s; it is run about {RUNS} times more, with changes")
    for piece in advice_on(changed, host, found, pace, stages, announce):
        now = told(replace(now, advice=(*now.advice, piece)), watch, tell)
    now = told(replace(now, left=(MEMORY,)), watch, tell)
    for row in memory_of_batches(changed, host, found, pace, announce):
        now = told(replace(now, memory=(*now.memory, row)), watch, tell)
    return told(replace(now, left=()), watch, tell)


def operations_of(found: dict[str, Any]) -> Operations:
    """Of a run that was looked at."""
    plain = found.get("operations")
    if plain is None:
        return Operations(failure="no network was seen in training")
    top = tuple(Operation(**each) for each in plain["top"])
    return Operations(**plain | {"top": top})


def ticks_of(steps: list[float]) -> list[float]:
    """Means of equal stretches."""
    each = max(1, len(steps) // TICKS)
    return [
        statistics.fmean(steps[first : first + each])
        for first in range(0, len(steps) - each + 1, each)
    ]
