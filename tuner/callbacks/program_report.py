"""A program's own side of a trial: what it is to train, and the file for its report."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TextIO

from tuner.errors import TunerError

TRIAL, REPORT, STOP = "TUNER_TRIAL", "TUNER_REPORT", "TUNER_STOP"


class NotUnderTunerError(TunerError):
    """The program runs by itself: nobody told it a trial (exit code 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialToRun:
    """What the program is to train."""

    study: str
    number: int
    seed: int
    hyperparameters: Mapping[str, Any]
    max_epochs: int
    patience: int
    min_delta: float
    clock: str
    checkpoint_folder: Path
    """The program's own: what it keeps there is there again if this training is interrupted."""
    epochs_told: int
    """By an earlier attempt at this training; 0 where there was none that kept a checkpoint."""
    task: Mapping[str, Any]
    """The study's task, as a task file has it."""


def trial_to_run() -> TrialToRun | None:
    """The trial of this process; None where the program runs by itself, without tuner.

    Raises:
        NotUnderTunerError: the file that `TUNER_TRIAL` names cannot be read.
    """
    path = os.environ.get(TRIAL)
    if path is None:
        return None
    try:
        told = json.loads(Path(path).read_text(encoding="utf-8"))
        there = {each.name: told[each.name] for each in fields(TrialToRun) if each.name in told}
        return TrialToRun(
            **there
            | {
                "number": told["trial"],
                "checkpoint_folder": Path(told["checkpoint_folder"]),
                "epochs_told": (told["resume"] or {"epoch": 0})["epoch"],
            }
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotUnderTunerError(f"{TRIAL}={path} holds no trial of tuner's ({error})") from None


@dataclass(slots=True)
class Report:
    """Tells tuner how the training goes; tells nobody where the program runs by itself.

    A loop calls `started` once its set-up is over, `epoch` after each epoch's validation, `final`
    at last, and ends soon once `should_stop` is true. Of a training distributed by torch, all
    processes may call them: the first one speaks.
    """

    is_first: bool = True
    """Whether this process speaks for its training. torch says that where it distributes one."""
    _stopped: bool = field(default=False, init=False)
    _file: TextIO | None = field(default=None, init=False)
    _opened: bool = field(default=False, init=False)

    def started(self) -> None:
        """Set-up is over: the clock starts."""
        self._say({"started": True})

    def epoch(
        self,
        epoch: int,
        *,
        train_loss: float,
        val_loss: float,
        learning_rate: float | None = None,
        elapsed_s: float | None = None,
    ) -> None:
        """An epoch is over, counted from 1, with its validation.

        `elapsed_s` is for callbacks that have a clock of their own.
        """
        said = {"epoch": epoch, "train_loss": float(train_loss), "val_loss": float(val_loss)}
        if learning_rate is not None:
            said["learning_rate"] = float(learning_rate)
        if elapsed_s is not None:
            said["elapsed_s"] = float(elapsed_s)
        self._say(said)

    def final(
        self,
        *,
        test_mql: float | None = None,
        val_mql: float | None = None,
        converged: bool | None = None,
        epochs: int | None = None,
        n_parameters: int | None = None,
        peak_memory_bytes: int | None = None,
    ) -> None:
        """How good the trained network is; what its study minimises has to be among it.

        Without `converged`, a training that ended before `max_epochs` has converged. `epochs` is
        how many there were, those before an interruption included: a training that was interrupted
        after its last epoch is trained anew where nobody says that.

        Says nothing once `should_stop` was true: what tuner ended has no final values.
        """
        if self._stopped:
            return
        given = {
            "test_mql": None if test_mql is None else float(test_mql),
            "val_mql": None if val_mql is None else float(val_mql),
            "converged": converged,
            "epochs": epochs,
            "n_parameters": n_parameters,
            "peak_memory_bytes": peak_memory_bytes,
        }
        self._say({"final": {name: value for name, value in given.items() if value is not None}})

    @property
    def should_stop(self) -> bool:
        """Whether tuner has said that this training shall end; a look at a file."""
        if not self._stopped and STOP in os.environ:
            self._stopped = os.path.exists(os.environ[STOP])  # noqa: PTH110 - each batch
        return self._stopped

    def _say(self, said: Mapping[str, Any]) -> None:
        self.is_first = self.is_first and _rank() in (None, 0)
        if not self.is_first:
            return
        if not self._opened:
            self._opened = True
            path = os.environ.get(REPORT)
            self._file = None if path is None else Path(path).open("a", encoding="utf-8")  # noqa: SIM115
        if self._file is not None:
            self._file.write(json.dumps(said) + "\n")
            self._file.flush()


def _rank() -> int | None:
    """This process's number in a training distributed by torch; None where there is none now."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return None
    return int(distributed.get_rank())


@dataclass(slots=True)
class PausedClock:
    """Seconds of training and validation, read when the device has finished its work."""

    synchronize: Callable[[], None] = lambda: None
    _before: float = 0.0
    _since: float | None = field(default=None)

    def go_on(self) -> None:
        if self._since is None:
            self.synchronize()
            self._since = time.perf_counter()

    def stop(self) -> float:
        """Seconds so far."""
        if self._since is not None:
            self.synchronize()
            self._before += time.perf_counter() - self._since
            self._since = None
        return self._before


class ReportsItself:
    """What the callbacks of libraries have in common; `clock` is what the study has to go by.

    Raises:
        NotUnderTunerError: the study's times are by another clock.
    """

    def __init__(self, clock: str) -> None:
        super().__init__()
        self.trial = trial_to_run()
        """None where the program runs by itself."""
        if self.trial is not None and self.trial.clock != clock:
            raise NotUnderTunerError(
                f"{type(self).__name__} has a clock of its own, and the study file says clock = "
                f'"{self.trial.clock}": say clock = "{clock}" under [process]'
            )
        self.stopped = False
        """Whether tuner ended the training: nothing more is to be said of it."""
        self._report = Report()
        self._clock = PausedClock()
        self._epochs: int | None = None

    def final(self, **figures: Any) -> None:
        """What the trained network came to: see `Report.final`. Says nothing where tuner ended the
        training, or another process speaks for it.
        """
        self._report.final(**{"epochs": self._epochs} | figures)

    def _begin(self, device: Any, *, is_first: bool) -> None:
        self._clock = PausedClock(synchronizer(device))
        self._report.is_first = is_first
        self._report.started()

    def _newest_whole(self, pattern: str, is_whole: Callable[[Path], bool]) -> Path | None:
        """The newest of the trial's checkpoints that a kill did not cut short; None where there is
        none.
        """
        if self.trial is None:
            return None
        found = list(self.trial.checkpoint_folder.glob(pattern))
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        return next((path for path in found if is_whole(path)), None)


def synchronizer(device: Any) -> Callable[[], None]:
    """What waits for everything queued on a torch device; on a CPU nothing is ever queued."""
    if getattr(device, "type", "cpu") != "cuda":
        return lambda: None
    import torch

    return lambda: torch.cuda.synchronize(device)


def library(*names: str, needed_by: str, extra: str) -> Any:
    """The first of these modules that is here; one that the program has imported goes before.

    Raises:
        TunerError: none is.
    """
    for name in sorted(names, key=lambda each: each not in sys.modules):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise TunerError(
        f"{needed_by} needs {names[-1]}, which is not here: pip install 'tuner[{extra}]'"
    )
