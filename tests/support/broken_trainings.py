"""Launches whose first trial goes wrong in training, as a user's own network would, and whose
second is well.

Shared by the CPU's test and the CUDA device's: on the latter an index out of range is an assertion
in a kernel, after which the process cannot use the device any more.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.present import present
from tuner.api import load_data, load_study
from tuner.config import Hyperparameters
from tuner.spec.membership import seed_of_trial
from tuner.storage.database import open_database
from tuner.storage.queue.claims import stints
from tuner.storage.url import parse_url
from tuner.study.open import open_study
from tuner.study.results import TrialRecord
from tuner.training import evaluate, fit
from tuner.trial.run import run_config

ENDS = {"index": "error", "memory": "out_of_memory", "nan": "diverged"}
"""The ways to break, and how a trial ends that does."""
PATIENCE_S = 250

NETWORK = """
import os
from pathlib import Path

import torch
from torch import nn

there = set(os.environ) | {
    each.partition("=")[0] for each in Path("/proc/self/environ").read_text().split("\\0")
}
with Path(__file__).with_name("seen").open("a") as seen:
    seen.write(f"{sorted(there & {'TUNER_STORAGE', 'PGPASSWORD'})}\\n")


class Fragile(nn.Module):
    '''Breaks in training where dropout is exactly 0.5, as `kind` says; else a plain network.'''

    def __init__(self, shapes, *, hidden_size, dropout, kind):
        super().__init__()
        self.shapes, self.kind, self.breaks = shapes, kind, dropout == 0.5
        n_out = shapes.horizon * shapes.n_targets * shapes.n_quantiles
        columns = shapes.n_targets + shapes.n_past + shapes.n_future
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(shapes.input_size * columns, hidden_size),
            nn.Dropout(dropout), nn.ReLU(),
            nn.Linear(hidden_size, n_out),
        )

    def forward(self, past, future, static):
        s = self.shapes
        out = self.layers(past).view(-1, s.horizon, s.n_targets, s.n_quantiles)
        if not self.breaks or not self.training or len(past) <= 32:  # passes the launch's check
            return out
        if self.kind == "index":
            rows = torch.full((len(past),), 10**6, dtype=torch.int64, device=past.device)
            return out + self.layers[1].bias[rows].mean()
        if self.kind == "memory":
            return out + torch.empty(2**50, device=past.device).mean()
        return out * float("nan")
"""

STUDY = """
name = "fragile-{kind}"
core_change = "breaks on purpose"
model = "fragile.py:Fragile"

[model_settings]
kind = "{kind}"

[defaults]
learning_rate = 1e-3
weight_decay = 0.0
dropout = 0.5
hidden_size = 16
batch_size = 128

[space]
learning_rate = {{ low = 1e-4, high = 1e-2, scale = "log" }}
weight_decay = {{ low = 1e-6, high = 1e-2, scale = "log", zero = true }}
dropout = {{ low = 0.0, high = 0.5 }}
hidden_size = {{ low = 16, high = 16 }}
batch_size = {{ low = 128, high = 128 }}

[training]
max_epochs = 3
"""

TASK = """
name = "tiny"
target_columns = ["a", "b"]
frequency = "h"
input_size = 12
horizon = 3
quantiles = [0.1, 0.5, 0.9]
eval_quantiles = [0.1, 0.5, 0.9]

[source]
kind = "demo"
rows = 400
"""


@dataclass(frozen=True, slots=True)
class Launched:
    """A study of two trials: their records, who ran each, and what the second comes to in a
    training of its own."""

    broken: TrialRecord
    sound: TrialRecord
    workers: tuple[str, str]
    clean: tuple[float, float]
    """Validation loss and test MQL."""


def launch_all(
    folder: Path, place: tuple[str, ...], device: str, *, kinds: tuple[str, ...] = tuple(ENDS)
) -> dict[str, Launched]:
    """One launch of one worker for these kinds, a study each; by kind."""
    (folder / "fragile.py").write_text(NETWORK)
    (folder / "tiny.toml").write_text(TASK)
    for kind in kinds:
        (folder / f"{kind}.toml").write_text(STUDY.format(kind=kind))
    storage = f"sqlite:///{folder}/tuner.db"
    variants = ",".join(str(folder / f"{kind}.toml") for kind in kinds)
    options = [
        "--task",
        str(folder / "tiny.toml"),
        "--trials",
        "2",
        "--sampler",
        "random",
        "--sampler-seed",
        "0",
    ]
    command = [
        sys.executable,
        "-m",
        "tuner",
        "launch",
        "--variant",
        variants,
        *options,
        "--reruns",
        "0",
        *place,
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder), "TUNER_STORAGE": storage, "PGPASSWORD": "secret"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {
        kind: _launched(f"tiny-fragile-{kind}", storage, folder / "tiny.toml", device)
        for kind in kinds
    }


def _launched(name: str, storage: str, task: Path, device: str) -> Launched:
    broken, sound = load_study(name, storage=storage).records
    database = open_database(parse_url(storage), create=False)
    try:
        opened = open_study(database, name)
        # A trial that was made ready beside the first is handed back where that takes the device's
        # context with it: whoever had it last trained it.
        last = {each.trial_number: each.worker for each in stints(database.engine, opened.study_id)}
        config = run_config(
            opened.definition,
            Hyperparameters.of(sound.params),
            seed_of_trial(sound.number, root=opened.membership.seed_root),
        )
    finally:
        database.close()
    data = load_data(str(task), device=device)
    result = fit(config, data)
    assert result.model is not None
    return Launched(
        broken,
        sound,
        (last[broken.number], last[sound.number]),
        (result.best_val_loss, evaluate(result.model, data).test_mql_mean),
    )


def check_all(launched: dict[str, Launched]) -> None:
    """What holds on every device: the first trial ended with its reason, the second is what it is
    without the first."""
    for kind, each in launched.items():
        assert each.broken.recorded.stopped_by == ENDS[kind]
        assert each.broken.state.name == "FAIL"
        assert each.broken.recorded.failure
        assert "\n" not in each.broken.recorded.failure
        assert each.sound.state.name == "COMPLETE"
        sound = each.sound.recorded
        found = present(sound.val_loss), present(sound.test_mql_mean)
        assert all(abs(a / b - 1) < 1e-6 for a, b in zip(found, each.clean, strict=True)), (
            found,
            each.clean,
        )
