"""The process that measures: `python -m tuner.estimate.serve_orders`.

The first line on its standard input says what search and device it is about; each further line is
one configuration to measure, answered by one line. It may die of one: who asks starts another. It
ends when its standard input does.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import time
from pathlib import Path

import torch

from tuner.config import Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import TunerError, first_line
from tuner.estimate.cost_model import MeasuredSize, size_of
from tuner.estimate.driven import Running, give_back, peak_bytes, reset_peak, running, trained_with
from tuner.files.child import Orders
from tuner.models.fault import FAULTS, on_one_line, out_of_memory
from tuner.models.registry import build_model
from tuner.training.engines.choose import what_auto_means

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
    size = size_of(config.hyperparameters.as_dict())
    try:
        return _measured(config, data, timed=timed), True
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
        give_back()
    return MeasuredSize(size=size, failure=message), usable


def _measured(config: RunConfig, data: DeviceData, *, timed: bool) -> MeasuredSize:
    choice = what_auto_means(config, data)
    if choice is not None:
        config = trained_with(config, backend=choice.backend)
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
    device, epoch_s = data.minimum.device, None
    give_back()
    reset_peak(device)
    with running(config, data) as found:
        if or_over_s is None or found.setup_s <= or_over_s:
            epoch_s = _epoch_s(found) if timed else found.steps(1).seconds + found.validate()
            found.between()
        return MeasuredSize(
            size=size_of(config.hyperparameters.as_dict()),
            epoch_s=epoch_s,
            setup_s=found.setup_s,
            peak_bytes=peak_bytes(device),
            backend=found.engine.backend.value,
        )


def _epoch_s(found: Running) -> float:
    """Seconds of a whole epoch, with the part of a validation that falls to each: the median of
    some rounds, in each of which a part of its steps is timed, or all of them.
    """
    every = found.config.training.validate_every
    found.steps(2)
    validation_s = found.validate()
    few = min(STEPS, found.batches)
    likely_s = found.steps(few).seconds / few * found.batches + validation_s
    steps = found.batches if likely_s <= WHOLE_EPOCH_S else few
    began, seen = time.perf_counter(), list[float]()
    while not seen or (len(seen) < ROUNDS and time.perf_counter() - began < MOST_S):
        trained_s = found.steps(steps).seconds * found.batches / steps
        seen.append(trained_s + found.validate() / every)
    return statistics.median(seen)


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
    prepared = prepare(task, data_dir=folder).within(definition.training.data_memory)
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
