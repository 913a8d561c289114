"""`tuner worker` on a made-up GPU, whose trials do what the file `plan` says instead of training.
Without torch.

The file holds a letter for each training to come: `x` loses the CUDA context, `t` does so when the
process was told to stop, and at any other all is well. Each training is a line in the file
`trainings`, each process that trains one in `processes`: who started it. Where there is a file
`gone`, the GPU is.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from optuna.trial import TrialState

from tuner import devices
from tuner.cli import main
from tuner.devices import Gpu
from tuner.record import Recorded
from tuner.storage.records import TrialResult
from tuner.study import data_file
from tuner.trial.job import TrialJob
from tuner.worker import process, trainer

AT_MOST = 2
"""Processes in a row that may lose the device: each takes seconds to start."""
GPU = Gpu(0, "GPU-of-tests", "Example", 0)


def git_revision() -> None:
    pass


class EnginePool:
    """Nobody uses it."""


def run_job(job: TrialJob, data: object, *, engines: EnginePool) -> TrialResult:
    del data, engines
    done, plan = Path("trainings"), Path("plan").read_text()
    trainings = done.read_text().splitlines() if done.exists() else []
    done.write_text("\n".join([*trainings, str(job.number)]))
    letter = plan[len(trainings)]
    if letter == "t":
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(0.5)
    if letter in "xt":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return TrialResult(TrialState.COMPLETE, (1.0, 0.5), Recorded(converged=True))


def only_gpu(environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    del environment
    return (GPU,)


def no_data(*_: object, **__: object) -> SimpleNamespace:
    return SimpleNamespace(data_hash="0" * 64)


def made_up(name: str, *made: Any) -> ModuleType:
    module = ModuleType(name)
    for what in made:
        setattr(module, what.__name__, what)
    return module


def to_device(*_: object) -> None:
    if Path("gone").exists():
        raise RuntimeError("CUDA error: no CUDA-capable device is detected\nCompile with ...")


class DeviceData:
    """What nothing is trained on."""


def train(words: Sequence[str]) -> None:
    """As the real one does, but for what is made up."""
    with Path("processes").open("a") as processes:
        processes.write(f"{os.getppid()}\n")
    for name, *made in (
        ("tuner.trial.seeds_and_reruns", run_job),
        ("tuner.trial.run", git_revision),
        ("tuner.data.windows", to_device, DeviceData),
        ("tuner.training.engines.pool", EnginePool),
    ):
        sys.modules[name] = made_up(name, *made)
    trainer.main(words, lambda: trainer.load_onto)


def work() -> None:
    devices.list_gpus = only_gpu
    process.MAX_RESTARTS = AT_MOST
    vars(data_file)["prepare"] = no_data
    sys.executable = str(
        Path("python-of-tests").absolute()
    )  # which runs this file, whatever module it is told to
    main()


if __name__ == "__main__":
    module = sys.argv.pop(1)
    if "tuner.worker.trainer" in module:
        train(sys.argv[1:])
    else:
        work()
