"""`tuner worker` on a made-up GPU, whose trials do what the file `plan` says instead of training.
Without torch.

The file holds a letter for each training to come: `x` loses the CUDA context, `t` does so when the
process was told to stop, and at any other all is well. Each training is a line in the file
`trainings`, each process one in `processes`: how many descriptors it found open, and the words that
it was started with. Where there is a file `gone`, the GPU is.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from optuna.trial import TrialState

from tuner import devices
from tuner.cli import main
from tuner.devices import Gpu
from tuner.record import Recorded
from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob

GPU = Gpu(0, "GPU-of-tests", "Example", 0)


class EnginePool:
    """Nobody uses it."""


def run_job(job: TrialJob, data: object, *, engines: EnginePool) -> TrialResult:
    del data, engines
    done, plan = Path("trainings"), Path("plan").read_text()
    trainings = done.read_text().splitlines() if done.exists() else []
    done.write_text("\n".join([*trainings, str(job.number)]))
    letter = plan[len(trainings)]
    if letter == "t":
        os.kill(os.getpid(), signal.SIGTERM)
    if letter in "xt":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return TrialResult(TrialState.COMPLETE, (1.0, 0.5), Recorded(converged=True))


def only_gpu(environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    del environment
    return (GPU,)


def made_up(name: str, what: object) -> ModuleType:
    module = ModuleType(name)
    setattr(module, what.__name__, what)  # type: ignore[attr-defined]
    return module


def load_data(*_: object, **__: object) -> dict[str, object]:
    if Path("gone").exists():
        raise RuntimeError("CUDA error: no CUDA-capable device is detected\nCompile with ...")
    return {}


if __name__ == "__main__":
    inherited = len(list(Path("/proc/self/fd").iterdir()))
    with Path("processes").open("a") as processes:
        processes.write(json.dumps([inherited, sys.argv[1:]]) + "\n")
    devices.list_gpus = only_gpu
    sys.modules |= {
        "tuner.trial.seeds_and_reruns": made_up("tuner.trial.seeds_and_reruns", run_job)
    }
    pool = "tuner.training.engines.pool"
    sys.modules |= {pool: made_up(pool, EnginePool)}
    sys.modules |= {"tuner.trial.device_data": made_up("tuner.trial.device_data", load_data)}
    sys.executable = str(
        Path("python-of-tests").absolute()
    )  # which runs this file, whatever module it is told to
    main()
