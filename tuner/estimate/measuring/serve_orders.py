"""The process that measures: `python -m tuner.estimate.measuring.serve_orders`.

The first line on its standard input says what search and device it is about; each further line is
one configuration to measure, answered by one line. It may die of one: who asks starts another. It
ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from tuner.config import Hyperparameters
from tuner.errors import TunerError, first_line
from tuner.estimate.cost_sizes import size_of
from tuner.estimate.size_costs import MeasuredSize
from tuner.models.fault import FAULTS, on_one_line
from tuner.worker.process import end_with


def main() -> None:
    began = time.perf_counter()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a class of the user's may print
    try:
        _serve(began, answers)
    except TunerError as error:
        _tell(answers, {"error": str(error)})
    except FAULTS as error:  # whatever a network raises: it is told in one line
        _tell(answers, {"error": on_one_line(error)})


def _serve(began: float, answers: IO[str]) -> None:
    first = json.loads(sys.stdin.readline())
    end_with(first["parent"], signal.SIGKILL)  # who asks holds the device's lock, and that ends

    import torch

    from tuner.data.prepare import prepare
    from tuner.data.task import Task
    from tuner.data.windows import to_device
    from tuner.estimate.measuring.measure_size import measure_size
    from tuner.models.registry import build_model
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
    _tell(
        answers,
        {
            "windows": len(data.train),
            "torch_version": torch.__version__,
            "start_s": time.perf_counter() - began,
        },
    )
    fresh = True
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        wanted = definition.hyperparameters(order["params"])
        config = run_config(definition, wanted, 0)
        seen = data.seeing(wanted.input_size)
        if order["what"] == "evaluation":
            model = build_model(config.architecture, seen.shapes, config.hyperparameters).to(
                data.minimum.device
            )
            evaluate(model, seen)  # the first waits for what libraries load once
            since = time.perf_counter()
            evaluate(model, seen)
            _tell(answers, {"evaluation_s": time.perf_counter() - since})
            del model
            continue
        if order["what"] == "time":
            found = measure_size(config, seen)
        else:
            if fresh and first["most_bytes"] is not None:  # what libraries take, it has by then
                measure_size(run_config(definition, definition.defaults, 0), data, timed=False)
            fresh = False
            with _at_most(first["most_bytes"]):
                found = _fitted(lambda: measure_size(config, seen, timed=False), wanted)  # noqa: B023
        _tell(answers, dataclasses.asdict(found))


def _fitted(measure: Callable[[], MeasuredSize], wanted: Hyperparameters) -> MeasuredSize:
    """What fails for want of memory may say so in words of its own, as a library's primitive that
    could not be made. The default has been trained by then: it is the size that does not fit.
    """
    try:
        return measure()
    except RuntimeError as error:
        return MeasuredSize(size=size_of(wanted.as_dict()), failure=first_line(error))


@contextlib.contextmanager
def _at_most(most_bytes: int | None) -> Iterator[None]:
    """More than this is refused to this process: else the kernel would end some other one, too."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    if most_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (_taken_bytes() + most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _taken_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return 0


def _tell(answers: IO[str], document: dict[str, Any]) -> None:
    answers.write(json.dumps(document) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
