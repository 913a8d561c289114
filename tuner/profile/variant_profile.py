"""The profile of a training of ours: measured, looked at, and advised."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from tuner.config import Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.devices import CpuCores, Gpu, Watch
from tuner.devices.backend_rules import BackendChoice
from tuner.devices.host import free_memory_bytes
from tuner.errors import TunerError
from tuner.estimate.driven import Running, peak_bytes, reset_peak, running, trained_with, with_batch
from tuner.estimate.whole_estimate import seconds_in_words
from tuner.models.fault import FAULTS, on_one_line
from tuner.profile.profile_records import (
    ADVICE,
    MEMORY,
    OPERATIONS,
    Advice,
    AtBatch,
    Busy,
    Operations,
    Pace,
    Profile,
    Tell,
    of_falling,
    silent,
    told,
)
from tuner.profile.stage_times import NoMemoryError, guarded, measure
from tuner.profile.step_operations import STEPS, busy_during, operations
from tuner.profile.tried_advice import MOST_S, Trials, candidates
from tuner.profile.variant_faults import faults_in
from tuner.training.engines.choose import what_auto_means
from tuner.trial.job import lost_context

# Memory and time against batch size: a few steps at each, and none that could end the process.


FACTORS = (0.5, 1, 2, 4, 8, 16)
COMPILED_FACTORS = (1, 4)
"""Each size is compiled anew, for up to half a minute."""

COMPILING = (Backend.COMPILE, Backend.TRITON)

SIZE_STEPS = 6
SETTLE = 2

SPARE = 0.5
"""Of the host's free memory: what may come to more is not tried on a CPU. No allocation fails there
until it is too late."""

BATCHES = 2
"""That an epoch has to have at least."""


def at_batch_sizes(config: RunConfig, data: DeviceData, ran: Backend) -> Iterator[AtBatch]:
    """Half the batch to sixteen times of it, as far as it fits; the smallest first. With a backend
    that compiles on a GPU (`ran` is the one that the training comes to), two of these.
    """
    batch = config.hyperparameters.batch_size
    compiles = ran in COMPILING and data.minimum.device.type == "cuda"
    factors = COMPILED_FACTORS if compiles else FACTORS
    sizes = sorted({max(1, int(batch * factor)) for factor in factors})
    most = max(batch, len(data.train) // BATCHES)
    found: list[AtBatch] = []
    for size in sizes:
        if size > most or (found and found[-1].failure):
            break
        found.append(_at(config, data, size, found))
        yield found[-1]


def _at(config: RunConfig, data: DeviceData, size: int, before: Sequence[AtBatch]) -> AtBatch:
    if data.minimum.device.type == "cpu" and (expected := _expected(size, before)) is not None:
        free = free_memory_bytes()
        if expected > SPARE * free:
            why = f"not tried: about {expected / 1e9:.1f} GB of {free / 1e9:.1f} GB that are free"
            return AtBatch(size, None, None, why)
    try:
        return _measured(with_batch(config, size), data)
    except NoMemoryError as error:
        failure = f"out of memory: {error}"
    except (TunerError, RuntimeError) as error:
        if lost_context(error):
            raise
        failure = on_one_line(error)
    return AtBatch(size, None, None, failure)


@guarded
def _measured(config: RunConfig, data: DeviceData) -> AtBatch:
    device, batch_size = data.minimum.device, config.hyperparameters.batch_size
    reset_peak(device)
    with running(config, data) as found:
        found.steps(SETTLE)
        took = found.steps(SIZE_STEPS)
        return AtBatch(batch_size, peak_bytes(device), took.seconds / took.windows * batch_size)


def _expected(size: int, before: Sequence[AtBatch]) -> float | None:
    """Bytes beyond what the process holds, as memory has grown with the batch so far."""
    known = [(each.batch_size, each.peak_bytes) for each in before if each.peak_bytes is not None]
    if len(known) < 2:  # noqa: PLR2004 - a line takes two points
        return None
    (small, less), (large, more) = known[-2:]
    return max(0.0, (more - less) / (large - small)) * (size - large)


TRIES = 5
"""Pieces of advice that are usually tried."""

STEPS_OF_A_SIZE = 8


def profile_variant(
    name: str,
    config: RunConfig,
    data: DeviceData,
    device: Gpu | CpuCores,
    *,
    steps: int,
    advice: bool = True,
    trace: Path | None = None,
    announce: Callable[[str], None] = lambda _line: None,
    tell: Tell = silent,
) -> Profile:
    """Where the time of this training goes, and what would help. To be called alone on the device.

    Args:
        name: of the variant, for people.
        config: of the training.
        data: on the device.
        device: the same, as it is watched.
        steps: how many are timed.
        advice: whether advice is tried.
        trace: where one of some steps goes, for chrome://tracing.
        announce: told what is under way, in lines.
        tell: told what there is, each time that more of it is measured.

    Raises:
        UsageError: settings with which no training is possible here.
        TunerError: the training does not fit into memory.
    """
    watch = Watch(device)
    choice = what_auto_means(config, data)
    if choice is not None:  # as the first trial of a study does
        config = trained_with(config, backend=choice.backend)
    announce(f"measuring {steps} steps, and the stages of {steps} more")

    def began(found: Running, step_s: float) -> None:
        announce(_how_long(found, step_s, steps, advice=advice))

    with _told_in_one_line(name, config):
        measured = measure(config, data, steps=steps, began=began)
        pace, left = measured.pace, (OPERATIONS, MEMORY, ADVICE) if advice else (OPERATIONS, MEMORY)
        falling = of_falling(measured.trend, round(pace.windows / pace.batch_size))
        first = replace(
            measured,
            subject=name,
            device=device.model,
            settings=_settings(config, pace, data),
            advice=() if falling is None else (falling,),
            notes=_notes(pace, choice, finite=True),
            left=left,
        )
        now = told(first, watch, tell)
        busy, launched, finite = _inside(config, data, device, steps, trace)
    notes = _notes(pace, choice, finite=finite)
    now = replace(now, operations=launched, busy=busy, notes=notes, left=left[1:])
    now = told(now, watch, tell)
    announce("memory against batch size")
    for row in at_batch_sizes(config, data, Backend(pace.backend)):
        now = told(replace(now, memory=(*now.memory, row)), watch, tell)
    now = told(replace(now, left=now.left[1:]), watch, tell)
    if advice:
        for piece in _advice(config, data, now, steps, announce):
            now = told(replace(now, advice=(*now.advice, piece)), watch, tell)
    return told(replace(now, left=()), watch, tell)


def _how_long(found: Running, step_s: float, steps: int, *, advice: bool) -> str:
    """All of it, by the first steps: they are measured four times over, and at most once or twice
    for each thing that is tried.
    """
    sides = 2 if found.device.type == "cpu" else 1
    tried = min(steps, MOST_S / step_s) * sides * TRIES if advice else 0
    whole_s = (4 * steps + sum(FACTORS) * STEPS_OF_A_SIZE + tried) * step_s
    whole_s += found.setup_s * (2 + len(FACTORS) + (TRIES if advice else 0))
    step, whole = seconds_in_words(step_s), seconds_in_words(whole_s)
    return f"a step takes {step}: all of it about {whole}, with the device to itself"


@contextmanager
def _told_in_one_line(name: str, config: RunConfig) -> Iterator[None]:
    """Whatever a network raises.

    Raises:
        TunerError: it failed, or does not fit into memory.
    """
    try:
        yield
    except NoMemoryError as error:
        size = config.hyperparameters.batch_size
        raise TunerError(
            f"{name} does not fit with batch_size {size}: {error}; choose a smaller one"
        ) from None
    except TunerError:
        raise
    except FAULTS as error:
        raise TunerError(f"{name}: {on_one_line(error)}") from None


def _notes(pace: Pace, choice: BackendChoice | None, *, finite: bool) -> tuple[str, ...]:
    """Why this backend, where it was not asked for; and what makes all of it idle."""
    said = ["" if finite else "the validation loss is no finite number: nothing is learnt here"]
    said.append(pace.fallback)
    if choice is not None:
        said += [choice.reason, choice.measured]
    return tuple(filter(None, said))


def _inside(
    config: RunConfig, data: DeviceData, device: Gpu | CpuCores, wanted: int, trace: Path | None
) -> tuple[Busy, Operations, bool]:
    """What the machine does meanwhile, what a step launches, and whether its loss is a number: in
    steps that nobody times.
    """
    with running(config, data) as found:
        found.steps(STEPS)
        busy = busy_during(lambda: found.steps(wanted), device)
        steps = min(STEPS, max(1, found.n_windows // found.batch_size))
        launched = operations(lambda: found.steps(steps), found.device, steps=steps, trace=trace)
        finite = bool(found.engine.validation_loss().isfinite().all())
    return busy, launched, finite


def _advice(
    config: RunConfig, data: DeviceData, seen: Profile, steps: int, announce: Callable[[str], None]
) -> Iterator[Advice]:
    faults = faults_in(config, data)
    # Side by side on a CPU only: on a GPU nobody else is at work, and memory is short.
    side = running(config, data) if data.minimum.device.type == "cpu" else nullcontext()
    with side as beside:
        trials = Trials(
            config=config,
            data=data,
            seen=seen,
            steps=steps,
            announce=announce,
            faults=faults,
            beside=beside,
        )
        yield from trials.of_faults()
        yield from trials.of_settings(candidates(trials))


def _settings(config: RunConfig, pace: Pace, data: DeviceData) -> dict[str, object]:
    training = config.training
    return {
        "task": data.task.name,
        **config.hyperparameters.as_dict(),
        "backend": pace.backend,
        "precision": training.precision.value,
        "accumulate": config.accumulate,
        "validate_every": training.validate_every,
    }
