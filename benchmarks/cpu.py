"""Seconds per epoch of the reference job on a CPU: darts' network, ours, and the floor, side by side.

    python benchmarks/cpu.py --data-dir DIR --threads 2 --output benchmarks/cpu-2-cores

Each contender is a process of its own (an allocator's settings hold for a process) that prepares, then waits. In every
round each in its turn trains some steps and validates; only one works at a time. Reported: medians over the rounds,
scaled to an epoch (all steps of one, and one pass over the validation windows). Contenders:

- darts: the network of darts' TSMixerModel in the plainest PyTorch loop, given ready batches. darts' own `fit` adds its
  DataLoader and Lightning to this; `tuner bench` measures that.
- ours: the engine that `fit` uses on a CPU, all of it.
- floor: nothing but the matrix products that a step of ours makes, one after the other.

Writes OUTPUT.json (every round) and OUTPUT.md (the table). Needs the `bench` extra.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tuner.config import RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import Batch, DeviceData, to_device
from tuner.devices.cpu import available_cores, processor_name
from tuner.models.registry import build_model
from tuner.study import load_study_file
from tuner.training.batching import batches
from tuner.training.eager import EagerEngine

CONTENDERS = ("darts", "ours", "floor")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


class Ours:
    """Steps and validation as `fit` runs them."""

    def __init__(self, data: DeviceData, config: RunConfig, orders: Tensor) -> None:
        self._config, self._orders = config, orders
        self.engine = EagerEngine(config, data, build_model(config.architecture, data.shapes, config.hyperparameters))

    def train(self) -> None:
        self.engine.train_epoch(self._orders, self._config.hyperparameters.learning_rate, lambda: None)

    def validate(self) -> None:
        self.engine.validation_loss()


class Darts:
    """darts' network, loss, Adam and clipping; the batches come from the same gather as ours."""

    def __init__(self, data: DeviceData, config: RunConfig, orders: Tensor) -> None:
        from darts.utils.likelihood_models.torch import QuantileRegression

        self._data, self._orders = data, orders
        self._size = config.hyperparameters.batch_size
        self._likelihood = QuantileRegression(list(data.task.quantiles))
        self.network = darts_network(data, config, self._likelihood)
        self._adam = torch.optim.Adam(self.network.parameters(), lr=config.hyperparameters.learning_rate)

    def _loss(self, batch: Batch) -> Tensor:
        from darts.utils.data.torch_datasets.utils import PLModuleInput

        n_targets = self._data.shapes.n_targets
        inputs = PLModuleInput(
            past_target=batch.past[..., :n_targets],
            past_covariates=None,
            historic_future_covariates=batch.past[..., n_targets:],
            future_covariates=batch.future,
            static_covariates=None if batch.static is None else batch.static.unsqueeze(1),
        )
        prediction = self.network(inputs).prediction
        loss: Tensor = self._likelihood.compute_loss(prediction, batch.target, sample_weight=None)
        return loss

    def train(self) -> None:
        self.network.train()
        for index in batches(self._orders, self._size):
            self._adam.zero_grad()
            self._loss(self._data.train.gather(index)).backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self._adam.step()

    @torch.no_grad()
    def validate(self) -> None:
        self.network.eval()
        for index in batches(torch.arange(len(self._data.val)), self._size):
            self._loss(self._data.val.gather(index))


def darts_network(data: DeviceData, config: RunConfig, likelihood: Any) -> nn.Module:
    """Built by darts' own model class from the shapes of one training sample, as its fit does."""
    from darts.models import TSMixerModel
    from darts.utils.data.torch_datasets.utils import TorchTrainingSample

    logging.getLogger("darts").setLevel(logging.WARNING)
    shapes, h = data.shapes, config.hyperparameters
    model = TSMixerModel(
        input_chunk_length=shapes.input_size,
        output_chunk_length=shapes.horizon,
        hidden_size=h.hidden_size,
        ff_size=h.hidden_size,
        dropout=h.dropout,
        use_reversible_instance_norm=True,
        likelihood=likelihood,
    )

    def zeros(rows: int, columns: int) -> np.ndarray:
        return np.zeros((rows, columns), dtype=np.float32)

    model.train_sample = TorchTrainingSample(
        past_target=zeros(shapes.input_size, shapes.n_targets),
        past_covariates=None,
        historic_future_covariates=zeros(shapes.input_size, shapes.n_future),
        future_covariates=zeros(shapes.horizon, shapes.n_future),
        static_covariates=zeros(1, shapes.n_static),
        future_target=zeros(shapes.horizon, shapes.n_targets),
    )
    network: nn.Module = model._init_model()  # noqa: SLF001 - what its fit calls
    return network


class _Recorder(TorchDispatchMode):
    """Notes the matrix products that run inside, with operands like theirs, to run again."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Callable[[], Tensor]] = []
        self.flop = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in PRODUCTS:
            left, right = args[-2:]
            out = torch.empty_like(result)
            form = torch.bmm if left.dim() == 3 else torch.mm
            # Expanded and transposed operands stay so: the library reads them in place.
            left, right = (t.detach() if 0 in t.stride() else _like(t) for t in (left, right))
            self.products.append(lambda: form(left, right, out=out))
            self.flop += 2 * result.numel() * left.shape[-1]
        return result


def _like(tensor: Tensor) -> Tensor:
    copy = torch.empty_strided(tensor.shape, tensor.stride())
    return copy.copy_(tensor.detach())


class Floor:
    """The products of one step, and of one validation batch, replayed as often as there are steps and batches."""

    def __init__(self, data: DeviceData, config: RunConfig, orders: Tensor) -> None:
        ours = Ours(data, config, orders[: config.hyperparameters.batch_size])
        ours.train()
        with _Recorder() as self._step:
            ours.train()
        self._n_steps = len(list(batches(orders, config.hyperparameters.batch_size)))
        with _Recorder() as self._validation:
            ours.validate()
        self.gflop = self._step.flop / 1e9

    def train(self) -> None:
        for _ in range(self._n_steps):
            for product in self._step.products:
                product()

    def validate(self) -> None:
        for product in self._validation.products:
            product()


def serve(name: str, arguments: argparse.Namespace) -> None:
    """One contender: on every line from the parent, one turn, and its times as a line of JSON."""
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    file = load_study_file(arguments.variant)
    data = to_device(prepare(load_task("etth"), data_dir=arguments.data_dir), "cpu")
    config = RunConfig(
        architecture=file.architecture(),
        hyperparameters=file.default_hyperparameters(),
        training=TrainingSettings(),
    )
    size = config.hyperparameters.batch_size
    orders = torch.randperm(len(data.train))[: arguments.steps * size]
    contender = {"darts": Darts, "ours": Ours, "floor": Floor}[name](data, config, orders)
    contender.train()
    contender.validate()
    n_steps = -(-len(data.train) // size)
    print(json.dumps({"n_steps": n_steps, "gflop": getattr(contender, "gflop", None)}), flush=True)
    for _ in sys.stdin:
        times = []
        for work in (contender.train, contender.validate):
            began, worked = time.perf_counter(), time.process_time()
            work()
            times.append((time.perf_counter() - began, time.process_time() - worked))
        (train, train_cpu), (validate, validate_cpu) = times
        print(
            json.dumps({"train": train, "val": validate, "train_cpu": train_cpu, "val_cpu": validate_cpu}), flush=True
        )


def compete(arguments: argparse.Namespace) -> dict[str, Any]:
    """All contenders in turns; the rounds of each, and what an epoch of each takes."""
    # A thread that waits for the next product spins: with the parent idle, each contender has all its cores.
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    children = {
        name: subprocess.Popen(
            [sys.executable, __file__, *sys.argv[1:], "--contender", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for name in CONTENDERS
    }

    def line(child: subprocess.Popen[str]) -> dict[str, Any]:
        assert child.stdout is not None
        answer = child.stdout.readline()
        if not answer:
            raise SystemExit("a contender failed; its message is above")
        return json.loads(answer)

    try:
        ready = {name: line(child) for name, child in children.items()}
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
        for _ in range(arguments.rounds):
            for name, child in children.items():
                assert child.stdin is not None
                child.stdin.write("go\n")
                child.stdin.flush()
                rounds[name].append(line(child))
    finally:
        for child in children.values():
            child.kill()
            child.wait()
    n_steps = ready["ours"]["n_steps"]
    epochs = {
        name: [n_steps / arguments.steps * turn["train"] + turn["val"] for turn in turns]
        for name, turns in rounds.items()
    }
    return {
        "processor": processor_name(),
        "cores": len(available_cores()),
        "threads": arguments.threads,
        "torch": torch.__version__,
        "variant": arguments.variant,
        "steps_a_turn": arguments.steps,
        "gflop_a_step": ready["floor"]["gflop"],
        "rounds": rounds,
        "s_per_epoch": {name: {"median": statistics.median(e), "best": min(e)} for name, e in epochs.items()},
        "darts_over_ours": {
            "of the medians": statistics.median(epochs["darts"]) / statistics.median(epochs["ours"]),
            "median of the rounds": statistics.median(
                d / o for d, o in zip(epochs["darts"], epochs["ours"], strict=True)
            ),
            "of the best": min(epochs["darts"]) / min(epochs["ours"]),
        },
    }


def table(result: dict[str, Any], arguments: argparse.Namespace) -> str:
    machine = f"{result['processor']}, {result['threads']} threads, torch {result['torch']}"
    lines = [
        f"{result['variant']}, {machine}, {arguments.rounds} rounds of {arguments.steps} steps and a validation pass each.",
        "",
        "| who | s/epoch, median | s/epoch, best | step (ms), median | validation (s), median |",
        "|---|---|---|---|---|",
    ]
    for name, turns in result["rounds"].items():
        s = result["s_per_epoch"][name]
        step = statistics.median(turn["train"] for turn in turns) / arguments.steps * 1e3
        val = statistics.median(turn["val"] for turn in turns)
        lines.append(f"| {name} | {s['median']:.2f} | {s['best']:.2f} | {step:.1f} | {val:.2f} |")
    ratios = ", ".join(f"{value:.2f} ({name})" for name, value in result["darts_over_ours"].items())
    return "\n".join(
        [*lines, "", f"darts over ours: {ratios}. Products of a step: {result['gflop_a_step']:.2f} GFLOP."]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--variant", default="original")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        serve(arguments.contender, arguments)
        return
    result = compete(arguments)
    text = table(result, arguments)
    print(text)
    if arguments.output:
        arguments.output.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        arguments.output.with_suffix(".md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
