"""The process that measures, from outside. Whatever it dies of, who asks lives on."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from tuner.config import Hyperparameters
from tuner.data.task import Task
from tuner.devices import CpuCores, Gpu
from tuner.errors import TunerError
from tuner.estimate.cost_model import (
    MeasuredSize,
    SizeCosts,
    hyperparameters_of,
    key_of,
    largest_size,
    size_of,
    to_measure,
)
from tuner.files.child import ChildError, ChildProcess
from tuner.files.environment import without_secrets
from tuner.spec.definition import StudyDefinition

MODULE = "tuner.estimate.serve_orders"
STARTS_S = 600.0
"""To import, prepare data and bring it to the device."""
FIT_S = 300.0
"""To try whether one configuration has room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is measured, and where."""

    definition: StudyDefinition
    task: Task
    data_dir: Path | None
    device: Gpu | CpuCores

    def as_dict(self) -> dict[str, Any]:
        """As the process is told it."""
        return {
            "definition": self.definition.as_dict(),
            "task": self.task.model_dump(mode="json"),
            "data_dir": None if self.data_dir is None else str(self.data_dir),
            "cores": list(self.device.cores) if isinstance(self.device, CpuCores) else [],
        }


@dataclass(slots=True)
class MeasuringProcess:
    """Started when it is first asked, and again after it has died; ended with its context."""

    subject: Subject
    windows: int = 1
    torch_version: str = ""
    start_s: float = 0.0
    _child: ChildProcess | None = None
    _log: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._log.close()

    def start(self, within_s: float = STARTS_S) -> None:
        """Have it ready to measure; nothing where it is.

        Raises:
            TunerError: data, network or device cannot be used.
            ChildError: it did not come so far.
        """
        if self._child is not None and self._child.runs:
            return
        self.end()
        self._log.seek(0)
        self._log.truncate()
        device = self.subject.device
        environment = without_secrets(os.environ)
        environment["CUDA_VISIBLE_DEVICES"] = device.uuid if isinstance(device, Gpu) else ""
        if isinstance(device, CpuCores):
            environment["OMP_NUM_THREADS"] = str(len(device.cores))
        self._child = ChildProcess(
            "the process that measures",
            self._command(),
            environment=environment,
            log=self._log,
            told=True,
            asked=True,
        )
        told = self._answer(self.subject.as_dict(), within_s)
        self.windows, self.torch_version = int(told["windows"]), str(told["torch_version"])
        self.start_s = float(told["start_s"])

    def measure(
        self, wanted: Hyperparameters, *, within_s: float, timed: bool = True
    ) -> MeasuredSize:
        """Of one configuration; one that does not fit, or of which it died, has no time. Not timed,
        one step is made and a validation, to see whether that fits.

        Raises:
            TunerError: it cannot be trained for another reason.
        """
        self.start()
        try:
            told = self._asked(wanted, "time" if timed else "fit", within_s)
        except ChildError as error:
            return MeasuredSize(size=size_of(wanted.as_dict()), failure=str(error))
        if not told["usable"]:
            self.end()
        return MeasuredSize(**told["measured"])

    def fits(self, wanted: Hyperparameters) -> bool:
        """Whether one step of a configuration, and a validation, has room."""
        return self.measure(wanted, within_s=FIT_S, timed=False).fits

    def evaluation_s(self, wanted: Hyperparameters, *, within_s: float) -> float:
        """Seconds to forecast and score what follows a training; 0 where that does not fit."""
        try:
            self.start()
            return float(self._asked(wanted, "evaluation", within_s).get("evaluation_s", 0.0))
        except ChildError:
            return 0.0

    def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _command(self) -> list[str]:
        device, words = self.subject.device, [str(os.getpid())]
        if not isinstance(device, CpuCores):
            return [sys.executable, "-m", MODULE, *words]
        bound = f"import os, runpy; os.sched_setaffinity(0, {list(device.cores)!r}); "
        run = f"runpy.run_module({MODULE!r}, run_name='__main__')"
        return [sys.executable, "-c", bound + run, *words]

    def _asked(self, wanted: Hyperparameters, what: str, within_s: float) -> Mapping[str, Any]:
        return self._answer({"what": what, "params": wanted.as_dict()}, within_s)

    def _answer(self, order: Mapping[str, Any], within_s: float) -> Mapping[str, Any]:
        assert self._child is not None, "it was started"
        try:
            self._child.say(order)
            told: dict[str, Any] = self._child.hear(within_s)
        except ChildError:
            self.end()
            raise
        if "error" in told:
            self.end()
            raise TunerError(str(told["error"]))
        return told


# The sizes of one search, measured one after the other as long as there is time.


EVERY_SIZE = 48
"""Up to so many sizes, each is measured; of a larger space so many, spread over it."""
LEAST_FOR_ONE_S = 120.0
"""A size may take so long even where there is less time: the first one, at least, is wanted."""
AS_BEFORE = 1.15
"""What was measured before stands where the default's epoch takes no more, and no less, than this
times what it took then."""


def measured_costs(
    process: MeasuringProcess,
    *,
    seconds: float,
    most: int = EVERY_SIZE,
    least_for_one_s: float = LEAST_FOR_ONE_S,
    building_s: float = 0.0,
    before: Sequence[MeasuredSize] = (),
) -> SizeCosts:
    """What the search's sizes cost, the default first.

    Args:
        process: that measures.
        seconds: no size is begun after so many, once the process is ready.
        most: sizes.
        least_for_one_s: a size may take so long, however little time is left.
        building_s: more than `seconds`, where a compiler takes it: what is built once is kept, and
            trials do not wait for it again.
        before: what was measured here at an earlier time, which it goes on from. The default is
            measured again; where it does not take what it took, all are.

    Raises:
        TunerError: the default cannot be measured.
    """
    definition = process.subject.definition
    process.start()
    since = time.monotonic()
    first = process.measure(definition.defaults, within_s=least_for_one_s, timed=False)
    if not first.fits:
        raise TunerError(f"the default configuration cannot be measured: {first.failure}")
    first_s = time.monotonic() - since
    began = time.monotonic()
    found: list[MeasuredSize] = []
    known: dict[str, MeasuredSize] = {}
    built_s = 0.0
    for size in to_measure(definition.space, definition.defaults, most=most):
        if (there := known.get(key_of(size))) is not None:
            found.append(there)
            continue
        left = seconds + min(building_s, built_s) - (time.monotonic() - began)
        if found and left <= 0:
            continue
        wanted = hyperparameters_of(size, definition.space, definition.defaults)
        found.append(process.measure(wanted, within_s=max(left, least_for_one_s)))
        built_s += found[-1].built_s
        if len(found) == 1:
            known = _still_true(before, found[0])
    windows, torch_version = process.windows, process.torch_version
    start_s = process.start_s + first_s
    if not found[0].fits:
        raise TunerError(f"the default configuration cannot be measured: {found[0].failure}")
    evaluation_s = process.evaluation_s(definition.defaults, within_s=least_for_one_s)
    return SizeCosts(
        device_model=process.subject.device.model,
        torch_version=torch_version,
        windows=windows,
        evaluation_s=evaluation_s,
        start_s=start_s,
        sizes=tuple(found),
    )


def _still_true(before: Sequence[MeasuredSize], default: MeasuredSize) -> dict[str, MeasuredSize]:
    """Those that stand, by size, as far as the default tells; it is measured first."""
    there = {key_of(each.size): each for each in before}
    then = there.get(key_of(default.size))
    if then is None or then.epoch_s is None or default.epoch_s is None:
        return {}
    if not 1 / AS_BEFORE <= default.epoch_s / then.epoch_s <= AS_BEFORE:
        return {}
    return there


# The largest batch that fits, found by halving between one that does and one that does not.


STEP = 16
"""The answer is right to a sixteenth of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestBatch:
    """Of one size of network."""

    fits: int
    """The largest that was tried and fits; 0 where none does."""
    too_large: int | None
    """The smallest that was tried and does not; None: a batch of all windows fits."""
    tries: int


def largest_batch(
    fits: Callable[[Hyperparameters], bool],
    forget: Callable[[], None],
    network: Hyperparameters,
    *,
    windows: int,
) -> LargestBatch:
    """Of this network: doubled until one does not fit, then halved between.

    Args:
        fits: whether a configuration does; whatever dies of it, the caller does not.
        forget: has the next one tried in a fresh process.
        network: its own batch size is where it begins.
        windows: of training: no batch holds more.
    """
    most, too_large, tries = 0, None, 0
    batch = min(network.batch_size, windows)
    while too_large is None or too_large - most > max(1, most // STEP):
        tries += 1
        if fits(dataclasses.replace(network, batch_size=batch)):
            most = batch
        else:
            too_large = batch
            # What ran out of memory may fit nothing any more, in a library's state or a device's
            # context: a process that cannot do again what it could is given up.
            if not most or not fits(dataclasses.replace(network, batch_size=most)):
                forget()
        if most >= windows or too_large == 1:
            break
        batch = min(2 * most, windows) if too_large is None else max(1, (most + too_large) // 2)
    return LargestBatch(fits=most, too_large=too_large, tries=tries)


def largest_batches(process: MeasuringProcess, windows: int) -> dict[str, dict[str, Any]]:
    """Of the default network, and of the largest of the space, in words of what they are."""
    space, defaults = process.subject.definition.space, process.subject.definition.defaults
    largest = hyperparameters_of(largest_size(space), space, defaults)
    networks = {"the default network": defaults}
    wide = dataclasses.replace(largest, batch_size=defaults.batch_size)
    if key_of(size_of(wide.as_dict())) != key_of(size_of(defaults.as_dict())):
        networks["the largest network"] = wide
    found = {}
    for name, network in networks.items():
        largest_of = largest_batch(process.fits, process.end, network, windows=windows)
        found[name] = dataclasses.asdict(largest_of)
    return found
