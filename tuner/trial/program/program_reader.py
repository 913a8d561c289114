"""Reads what a program reports and prints, in a thread that does nothing else: a line's moment is
when it came, whatever whoever trains is at.

A moment is read after its line, so it is never early. Nothing is read without a limit: who has
reported more than is handled waits, as with any pipe that is full.
"""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections import deque
from types import TracebackType
from typing import Self

from tuner.display.text import shown
from tuner.trial.program.program_lines import LINE_BYTES, ProgramError, is_whole

REPORT_BYTES = 64 << 20
PRINTED_BYTES = 256 << 20
PENDING_BYTES = 8 << 20
"""Of lines that came and are not handled yet."""
LINE_COSTS = 200
"""Bytes that such a line takes beside its own."""
AT_ONCE = 64
"""Lines handed over before who handles them looks at anything else."""
KEPT_BYTES = 4096
KEPT_LINES = 10


class ProgramReader:
    """Reads both while the `with` block runs, and leaves no thread and no descriptor of its own.

    Args:
        report: a descriptor whose end is never read, which does not block.
        output: one that does not block, for what is printed.
    """

    def __init__(self, report: int, output: int) -> None:
        self._report, self._output = report, output
        self._lock = threading.Condition()
        self._pending: deque[tuple[bytes, float]] = deque()
        self._pending_bytes = 0
        self._error: ProgramError | None = None
        self._over = self._ending = self._closing = False
        self._last_came = 0.0
        self._rest = b""
        self._rest_came = 0.0
        self._reported = self._printed = 0
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._thread = threading.Thread(target=self._run, name="program-reader", daemon=True)

    def __enter__(self) -> Self:
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._close()
            raise OSError(0, str(error)) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        self._wake()
        self._thread.join()
        self._close()

    # -- for who handles the lines -----------------------------------------------------------------

    def take(self, for_s: float) -> list[tuple[bytes, float]]:
        """The next lines, each with the moment (`time.perf_counter`) at which it came; none where
        none comes within `for_s`, or all have come.

        Raises:
            ProgramError: it says more than anybody reads; told after what came before that.
        """
        with self._lock:
            if not self._pending and not self._over:
                self._lock.wait(for_s)
            if not self._pending and self._error is not None:
                raise self._error
            found = [self._pending.popleft() for _ in range(min(AT_ONCE, len(self._pending)))]
            self._pending_bytes -= sum(map(_cost, found))
            self._lock.notify_all()
        return found

    def program_ended(self) -> None:
        """Nothing comes any more: what is in the pipes is the last."""
        if not self._ending:
            self._ending = True
            self._wake()

    @property
    def is_over(self) -> bool:
        """Whether all that came can be taken."""
        return self._over

    @property
    def last_came(self) -> float:
        """When the last line came, also one that nobody has taken; 0 where none did."""
        return self._last_came

    def last_printed(self) -> list[str]:
        """The last lines that it printed, harmless to show."""
        text = b"".join(self._kept)[-KEPT_BYTES:].decode("utf-8", "replace")
        lines = [shown(line.rpartition("\r")[2]).rstrip() for line in text.splitlines()]
        return [line for line in lines if line][-KEPT_LINES:]

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._read()
        except ProgramError as error:
            self._error = error
        except OSError as error:
            self._error = ProgramError(f"its report cannot be read: {error.strerror}")
        finally:
            with self._lock:
                self._over = True
                self._lock.notify_all()

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._report, self._output, self._woken):
                selector.register(descriptor, selectors.EVENT_READ)
            while not self._closing:
                ending = self._ending  # read before the pipes are looked at
                ready = {key.fd for key, _ in selector.select(0 if ending else None)}
                if self._report in ready:
                    self._take_reported()
                if self._output in ready and not self._take_printed():
                    selector.unregister(self._output)
                    with self._lock:
                        self._lock.notify_all()  # its end is near
                if ending and not ready - {self._woken}:
                    self._take_rest()
                    return

    def _take_reported(self) -> None:
        came = os.read(self._report, LINE_BYTES)
        now = time.perf_counter()
        self._reported += len(came)
        *lines, self._rest = (self._rest + came).split(b"\n")
        if max(map(len, [*lines, self._rest])) > LINE_BYTES:
            raise ProgramError(f"its report has a line of more than {LINE_BYTES >> 10} KiB")
        if self._reported > REPORT_BYTES:
            raise ProgramError(f"its report is longer than {REPORT_BYTES >> 20} MiB")
        self._rest_came = now
        self._tell([(line, now) for line in lines if line.strip()])

    def _take_rest(self) -> None:
        """The last line of a program that has ended, where only its end of line is missing."""
        if is_whole(self._rest):
            self._tell([(self._rest, self._rest_came)])

    def _tell(self, found: list[tuple[bytes, float]]) -> None:
        if not found:
            return
        now = found[-1][1]
        with self._lock:
            self._last_came = now
            self._pending += found
            self._pending_bytes += sum(map(_cost, found))
            self._lock.notify_all()
            while self._pending_bytes > PENDING_BYTES and not self._closing:
                self._lock.wait()

    def _take_printed(self) -> bool:
        """False once all that could print have ended, or closed it."""
        came = os.read(self._output, 1 << 20)
        self._printed += len(came)
        if self._printed > PRINTED_BYTES:
            raise ProgramError(
                f"it printed more than {PRINTED_BYTES >> 20} MiB; print less, or into a file"
            )
        self._kept.append(came[-KEPT_BYTES:])
        self._kept_bytes += len(self._kept[-1])
        while self._kept_bytes - len(self._kept[0]) >= KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft())
        return bool(came)

    def _wake(self) -> None:
        os.write(self._wakes, b"w")

    def _close(self) -> None:
        os.close(self._woken)
        os.close(self._wakes)


def _cost(line: tuple[bytes, float]) -> int:
    return len(line[0]) + LINE_COSTS
