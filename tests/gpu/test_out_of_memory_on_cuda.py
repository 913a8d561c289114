"""Memory that runs out in the middle of a capture, with a branch on another stream: in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tuner.config import Backend

CAPTURED = """
import json, sys
import torch
from tuner.config import Architecture, Backend, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.training import captured, fit

backend = Backend(sys.argv[1])
branch = captured.capture_streams(torch.device("cuda", 0))[-1]
capture = captured.CapturedEngine._capture

def short_of_memory(engine, stream):
    train_batch = engine._train_batch

    def forked(size):
        train_batch(size)
        branch.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(branch):
            torch.empty(2**46, dtype=torch.uint8, device="cuda")

    engine._train_batch = forked
    capture(engine, stream)

captured.CapturedEngine._capture = short_of_memory
data = to_device(prepare(load_task("demo")), "cuda:0")
sizes = Hyperparameters(learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=64, batch_size=256)
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


@pytest.mark.parametrize("backend", [Backend.GRAPH, Backend.TRITON])
def test_memory_that_runs_out_in_a_capture_is_the_reason_of_the_trials_end(backend: Backend) -> None:
    ended = subprocess.run([sys.executable, "-c", CAPTURED, backend.value], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    stopped_by, message, same_stream = json.loads(ended.stdout.splitlines()[-1])
    assert stopped_by == "out_of_memory"
    assert "out of memory" in message
    assert same_stream
