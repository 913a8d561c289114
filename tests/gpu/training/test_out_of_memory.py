"""Memory that runs out within a capture, with a branch on another stream: in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tuner.config import Backend

pytestmark = pytest.mark.slow
SHORT_OF_MEMORY = """
import os
import sys
import torch
from tuner.training.engines import captured

capture = captured.CapturedEngine._capture

def short_of_memory(engine, stream):
    train_batch = engine._train_batch
    branch = captured.capture_streams(torch.device("cuda", 0))[-1]

    def forked(size):
        train_batch(size)
        branch.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(branch):
            if "unjoined" in os.environ["BRANCH"]:
                torch.ones(1, device="cuda")
            torch.empty(2**46, dtype=torch.uint8, device="cuda")

    engine._train_batch = forked
    capture(engine, stream)

captured.CapturedEngine._capture = short_of_memory
"""

CAPTURED = """
import json
from tuner.config import Architecture, Backend, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.training import fit

backend = Backend(sys.argv[1])
data = to_device(prepare(load_task("demo")), "cuda:0")
sizes = Hyperparameters(
    learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=64, batch_size=256
)
config = RunConfig(
    architecture=Architecture(model="original"),
    hyperparameters=sizes,
    training=TrainingSettings(max_epochs=1, backend=backend),
    seed=0,
)
before = torch.cuda.current_stream()
result = fit(config, data)
print(json.dumps([result.stopped_by, result.message, torch.cuda.current_stream() == before]))
"""


UNJOINED, IDLE = "unjoined", "idle"
"""What the branch has done when memory runs out: a capture that is cut short with work on a branch
cannot end, and its end raises an error of its own; one whose branch has done nothing yet can."""


@pytest.mark.parametrize("branch", [UNJOINED, IDLE])
@pytest.mark.parametrize("backend", [Backend.GRAPH, Backend.TRITON])
def test_memory_that_runs_out_in_a_capture_is_the_reason_of_the_trials_end(
    backend: Backend, branch: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY + CAPTURED, backend.value],
        env=os.environ | {"BRANCH": branch},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    stopped_by, message, same_stream = json.loads(ended.stdout.splitlines()[-1])
    assert stopped_by == "out_of_memory"
    assert "out of memory" in message
    assert same_stream


BENCH = """
from pathlib import Path
from tuner.cli import main
sys.executable = str(Path("python-of-tests").absolute())
main()
"""


@pytest.mark.parametrize("branch", [UNJOINED, IDLE])
def test_a_bench_goes_on_after_a_capture_that_ran_out_of_memory_unless_it_could_not_end(
    tmp_path: Path, branch: str
) -> None:
    script, interpreter = tmp_path / "short.py", tmp_path / "python-of-tests"
    script.write_text(SHORT_OF_MEMORY + BENCH)
    # Without `-m tuner`.
    interpreter.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {script} "$@"\n')
    interpreter.chmod(0o755)
    words = (
        "bench --task demo --gpu 0 --backends graph,eager --against none --hidden 16 "
        "--rounds 1 --epochs 1 --json"
    )
    # Before what is there already: that may be where the dependencies are.
    path = [
        str(REPOSITORY),
        *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    here = os.environ | {"PYTHONPATH": os.pathsep.join(path), "BRANCH": branch}
    ended = subprocess.run(
        [sys.executable, script, *words.split()],
        cwd=tmp_path,
        env=here,
        capture_output=True,
        text=True,
        check=False,
    )
    graph, eager = json.loads(ended.stdout)["results"]
    assert graph["failure"].startswith("out of memory: ")
    if branch == UNJOINED:
        assert ended.returncode == 1, ended.stderr
        assert eager["failure"].endswith("graph, hidden 16, batch 256 left the device unusable")
        return
    assert ended.returncode == 0, ended.stderr
    assert (eager["failure"], eager["rounds"], eager["incomplete"]) == ("", 1, "")
    assert eager["kernels_per_step"] > 20


SHORT_OF_ROOM = """
import json
import sys
import torch
from tuner.config import Architecture, Backend, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.training import fit

data = to_device(prepare(load_task("demo")), "cuda:0")
sizes = Hyperparameters(
    learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=2048, batch_size=2048
)
config = RunConfig(
    architecture=Architecture(model="original"),
    hyperparameters=sizes,
    training=TrainingSettings(max_epochs=1, backend=Backend(sys.argv[1])),
    seed=0,
)
peak = fit(config, data).peak_memory_bytes
torch.cuda.empty_cache()
free, _ = torch.cuda.mem_get_info()
taken = torch.empty(free - int(1.6 * peak), dtype=torch.uint8, device="cuda")
result = fit(config, data)
print(json.dumps([result.stopped_by, result.message, peak, len(taken)]))
"""


def test_a_training_needs_its_memory_once_and_not_again_for_its_capture() -> None:
    """The steps before a capture leave as much as it needs, where it cannot take it from: of all
    captured engines in one place.
    """
    ended = subprocess.run(
        [sys.executable, "-c", SHORT_OF_ROOM, Backend.GRAPH.value],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    stopped_by, message, peak, taken = json.loads(ended.stdout.splitlines()[-1])
    assert (stopped_by, message) == ("epoch_limit", "epoch limit of 1 reached")
    assert peak > 1 << 30, "large beside what else a process takes of a device"
    assert taken > peak
