"""Somebody else's training: profiled from outside, in processes of its own."""

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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tuner.display.text import signal_name
from tuner.errors import TunerError
from tuner.profile.profile_records import Pace, Stages
from tuner.profile.recorders import Span
from tuner.profile.script_changes import Changes
from tuner.training.stage_marks import Stage
from tuner.worker.process import end_with

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
