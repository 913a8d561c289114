"""The process that measures: `python -m tuner.estimate.serve_orders`.

The first line on its standard input says what search and device it is about; each further line is
one configuration to measure, answered by one line. It may die of one: who asks starts another. It
ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tuner.config import Backend, RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.errors import TunerError, first_line
from tuner.estimate.cost_model import size_of, steps_of_epoch
from tuner.estimate.size_costs import MeasuredSize
from tuner.files.child import Orders
from tuner.models.fault import FAULTS, on_one_line, out_of_memory
from tuner.models.registry import build_model
from tuner.training.clock import arithmetic, seeded, synchronizer
from tuner.training.engines.choose import make_engine, what_auto_means
from tuner.training.engines.eager import Engine
from tuner.training.fit import check_settings
from tuner.training.run_state import peak_memory_of_process

# What an epoch of one size takes, from some of its batches; and what memory.


STEPS, ROUNDS = 10, 3
"""Batches that are timed in each round; the middle round counts."""
WHOLE_EPOCH_S = 0.25
"""An epoch up to so long is timed whole: a few batches of it would be lost in what starts them."""
MOST_S = 3.0
"""For the rounds of one size, as far as whole rounds allow it."""
AGAIN_S = 0.5
"""A set-up that takes longer is made twice: kernels may have been built, once for all trainings of
this size."""
COMPILED = (Backend.TRITON.value, Backend.COMPILE.value)
PEAK_RESET = Path("/proc/self/clear_refs")


def measure_size(
    config: RunConfig, data: DeviceData, *, timed: bool = True
) -> tuple[MeasuredSize, bool]:
    """And whether this process can measure another. Nothing of it is left on the device.

    Args:
        config: of a training; the backend is what `auto` would take.
        data: on its device.
        timed: else one step is made, and its validation, to see whether that fits.

    Raises:
        UsageError: settings or an architecture that cannot be trained.
    """
    check_settings(config, data.shapes)
    size = size_of(config.hyperparameters.as_dict())
    try:
        return _measured(_with_backend(config, data), data, timed=timed), True
    except Exception as error:
        reason = out_of_memory(error)
        if reason is None:
            # A library may say in words of its own that a size is too large for it.
            if timed or not isinstance(error, RuntimeError):
                raise
            reason = error
        # Else torch takes a capture to be still under way.
        message, usable = first_line(reason), reason is error
    # Only out here are the frames gone, and with them what they held.
    if usable:
        _give_back(data.minimum.device)
    return MeasuredSize(size=size, failure=message), usable


def _with_backend(config: RunConfig, data: DeviceData) -> RunConfig:
    choice = what_auto_means(config, data)
    if choice is None:
        return config
    training = config.training.but(backend=choice.backend)
    return dataclasses.replace(config, training=training)


def _measured(config: RunConfig, data: DeviceData, *, timed: bool) -> MeasuredSize:
    found = _set_up_and_measured(config, data, timed=timed, or_over_s=AGAIN_S if timed else None)
    if found.fits:
        return found
    again = _set_up_and_measured(config, data, timed=True)
    if again.backend not in COMPILED:
        return again
    return dataclasses.replace(again, built_s=max(0.0, found.setup_s - again.setup_s))


def _set_up_and_measured(
    config: RunConfig, data: DeviceData, *, timed: bool, or_over_s: float | None = None
) -> MeasuredSize:
    """Where the set-up takes over `or_over_s`, that alone."""
    device = data.minimum.device
    synchronize = synchronizer(device)
    _give_back(device)
    _reset_peak(device)
    began = time.perf_counter()
    with arithmetic(config.training.precision), seeded(config.seed, device) as generator:
        order = torch.randperm(len(data.train), generator=generator, device=device)
        model = build_model(config.architecture, data.shapes, config.hyperparameters)
        engine = make_engine(config, data, model.to(device))
        try:
            engine.warm_up()
            best = engine.snapshot()
            synchronize()
            setup_s = time.perf_counter() - began
            epoch_s = None
            if or_over_s is None or setup_s <= or_over_s:
                epoch = _Epoch(config, engine, order, synchronize)
                epoch_s = epoch.seconds() if timed else epoch.of_steps(1)
                best.take(engine.model)
                del epoch
            found = MeasuredSize(
                size=size_of(config.hyperparameters.as_dict()),
                epoch_s=epoch_s,
                setup_s=setup_s,
                peak_bytes=_peak(device),
                backend=engine.backend.value,
            )
        finally:
            engine.close()
    del engine, model, best, order
    _give_back(device)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Epoch:
    """Epochs of one engine, whole or in part."""

    config: RunConfig
    engine: Engine
    order: torch.Tensor
    synchronize: Callable[[], None]

    def seconds(self) -> float:
        """Of a whole epoch, with the part of a validation that falls to each. A step is an update
        by all batches that it accumulates.
        """
        windows = self.config.hyperparameters.batch_size * self.config.accumulate
        updates = steps_of_epoch(len(self.order), windows)
        every = self.config.training.validate_every
        self.of_steps(min(2, updates))
        validation_s = self._timed(self.engine.validation_loss)
        few = min(STEPS, updates)
        steps_s = self._timed(lambda: self._train(few))
        whole = steps_s / few * updates + validation_s <= WHOLE_EPOCH_S or few == updates
        if whole and every == 1:
            return self._rounds(lambda: self.of_steps(updates))
        few = updates if whole else few
        trained_s = self._rounds(lambda: self._timed(lambda: self._train(few)))
        return trained_s * updates / few + validation_s / every

    def of_steps(self, steps: int) -> float:
        """Seconds of so many steps and a validation, with the wait for both losses."""

        def epoch() -> None:
            trained = self._train(steps)
            torch.stack([trained / max(steps, 1), self.engine.validation_loss()]).tolist()

        return self._timed(epoch)

    def _rounds(self, work: Callable[[], float]) -> float:
        began, seen = time.perf_counter(), [work()]
        while len(seen) < ROUNDS and time.perf_counter() - began < MOST_S:
            seen.append(work())
        return sorted(seen)[len(seen) // 2]

    def _train(self, steps: int) -> torch.Tensor:
        left = [steps]

        def poll() -> StopReason | None:
            left[0] -= 1
            return StopReason.INTERRUPTED if left[0] <= 0 else None

        rate = self.config.hyperparameters.learning_rate
        return self.engine.train_epoch(self.order, rate, poll).loss_sum

    def _timed(self, work: Callable[[], object]) -> float:
        self.synchronize()
        began = time.perf_counter()
        work()
        self.synchronize()
        return time.perf_counter() - began


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):  # not Linux: then it is the most that the process ever took
        PEAK_RESET.write_text("5")


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_memory_of_process()


def _give_back(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def main() -> None:
    began = time.perf_counter()
    orders = Orders(int(sys.argv[1]))  # who asks holds the device's lock, and that ends with it
    try:
        _serve(began, orders)
    except TunerError as error:
        orders.answer({"error": str(error)})
    except FAULTS as error:  # whatever a network raises: it is told in one line
        orders.answer({"error": on_one_line(error)})


def _serve(began: float, orders: Orders) -> None:
    told = iter(orders)
    first = next(told)

    from tuner.data.prepare import prepare
    from tuner.data.task import Task
    from tuner.data.windows import to_device
    from tuner.spec.definition import StudyDefinition
    from tuner.training.evaluate import evaluate
    from tuner.trial.run import run_config

    definition = StudyDefinition.from_dict(first["definition"])
    task = Task.model_validate_json(json.dumps(first["task"]))
    folder = None if first["data_dir"] is None else Path(first["data_dir"])
    prepared = prepare(task, data_dir=folder)
    if first["cores"]:
        torch.set_num_threads(len(first["cores"]))
    data = to_device(prepared, "cpu" if first["cores"] else "cuda:0")
    ready = {"windows": len(data.train), "torch_version": torch.__version__}
    orders.answer(ready | {"start_s": time.perf_counter() - began})
    for order in told:
        wanted = definition.hyperparameters(order["params"])
        config = run_config(definition, wanted, 0)
        seen = data.seeing(wanted.input_size)
        if order["what"] == "evaluation":
            model = build_model(config.architecture, seen.shapes, config.hyperparameters)
            model = model.to(data.minimum.device)
            evaluate(model, seen)  # the first waits for what libraries load once
            since = time.perf_counter()
            evaluate(model, seen)
            orders.answer({"evaluation_s": time.perf_counter() - since})
            del model
            continue
        found, usable = measure_size(config, seen, timed=order["what"] == "time")
        orders.answer({"measured": dataclasses.asdict(found), "usable": usable})


if __name__ == "__main__":
    main()
