"""Who takes part: checked whole before anything is measured."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
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
    reader,
)
from tuner.config import (
    LIBRARY,
    Backend,
    CompileMode,
    Hyperparameters,
    RunConfig,
    StopReason,
    library_class,
)
from tuner.data.windows import DeviceData, DeviceSplit
from tuner.errors import UsageError, unknown_name
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.spec.study_file import StudyFile, load_study_file
from tuner.training.batching import Shuffles
from tuner.training.clock import arithmetic, seeded
from tuner.training.engines.choose import make_engine
from tuner.training.engines.eager import Engine, Poll
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
        self._batch_size = config.hyperparameters.batch_size * config.accumulate
        """Of an update, which is what a step is here."""
        self.n_steps = math.ceil(len(data.train) / self._batch_size)

    def run(self, epochs: int) -> Round:
        device = self.job.device
        read = reader(device)
        memory = DeviceMemory(device)
        began = read()
        with self._engine() as (engine, shuffles):
            setup_s = read() - began
            training = _Training(engine, shuffles, self)
            training.epoch()
            first = read()
            counted = tuple(training.epoch() for _ in range(epochs))
            last = read()
            parameters = sum(p.numel() for p in engine.model.parameters())
        peak = memory.peak()
        return Round(
            setup_s=setup_s,
            epochs=counted,
            counted=(first, last),
            peak_memory_bytes=None if peak is None else peak + size_of(self.data),
            n_parameters=parameters,
            n_windows=len(self.data.train),
            n_steps=self.n_steps,
        )

    def kernels_per_step(self) -> int | None:
        device = self.job.device
        if device.type != "cuda":
            return None
        order = torch.arange(len(self.data.train), device=device)
        learning_rate = self.config.hyperparameters.learning_rate
        with self._engine() as (engine, _):

            def count(steps: int) -> int:
                return count_kernels(
                    device, lambda: engine.train_epoch(order, learning_rate, stop_after(steps))
                )

            engine.train_epoch(order, learning_rate, stop_after(1))
            return per_step(count, max(1, len(order) // self._batch_size))

    @contextmanager
    def _engine(self) -> Iterator[tuple[Engine, Shuffles]]:
        """The network and its engine, warmed up, under a training's settings; closed at the end."""
        device = self.job.device
        with (
            arithmetic(self.config.training.precision),
            seeded(self.config.seed, device) as generator,
        ):
            model = build_model(
                self.config.architecture, self.data.shapes, self.config.hyperparameters
            )
            engine = make_engine(self.config, self.data, model.to(device))
            if engine.fallback:
                raise FellBackError(f"would run as {engine.backend.value}: {engine.fallback}")
            try:
                engine.warm_up()
                yield engine, Shuffles(generator, len(self.data.train), device)
            finally:
                engine.close()


class FellBackError(Exception):
    """The backend does not serve this network: another's figures would bear its name."""


class _Training:
    """Epochs with all that `fit` does in one: shuffle, train, validate, keep the best."""

    def __init__(self, engine: Engine, shuffles: Shuffles, ours: Ours) -> None:
        self._engine, self._shuffles, self._n_steps = engine, shuffles, ours.n_steps
        self._learning_rate = ours.config.hyperparameters.learning_rate
        self._decay = ours.config.training.learning_rate_decay
        self._validate_every = ours.config.training.validate_every
        self._read = reader(ours.job.device)
        self._best, self._best_loss = engine.snapshot(), math.inf

    def epoch(self) -> Epoch:
        """One epoch; where not each is validated, the mean of as many as share a validation."""
        every = self._validate_every
        parts = [self._epoch(validated=number == every) for number in range(1, every + 1)]
        return Epoch(
            seconds=sum(seconds for seconds, _ in parts) / every,
            step_s=sum(trained_s for _, trained_s in parts) / every / self._n_steps,
        )

    def _epoch(self, *, validated: bool) -> tuple[float, float]:
        """Its seconds, and those of its training steps."""
        began = self._read()
        trained = self._engine.train_epoch(self._shuffles.next(), self._learning_rate, _never)
        trained_at = self._read()
        mean = trained.loss_sum / trained.n_windows
        losses = torch.stack([mean, self._engine.validation_loss()] if validated else [mean])
        self._shuffles.draw_ahead()
        _, *val_loss = losses.tolist()
        if val_loss and val_loss[0] < self._best_loss:
            self._best_loss = val_loss[0]
            self._best.take(self._engine.model)
        self._learning_rate *= self._decay
        return self._read() - began, trained_at - began


def stop_after(steps: int, stepped: Callable[[], object] = lambda: None) -> Poll:
    """Ends an epoch after so many steps, and tells of each."""
    left = steps

    def poll() -> StopReason | None:
        nonlocal left
        left -= 1
        stepped()
        return None if left > 0 else StopReason.INTERRUPTED

    return poll


def size_of(data: DeviceData) -> int:
    """Bytes of all tensors of the data."""
    parts: tuple[DeviceData | DeviceSplit, ...] = (data, data.train, data.val, data.test)
    tensors = [getattr(part, each.name) for part in parts for each in fields(part)]
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))


def _never() -> StopReason | None:
    return None


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
    against_everywhere: bool,
) -> Plan:
    """All variants on all backends at all pairs of sizes; the libraries at the first, or at all.

    Args:
        job: the job and the device.
        data: the job's windows on the device.
        variants: `all`, or names and study files with commas between them.
        backends: `all` that the device has, or names with commas between them.
        against: `none`, or libraries with commas between them; None means those that can be
            imported.
        hidden: hidden sizes.
        batch: batch sizes.
        against_everywhere: the libraries run at every pair of sizes.

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
    for pair in pairs if against_everywhere else pairs[:1]:
        for library in libraries:
            contenders += _library(library, files, job, *pair)
    contenders += [
        _ours(file, backend, job, data, *pair)
        for pair in pairs
        for file in files
        for backend in chosen
    ]
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
    known: list[Backend] = [backend for backend in Backend if backend is not Backend.AUTO]
    on_cpu = (Backend.EAGER, Backend.COMPILE)
    there = [backend for backend in known if backend in on_cpu or device.type == "cuda"]
    if backends.strip() == "all":
        return there
    chosen = []
    for name in names(backends, "--backends"):
        if name not in [backend.value for backend in known]:
            raise unknown_name(
                "backend", name, [backend.value for backend in known], more="; or all"
            )
        if Backend(name) not in there:
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


def _ours(
    file: StudyFile, backend: Backend, job: Job, data: DeviceData, hidden: int, batch: int
) -> Contender:
    config = _config(file, backend, job, hidden, batch)
    entry = Entry.of(config, OURS, file.name, backend.value)
    return Ours(job, entry, config, data)


def _config(file: StudyFile, backend: Backend, job: Job, hidden: int, batch: int) -> RunConfig:
    """The file's defaults at these sizes, of which a network may have no hidden size."""
    defaults: Hyperparameters = file.default_hyperparameters()
    hyperparameters = dataclasses.replace(
        defaults,
        hidden_size=None if defaults.hidden_size is None else hidden,
        batch_size=batch,
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
