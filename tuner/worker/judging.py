"""The process that looks whether searches may stop, from outside: kept alive while others work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tuner.devices import CpuCores, Gpu
from tuner.files.environment import STORAGE_VARIABLE
from tuner.study.open import OpenStudy
from tuner.worker.paths import working_folder

COMMAND = (sys.executable, "-m", "tuner.worker.judge")
ALONE = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "CUDA_VISIBLE_DEVICES": "",
}
BESIDE_CPU, BESIDE_GPU = 0.05, 1.0
"""The most share of a core's time for it. On a CPU run, that is the trainings' own."""
STARTS = 3
PAUSE_S = 10.0


@dataclass(slots=True)
class _Judge:
    """The process; another one where it fails, a few times."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    note: Callable[[str], None]
    process: subprocess.Popen[bytes] | None = None
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self) -> None:
        """Until it is over."""
        for _ in range(STARTS):
            with self.lock:
                if self.over.is_set():
                    return
                self.process = self._started()
            self.process.wait()
            if self.over.wait(PAUSE_S):
                return
        self.note(
            f"nothing looks any more whether searches may stop (--until); they end with their "
            f"budgets (log: {self.log})"
        )

    def _started(self) -> subprocess.Popen[bytes]:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.PIPE,  # its end is the sign to end
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C reaches its parent alone
            )

    def end(self) -> None:
        """Whatever it is at: what it writes, it writes at once or not at all."""
        self.over.set()
        with self.lock:
            if self.process is not None:
                self.process.kill()
                self.process.wait()
                if self.process.stdin is not None:
                    self.process.stdin.close()


@contextmanager
def judged_meanwhile(
    studies: Sequence[OpenStudy],
    device: Gpu | CpuCores | None,
    note: Callable[[str], None],
    command: Sequence[str] = COMMAND,
) -> Iterator[None]:
    """As long as the context lasts, those of the studies that are to stop by themselves (`until`)
    are looked at. `device` is one of those that train them; None: they are on other hosts.
    """
    names = [each.name for each in studies if each.policy().until is not None]
    if not names:
        yield
        return
    address = studies[0].database.address
    share = BESIDE_CPU if isinstance(device, CpuCores) else BESIDE_GPU
    kept = _Judge(
        [*command, str(share), *names],
        {**os.environ, **ALONE, STORAGE_VARIABLE: address.full()},
        working_folder(address) / "logs" / "until.log",
        note,
    )
    thread = threading.Thread(target=kept.keep, name="judge", daemon=True)
    thread.start()
    try:
        yield
    finally:
        kept.end()
        thread.join()
