"""Who takes part: checked whole before anything is measured."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from tuner.bench.contender import (
    Contender,
    DeviceMemory,
    Entry,
    Epoch,
    Job,
    Round,
    Scope,
    count_kernels,
    per_step,
)
from tuner.config import LIBRARY, Backend, CompileMode, Hyperparameters, RunConfig, library_class
from tuner.data.windows import DeviceData, DeviceSplit
from tuner.errors import UsageError, unknown_name
from tuner.estimate.driven import Running, running
from tuner.models.frozen_part import count_parameters
from tuner.models.names import builtin_names
from tuner.spec.study_file import StudyFile, load_study_file
from tuner.version import installed

# Our engines as contenders: driven as `fit` drives them, without early stopping.


class Ours:
    """A variant on one of our backends. Its data lies on the device and counts into its memory."""

    def __init__(self, job: Job, entry: Entry, config: RunConfig, data: DeviceData) -> None:
        self.job = job
        self.entry = entry
        self.config = config
        """What it trains."""
        self.data = data

    def run(self, epochs: int) -> Round:
        memory = DeviceMemory(self.job.device)
        with self._training() as training:
            one_epoch = _Epochs(training)
            one_epoch()
            first = training.read()
            counted = tuple(one_epoch() for _ in range(epochs))
            last = training.read()
            parameters = count_parameters(training.engine.model).trained
            setup_s = training.setup_s
        peak = memory.peak()
        return Round(
            setup_s=setup_s,
            epochs=counted,
            counted=(first, last),
            peak_memory_bytes=None if peak is None else peak + size_of(self.data),
            n_parameters=parameters,
            n_windows=training.n_windows,
            n_steps=training.batches,
        )

    def kernels_per_step(self) -> int | None:
        device = self.job.device
        if device.type != "cuda":
            return None
        with self._training() as training:
            training.steps(1)
            return per_step(
                lambda steps: count_kernels(device, lambda: training.steps(steps)),
                training.n_windows // training.batch_size,
            )

    @contextmanager
    def _training(self) -> Iterator[Running]:
        with running(self.config, self.data) as training:
            engine = training.engine
            if engine.fallback:
                raise FellBackError(f"would run as {engine.backend.value}: {engine.fallback}")
            yield training


class FellBackError(Exception):
    """The backend does not serve this network: another's figures would bear its name."""


class _Epochs:
    """Epochs with all that `fit` does in one: shuffle, train, validate, keep the best."""

    def __init__(self, training: Running) -> None:
        self._training = training
        self._learning_rate = training.config.hyperparameters.learning_rate
        self._best_loss = math.inf

    def __call__(self) -> Epoch:
        """One epoch; where not each is validated, the mean of as many as share a validation."""
        every = self._training.config.training.validate_every
        parts = [self._epoch(validated=number == every) for number in range(1, every + 1)]
        return Epoch(
            seconds=sum(seconds for seconds, _ in parts) / every,
            step_s=sum(trained_s for _, trained_s in parts) / every / self._training.batches,
        )

    def _epoch(self, *, validated: bool) -> tuple[float, float]:
        """Its seconds, and those of its training steps."""
        training, engine = self._training, self._training.engine
        began = training.read()
        trained = engine.train_epoch(training.shuffles.next(), self._learning_rate, lambda: None)
        trained_at = training.read()
        mean = trained.loss_sum / trained.n_windows
        losses = torch.stack([mean, engine.validation_loss()] if validated else [mean])
        training.shuffles.draw_ahead()
        _, *val_loss = losses.tolist()
        if val_loss and val_loss[0] < self._best_loss:
            self._best_loss = val_loss[0]
            training.best.take(engine.model)
        self._learning_rate *= training.config.training.learning_rate_decay
        return training.read() - began, trained_at - began


def size_of(data: DeviceData) -> int:
    """Bytes of all tensors of the data."""
    parts: tuple[DeviceData | DeviceSplit, ...] = (data, data.train, data.val, data.test)
    tensors = [getattr(part, each.name) for part in parts for each in fields(part)]
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))


BASELINE = "original"
OURS = "tuner"
LIBRARIES = ("darts", "neuralforecast")
INSTALL = "install it with: pip install 'tuner[bench]'"


@dataclass(frozen=True, slots=True)
class Plan:
    """The contenders in their order, and what to tell the person, in lines."""

    contenders: tuple[Contender, ...]
    notices: tuple[str, ...]


def make_plan(
    job: Job,
    data: DeviceData,
    *,
    variants: str,
    backends: str,
    against: str | None,
    hidden: Sequence[int],
    batch: Sequence[int],
) -> Plan:
    """All variants on all backends at all pairs of sizes; the libraries at the first.

    Args:
        job: the job and the device.
        data: the job's windows on the device.
        variants: `all`, or names and study files with commas between them.
        backends: `all` that the device has, or names with commas between them.
        against: `none`, or libraries with commas between them; None means those that can be
            imported.
        hidden: hidden sizes.
        batch: batch sizes.

    Raises:
        UsageError: a wrong name or size, a backend the device does not have, a library asked for
            and not installed.
    """
    files = _files(variants)
    chosen = _backends(backends, job.device)
    libraries, notices = _libraries(against)
    if min((*hidden, *batch), default=0) < 1:
        raise UsageError("--hidden and --batch: the sizes must be whole numbers of at least 1")
    pairs = list(itertools.product(dict.fromkeys(hidden), dict.fromkeys(batch)))
    contenders: list[Contender] = []
    for library in libraries:
        contenders += _library(library, files, job, *pairs[0])
    for pair, file, backend in itertools.product(pairs, files, chosen):
        config = _config(file, backend, job, *pair)
        contenders.append(Ours(job, Entry.of(config, OURS, file.name, backend.value), config, data))
    return Plan(tuple(contenders), notices)


def library_versions() -> dict[str, str | None]:
    """Versions of the libraries we are compared with and of theirs; None where not installed."""
    return {package: installed(package) for package in (*LIBRARIES, "pytorch-lightning")}


def names(text: str, flag: str) -> list[str]:
    """The names in a list with commas.

    Raises:
        UsageError: an empty name.
    """
    found = [part.strip() for part in text.split(",")]
    if not all(found):
        raise UsageError(
            f"{flag}: {text!r} holds an empty name; expected names with commas between them"
        )
    return list(dict.fromkeys(found))


def _files(variants: str) -> list[StudyFile]:
    if variants.strip() == "all":
        others = [name for name in builtin_names() if name != BASELINE]
        return [load_study_file(name) for name in (BASELINE, *others)]
    return [load_study_file(name) for name in names(variants, "--variants")]


def _backends(backends: str, device: torch.device) -> list[Backend]:
    there = [Backend.EAGER, Backend.COMPILE]
    if device.type == "cuda":
        there = [each for each in Backend if each is not Backend.AUTO]
    if backends.strip() == "all":
        return there
    chosen, known = [], [each.value for each in Backend if each is not Backend.AUTO]
    for name in names(backends, "--backends"):
        if name not in known:
            raise unknown_name("backend", name, known, more="; or all")
        if name not in there:
            raise UsageError(
                f"--backends: {name} needs a CUDA device, "
                f"this one is {device.type}; use eager, compile or all"
            )
        chosen.append(Backend(name))
    return chosen


def _libraries(against: str | None) -> tuple[list[str], tuple[str, ...]]:
    """The libraries to run, and a line for each that was not asked for and cannot be imported."""
    if against is not None and against.strip() == "none":
        return [], ()
    asked = list(LIBRARIES) if against is None else names(against, "--against")
    there, notices = [], []
    for library in asked:
        if library not in LIBRARIES:
            raise unknown_name("library", library, LIBRARIES, more="; or none")
        try:
            importlib.import_module(f"tuner.bench.{library}_model")
        except ImportError as error:
            problem = f"{library} cannot be imported here ({error}); {INSTALL}"
            if against is not None:
                raise UsageError(f"--against: {problem}, or leave it out") from None
            notices.append(f"left out: {problem}")
        else:
            there.append(library)
    return there, tuple(notices)


def _library(
    library: str, files: Sequence[StudyFile], job: Job, hidden: int, batch: int
) -> list[Contender]:
    """The library with the reference job's network; neuralforecast also, or else, with each of its
    own models that is among the variants.
    """
    own = [file for file in files if library == LIBRARY and library_class(file.model) is not None]
    found = [_with_own_model(file, job, hidden, batch) for file in own]
    if len(own) == len(files):
        return found
    config = _config(load_study_file(BASELINE), Backend.AUTO, job, hidden, batch)
    entry = Entry.of(config, library, "")
    if library == "darts":
        from tuner.bench.darts_model import Darts

        return [Darts(job, entry, config)]
    from tuner.bench.neuralforecast_model import NOTE, NeuralForecast

    entry = dataclasses.replace(entry, scope=Scope.STEPS, note=NOTE)
    return [NeuralForecast(job, entry, config), *found]


def _with_own_model(file: StudyFile, job: Job, hidden: int, batch: int) -> Contender:
    from tuner.bench.neuralforecast_model import OWN_NOTE, OwnModel

    config = _config(file, Backend.AUTO, job, hidden, batch)
    entry = Entry.of(config, LIBRARY, file.name, scope=Scope.STEPS, note=OWN_NOTE)
    return OwnModel(job, entry, config)


def _config(file: StudyFile, backend: Backend, job: Job, hidden: int, batch: int) -> RunConfig:
    """The file's defaults at these sizes, of which a network may have no hidden size."""
    defaults: Hyperparameters = file.default_hyperparameters()
    hyperparameters = dataclasses.replace(
        defaults, hidden_size=None if defaults.hidden_size is None else hidden, batch_size=batch
    )
    training = file.training.but(backend=backend, precision=job.precision)
    if backend is not Backend.COMPILE:  # whose the mode is
        training = training.but(compile_mode=CompileMode.DEFAULT)
    return RunConfig(
        architecture=file.architecture(),
        hyperparameters=hyperparameters,
        training=training,
        seed=job.seed,
    )
