"""The process that compiles kernels ahead, from outside: started, heard, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.launch.child import last_line
from tuner.trial.ahead.compile_order import Order
from tuner.trial.ahead.compile_progress import Progress

COMMAND = (sys.executable, "-m", "tuner.trial.ahead.compile_all")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""It forks: no library may start threads while it is imported."""
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
"""It must not appear on a GPU beside somebody's timed training."""
END_S = 5.0


@dataclass(slots=True)
class CompilingProcess:
    """One order being compiled.

    Attributes:
        log: gets what the compilers complain of.
        progress: as last heard.
    """

    process: subprocess.Popen[bytes]
    log: Path
    progress: Progress = field(default_factory=Progress)
    _rest: bytes = b""

    @staticmethod
    def start(
        order: Order,
        environment: Mapping[str, str],
        log: Path,
        command: Sequence[str] = COMMAND,
    ) -> CompilingProcess:
        """Begin; the caller ends it with `end`, also when it has ended by itself."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as complaints:
            process = subprocess.Popen(
                command,
                env={**environment, **ONE_THREAD, **NO_GPU},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                process_group=0,  # with what it forks
            )
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # its exit code says more
            process.stdin.write(order.to_json().encode())
            process.stdin.close()
        os.set_blocking(process.stdout.fileno(), False)
        return CompilingProcess(process, log)

    def look(self) -> int | None:
        """Take in what it said; its exit code, once it has one."""
        code = self.process.poll()  # before reading: what it said last is there by then
        assert self.process.stdout is not None
        came = b""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.process.stdout.fileno(), 1 << 16):
                came += chunk
        *lines, self._rest = (self._rest + came).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                self.progress = Progress.from_line(line)
        return code

    def last_words(self) -> str:
        """The last line of its log."""
        return last_line(self.log)

    def end(self) -> None:
        """Whatever it is at: nothing stays locked, and what is half compiled is compiled again."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
