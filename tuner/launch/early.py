"""Workers started before it is known what they will work at: they import meanwhile what they need.

Each waits for a line on its standard input, the names of its studies (`tuner worker --study -`). So
the seconds that torch takes to be there pass while the launch reads data and opens the database.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.devices import CpuCores, Gpu
from tuner.launch.child import Child
from tuner.launch.watchdog import kill

STUDIES_FOLLOW = "-"
"""In place of their names."""


@dataclass(slots=True)
class EarlyWorkers:
    """The first worker of each device, as long as its context lasts; what nobody took is ended."""

    devices: Sequence[Gpu | CpuCores]
    command: Sequence[str]
    options: Sequence[str]
    environment: Mapping[str, str]
    log_folder: Path
    _waiting: dict[str, Child] = field(default_factory=dict)
    """By the label of the device."""

    def __enter__(self) -> Self:
        for device in self.devices:
            self.log_folder.mkdir(parents=True, exist_ok=True)
            child = Child.on(device, self.log_folder)
            child.start(
                [*self.command, "--study", STUDIES_FOLLOW],
                self.options,
                self.environment,
                told_later=True,
            )
            self._waiting[device.label] = child
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._waiting.values():
            _end(child)
            with contextlib.suppress(OSError):
                if not child.log_path.stat().st_size:
                    child.log_path.unlink()
        if self._waiting:
            with contextlib.suppress(OSError):  # not there, or it holds others' logs
                self.log_folder.rmdir()
        self._waiting.clear()

    def take(self, device: Gpu | CpuCores, studies: str) -> Child | None:
        """The worker that waits on this device, once it has heard the names of its studies: from
        now on it belongs to whoever asked. None where none is left.
        """
        child = self._waiting.pop(device.label, None)
        if child is None or child.tell(studies):
            return child
        _end(child)
        return None


def _end(child: Child) -> None:
    child.hang_up()
    assert child.process is not None, "it was started"
    kill(child.process)
    child.process.wait()


def no_early_workers() -> EarlyWorkers:
    return EarlyWorkers(devices=(), command=(), options=(), environment={}, log_folder=Path())
