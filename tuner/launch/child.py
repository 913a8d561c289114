"""A device and the worker process on it, with what the supervisor knows of both."""

from __future__ import annotations

import os
import platform
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.devices import CpuCores, Gpu
from tuner.launch.watchdog import WatchedProcess


@dataclass(slots=True)
class Child:
    """The worker on one device, and after its end the next."""

    device: Gpu | CpuCores
    log_path: Path
    process: subprocess.Popen[bytes] | None = None
    listening: int = -1
    """The end of a pipe at which its life signs arrive."""
    watched: WatchedProcess | None = None
    name: str = ""
    """The worker's, a new one with each process."""
    failures: int = 0
    """Workers on this device that ended without a result
    of their own, since the last one that had some."""
    budget_at_start: int = 0
    not_before: float = 0.0
    done: bool = False
    given_up: bool = False

    @staticmethod
    def on(device: Gpu | CpuCores, log_folder: Path) -> Child:
        return Child(device, log_folder / f"worker-{platform.node()}-{_kind(device)}.log")

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def is_due(self) -> bool:
        """Whether its next worker may be started by now."""
        return time.monotonic() >= self.not_before

    def wait(self, seconds: float) -> None:
        """Before the next worker is started."""
        self.process, self.not_before = None, time.monotonic() + seconds

    def start(
        self,
        command: Sequence[str],
        more: Sequence[str],
        environment: Mapping[str, str],
        *,
        told_later: bool = False,
    ) -> None:
        """A new worker: `command`, then what makes it the worker of this device, then `more`.

        With `told_later` it waits at its standard input until `tell` or `hang_up`.
        """
        self.name = f"{platform.node()[:60]}-{_kind(self.device)[:40]}-{secrets.token_hex(4)}"
        environment = dict(environment)
        words = [*command, "--supervised-by", str(os.getpid()), "--name", self.name]
        if isinstance(self.device, Gpu):
            words += ["--gpu", "0"]
            environment["CUDA_VISIBLE_DEVICES"] = self.device.uuid
        else:
            words += ["--cpu", "--cores", ",".join(map(str, self.device.cores))]
        listening, beating = os.pipe()
        words += ["--heartbeat", str(beating), *more]
        # A group of its own: Ctrl-C reaches the supervisor alone, which then asks the workers to
        # hand back. No session of its own: a stopped group that loses its parent in the session
        # gets SIGHUP and SIGCONT from the kernel, so when this process is killed, also a worker
        # that somebody had stopped goes on and hears that it shall end.
        try:
            with self.log_path.open("ab") as log:
                self.process = subprocess.Popen(
                    words,
                    env=environment,
                    stdin=subprocess.PIPE if told_later else subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(beating,),
                    process_group=0,
                )
        finally:
            os.close(beating)
        self.listening = listening

    def tell(self, line: str) -> bool:
        """Give the line that a worker waits for; whether it was there to hear it."""
        assert self.process is not None, "it was started, and waits"
        assert self.process.stdin is not None, "it was started, and waits"
        try:
            with self.process.stdin as waiting:
                waiting.write(line.encode() + b"\n")
        except BrokenPipeError:
            return False
        return True

    def hang_up(self) -> None:
        """Nobody will watch this worker, or tell it anything."""
        assert self.process is not None, "it was started, and waits"
        if self.process.stdin is not None:
            self.process.stdin.close()
        os.close(self.listening)

    def last_words(self) -> str:
        """The last line of its log."""
        return last_line(self.log_path)


def last_line(log: Path) -> str:
    """What a process said last."""
    text = log.read_text(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("tuner: error: ") if lines else "no output"


def _kind(device: Gpu | CpuCores) -> str:
    """The device in a file's or a worker's name."""
    return (
        f"gpu{device.number}"
        if isinstance(device, Gpu)
        else f"cpu{'-'.join(map(str, device.cores))}"
    )
