"""The process that measures, from outside. Whatever it dies of, who asks lives on."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tuner.config import Hyperparameters
from tuner.data.task import Task
from tuner.devices import CpuCores, Gpu
from tuner.errors import TunerError
from tuner.estimate.cost_sizes import size_of
from tuner.estimate.size_costs import MeasuredSize
from tuner.files.environment import without_secrets
from tuner.spec.definition import StudyDefinition

COMMAND = (sys.executable, "-m", "tuner.estimate.measuring.serve_orders")
END_S = 10.0
STARTS_S = 600.0
"""To import, prepare data and bring it to the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is measured, and where."""

    definition: StudyDefinition
    task: Task
    data_dir: Path | None
    device: Gpu | CpuCores
    most_bytes: int | None = None
    """On a CPU: what a training may take of the host's memory before it counts as not fitting."""

    def to_json(self) -> str:
        return json.dumps(
            {
                "definition": self.definition.as_dict(),
                "task": self.task.model_dump(mode="json"),
                "data_dir": None if self.data_dir is None else str(self.data_dir),
                "cores": list(self.device.cores) if isinstance(self.device, CpuCores) else [],
                "most_bytes": self.most_bytes,
                "parent": os.getpid(),
            }
        )


class NotAnsweredError(TunerError):
    """The process died, or said nothing in time."""


@dataclass(slots=True)
class MeasuringProcess:
    """Started when it is first asked, and again after it has died; ended with its context."""

    subject: Subject
    windows: int = 1
    torch_version: str = ""
    start_s: float = 0.0
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _rest: bytes = b""
    _log: Any = field(default=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def start(self, within_s: float = STARTS_S) -> None:
        """Have it ready to measure; nothing where it is.

        Raises:
            TunerError: data, network or device cannot be used.
            NotAnsweredError: it did not come so far.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self.end()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        device = self.subject.device
        environment = without_secrets(os.environ)
        if isinstance(device, CpuCores):
            environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(len(device.cores))}
        else:
            environment |= {"CUDA_VISIBLE_DEVICES": device.uuid}
        self._process = subprocess.Popen(
            self._command(),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            process_group=0,  # Ctrl-C reaches its parent alone
        )
        self.starts += 1
        self._say(self.subject.to_json())
        told = self._heard(within_s)
        self.windows, self.torch_version = int(told["windows"]), str(told["torch_version"])
        self.start_s = float(told["start_s"])

    def time(self, wanted: Hyperparameters, *, within_s: float) -> MeasuredSize:
        """Of one configuration; one that does not fit, or of which it died, has no time.

        Raises:
            TunerError: it cannot be trained for another reason.
        """
        return self._of(wanted, "time", within_s)

    def fits(self, wanted: Hyperparameters, *, within_s: float) -> bool:
        """Whether one step of a configuration, and a validation, has room."""
        return self.fit(wanted, within_s=within_s).fits

    def fit(self, wanted: Hyperparameters, *, within_s: float) -> MeasuredSize:
        """One step of a configuration, and a validation; why not, where that has no room."""
        return self._of(wanted, "fit", within_s)

    def evaluation_s(self, wanted: Hyperparameters, *, within_s: float) -> float:
        """Seconds to forecast and score what follows a training; 0 where that does not fit."""
        try:
            self.start()
            return float(self._asked(wanted, "evaluation", within_s).get("evaluation_s", 0.0))
        except NotAnsweredError:
            return 0.0

    def end(self) -> None:
        process, self._process, self._rest = self._process, None, b""
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _command(self) -> list[str]:
        device = self.subject.device
        if not isinstance(device, CpuCores):
            return list(COMMAND)
        bound = f"import os, runpy; os.sched_setaffinity(0, {list(device.cores)!r}); "
        run = f"runpy.run_module({COMMAND[-1]!r}, run_name='__main__')"
        return [sys.executable, "-c", bound + run]

    def _of(self, wanted: Hyperparameters, what: str, within_s: float) -> MeasuredSize:
        self.start()
        try:
            told = self._asked(wanted, what, within_s)
        except NotAnsweredError as error:
            return MeasuredSize(size=size_of(wanted.as_dict()), failure=str(error))
        return MeasuredSize(**told)

    def _asked(self, wanted: Hyperparameters, what: str, within_s: float) -> Mapping[str, Any]:
        self._say(json.dumps({"what": what, "params": wanted.as_dict()}))
        return self._heard(within_s)

    def _say(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise NotAnsweredError(self._last_words()) from None

    def _heard(self, within_s: float) -> Mapping[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        until = time.monotonic() + within_s
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self.end()
                raise NotAnsweredError(f"it was not done after {within_s:.0f} s")
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                words = self._last_words()
                self.end()
                raise NotAnsweredError(words)
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            self.end()
            raise TunerError(str(told["error"]))
        return told

    def _last_words(self) -> str:
        said = ""
        with contextlib.suppress(OSError, ValueError):
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").strip().splitlines()
            said = lines[-1] if lines else ""
        return f"the process that measures has died{': ' + said if said else ''}"
