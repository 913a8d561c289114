"""Seconds per epoch of the reference job on a CPU: darts' network, our two engines, and the floor, side by side.

    python benchmarks/cpu/cpu.py --data-dir DIR --threads 2 --output OUT/2-cores

Each contender is a process of its own (an allocator's settings hold for a process) that prepares, then waits. In every
round each in its turn trains some steps and validates; only one works at a time. Reported: medians over the rounds,
scaled to an epoch (all steps of one, and one pass over the validation windows). Contenders:

- darts: the network of darts' TSMixerModel in the plainest PyTorch loop, given ready batches. darts' own `fit` adds its
  DataLoader and Lightning to this; `tuner bench` measures that.
- eager: our engine of PyTorch's operations, all of it.
- compile: the one with C++ kernels between the products, which `auto` takes at these sizes, all of it.
- floor: nothing but the matrix products that an eager step makes, one after the other.

Writes OUTPUT.json (every round) and OUTPUT.md (the table). Needs the `bench` extra.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.cpu.contenders import CONTENDERS
from benchmarks.shared.data_folder import add_data_dir
from tuner.config import RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.devices.cpu import available_cores, processor_name
from tuner.spec.study_file import load_study_file


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
    contender = CONTENDERS[name](data, config, orders)
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
            json.dumps(
                {"train": train, "val": validate, "train_cpu": train_cpu, "val_cpu": validate_cpu}
            ),
            flush=True,
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
    return _result(arguments, ready, rounds)


def _result(
    arguments: argparse.Namespace,
    ready: dict[str, dict[str, Any]],
    rounds: dict[str, list[dict[str, float]]],
) -> dict[str, Any]:
    n_steps = ready["eager"]["n_steps"]
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
        "s_per_epoch": {
            name: {"median": statistics.median(e), "best": min(e)} for name, e in epochs.items()
        },
        "ratios": {
            f"{slow} over {fast}": _ratios(epochs[slow], epochs[fast])
            for slow, fast in (("darts", "eager"), ("darts", "compile"), ("eager", "compile"))
        },
    }


def _ratios(slow: list[float], fast: list[float]) -> dict[str, float]:
    return {
        "of the medians": statistics.median(slow) / statistics.median(fast),
        "median of the rounds": statistics.median(s / f for s, f in zip(slow, fast, strict=True)),
        "of the best": min(slow) / min(fast),
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
    ratios = [
        f"{pair}: " + ", ".join(f"{value:.2f} ({name})" for name, value in found.items()) + "."
        for pair, found in result["ratios"].items()
    ]
    return "\n".join(
        [*lines, "", *ratios, f"Products of a step: {result['gflop_a_step']:.2f} GFLOP."]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
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
        arguments.output.with_suffix(".json").write_text(
            json.dumps(result, indent=1) + "\n", encoding="utf-8"
        )
        arguments.output.with_suffix(".md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
