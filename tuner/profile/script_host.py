"""A process that has imported what every run of a script needs, and forks for each: torch takes
seconds to import, and a profile has some ten runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.errors import TunerError
from tuner.worker.process import end_with

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
