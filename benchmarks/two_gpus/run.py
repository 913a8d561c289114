"""Two GPUs that train one network together (`gpus_per_trial = 2`), beside one of them.

    python benchmarks/two_gpus/run.py --data-dir DIR --output OUT/h200

For Time-LLM at GPT-2's width (as benchmarks/time_llm makes it) and for the reference job's `original`: the gradient of a batch on
two GPUs held against the one on one GPU (norm of the difference over the norm, fp32, no dropout), and
against that of the same two halves one after the other on one GPU, since a frozen model's bf16 depends on how many rows go at once; samples a second on one and
on two, in turns. Then a launch on both GPUs whose processes are killed at random moments, `--kills` (5) times: how many results
there are, what is still leased, which processes are left. Writes OUTPUT.md and OUTPUT.json after each part. `--quick`: a dry run,
on two sets of the CPU's cores.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import torch
from sqlalchemy import select

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import QUICK, circumstances, heading, write
from benchmarks.shared.data_folder import add_data_dir
from benchmarks.time_llm.run import write_gpt2, write_study, write_task
from tuner.config import Backend, Precision, RunConfig
from tuner.data.prepare import PreparedData, prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.devices import CpuCores, list_gpus
from tuner.devices.group import grouped
from tuner.models.registry import build_model
from tuner.spec.study_file import load_study_file
from tuner.storage.database import open_database
from tuner.storage.schema import device_leases
from tuner.storage.url import absolute, parse_url
from tuner.study.open import open_study
from tuner.training.clock import arithmetic, seeded, synchronizer
from tuner.training.engines.choose import make_engine
from tuner.training.engines.eager import EagerEngine
from tuner.training.engines.ranks import Ranks

ROUNDS = 5
EPOCH_LIMIT = 60


@contextlib.contextmanager
def engine_of(
    config: RunConfig, data: DeviceData, ranks: Ranks | None
) -> Iterator[tuple[torch.nn.Module, EagerEngine]]:
    """On one device, or on several; warmed up."""
    device = data.minimum.device
    with arithmetic(config.training.precision), seeded(5, device):
        model = build_model(config.architecture, data.shapes, config.hyperparameters).to(device)
        made = make_engine(config, data, model, ranks)
        assert isinstance(made, EagerEngine)
        made.warm_up()
        yield model, made
        made.close()


def gradient(config: RunConfig, data: DeviceData, ranks: Ranks | None) -> list[torch.Tensor]:
    """Of one batch, by parameter."""
    size = config.hyperparameters.batch_size * config.accumulate
    order = torch.arange(size, device=data.minimum.device)
    with engine_of(config, data, ranks) as (model, engine):
        engine.train_epoch(order, 1e-3, lambda: None)
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        return [each.detach().clone() for each in grads]


def samples_s(
    config: RunConfig, data: DeviceData, ranks: Ranks | None, steps: int
) -> tuple[float, str]:
    """Windows a second over so many steps, after as many to warm up."""
    size = config.hyperparameters.batch_size
    device = data.minimum.device
    order = torch.arange(steps * size, device=device) % len(data.train)
    synchronize = synchronizer(device)
    with engine_of(config, data, ranks) as (_, engine):
        took = []
        for _ in range(3):
            synchronize()
            began = time.perf_counter()
            engine.train_epoch(order, 1e-4, lambda: None)
            synchronize()
            took.append(time.perf_counter() - began)
        return len(order) / min(took[1:]), engine.backend.value


def case(
    name: str, config: RunConfig, prepared: PreparedData, data: DeviceData, pair: Any, steps: int
) -> dict[str, Any]:
    """Gradient and samples a second of one network."""
    training = config.training.but(precision=Precision.FP32, gradient_clip=1e9)
    sizes = dataclasses.replace(config.hyperparameters, dropout=0.0)
    exact = dataclasses.replace(config, training=training, hyperparameters=sizes)
    on_two = dataclasses.replace(exact, training=training.but(gpus_per_trial=2))
    halves = dataclasses.replace(
        exact,
        training=training.but(accumulate=2),
        hyperparameters=dataclasses.replace(sizes, batch_size=sizes.batch_size // 2),
    )
    ranks = Ranks(pair, {prepared.data_hash: prepared})
    alone = gradient(exact, data, None)
    rates: dict[str, list[float]] = {"one": [], "two": []}
    with ranks.at_work():
        whole = torch.cat([each.reshape(-1) for each in alone])
        both = torch.cat([each.reshape(-1) for each in gradient(on_two, data, ranks)])
        parted = torch.cat([each.reshape(-1) for each in gradient(halves, data, None)])
        off = float((whole - both).norm() / whole.norm())
        together = dataclasses.replace(config, training=config.training.but(gpus_per_trial=2))
        for _ in range(ROUNDS):
            rates["one"].append(samples_s(config, data, None, steps)[0])
            rates["two"].append(samples_s(together, data, ranks, steps)[0])
    ranks.close()
    ratios = [two / one for one, two in zip(rates["one"], rates["two"], strict=True)]
    found = {
        "network": name,
        "batch": config.hyperparameters.batch_size,
        "precision": config.training.precision.value,
        "gradient_off": off,
        "halves_off": float((parted - both).norm() / parted.norm()),
        "one_per_s": statistics.median(rates["one"]),
        "two_per_s": statistics.median(rates["two"]),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }
    print(found, file=sys.stderr, flush=True)
    return found


def kills(count: int, devices: list[str], data_dir: Path | None, task: str) -> dict[str, Any]:
    """A launch of one trial on both devices, of which a process is killed so often."""
    chance = random.Random(66)
    with tempfile.TemporaryDirectory() as made:
        url = f"sqlite:///{made}/kills.db"
        command = [sys.executable, "-m", "tuner", "launch", "--variant", "original"]
        command += ["--task", task, "--storage", url, "--trials", "1", "--no-estimate", *devices]
        command += ["--set", "gpus_per_trial=2", "--max-epochs", str(EPOCH_LIMIT)]
        command += ["--checkpoint-every", "2s"]
        if data_dir is not None:
            command += ["--data-dir", str(data_dir)]
        seen: dict[int, psutil.Process] = {}
        said: list[str] = []
        done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(count):
            victim = _victim(done, chance, seen)
            if victim is None:
                break
            time.sleep(chance.uniform(0.5, 4.0))
            with contextlib.suppress(psutil.Error):
                words = " ".join(victim.cmdline())
                said.append("rank" if "ranks" in words else "worker")
                victim.send_signal(signal.SIGKILL)
        output = done.communicate(timeout=300)[0].decode()
        with contextlib.closing(open_database(absolute(parse_url(url)), create=False)) as database:
            study = open_study(database, f"{Path(task).stem}-original")
            trials = study.optuna.get_trials(deepcopy=False)
            with database.engine.connect() as connection:
                leases = connection.execute(select(device_leases)).all()
        time.sleep(1)
        left = [pid for pid, each in seen.items() if each.is_running() and _lives(each)]
    found = {
        "killed": said,
        "code": done.returncode,
        "trials": [each.state.name for each in trials],
        "epochs": [each.user_attrs.get("epochs") for each in trials],
        "leases_left": len(leases),
        "processes_left": len(left),
        "last_lines": output.strip().splitlines()[-3:],
    }
    print(found, file=sys.stderr, flush=True)
    return found


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _victim(
    launch: subprocess.Popen[bytes], chance: random.Random, seen: dict[int, psutil.Process]
) -> psutil.Process | None:
    """A worker or a second rank once there is one of either; None once the launch is over."""
    while launch.poll() is None:
        with contextlib.suppress(psutil.Error):
            ranks = []
            workers = []
            for each in psutil.Process(launch.pid).children(recursive=True):
                seen[each.pid] = each
                words = " ".join(each.cmdline())
                if "tuner.training.engines.ranks" in words:
                    ranks.append(each)
                elif "tuner" in words:
                    workers.append(each)
            if ranks and workers:
                return chance.choice([ranks[0], psutil.Process(ranks[0].ppid())])
        time.sleep(0.05)
    return None


def table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| network | batch | precision | gradient off by | of the same halves on one GPU | samples/s, one GPU | two | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["cases"]:
        lines.append(
            f"| {row['network']} | {row['batch']} | {row['precision']} | {row['gradient_off']:.1e} | {row['halves_off']:.1e} | "
            f"{row['one_per_s']:,.0f} | {row['two_per_s']:,.0f} | {row['ratio']:.2f} |"
        )
    for each in found.get("kills", []):
        lines += ["", f"Kills: {json.dumps(each)}"]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="without a suffix")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    add_data_dir(parser)
    options = parser.parse_args()
    quick = options.quick
    if quick:
        torch.set_num_threads(1)
        cores = sorted(os.sched_getaffinity(0))
        pair = grouped([CpuCores((cores[0],)), CpuCores((cores[-1],))], 2)[0]
        name = "CPU"
    else:
        gpus = list_gpus(os.environ)
        pair, name = grouped(gpus[:2], 2)[0], f"2 x {gpus[0].name}"
    device = "cpu" if quick else "cuda:0"
    found: dict[str, Any] = {"cases": []}

    def note() -> None:
        found.update(circumstances(name))
        write(options.output, found, [*heading(found), *table(found)])

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_gpt2(folder / "gpt2", quick=quick)
        study = write_study(folder, quick=quick)
        task = str(QUICK / "quick.toml") if quick else str(write_task(folder, options.data_dir))
        file = load_study_file(str(study))
        prepared = prepare(load_task(task))
        base = RunConfig(
            architecture=file.architecture(),
            hyperparameters=file.default_hyperparameters(),
            training=file.training,
        )
        data = to_device(prepared, device)
        cases = [(16, Precision.FP32)] if quick else [(32, Precision.FP32), (128, Precision.BF16)]
        for size, precision in cases:
            sizes = dataclasses.replace(base.hyperparameters, batch_size=size)
            config = dataclasses.replace(
                base, hyperparameters=sizes, training=base.training.but(precision=precision)
            )
            steps = 2 if quick else 15
            found["cases"].append(case("Time-LLM", config, prepared, data, pair, steps))
            note()
    job = "demo" if quick else "etth"
    original = load_study_file("original")
    prepared = prepare(load_task(job), data_dir=options.data_dir)
    data = to_device(prepared, device)
    for hidden, size in [(64, 256)] if quick else [(64, 256), (1024, 1024)]:
        sizes = dataclasses.replace(
            original.default_hyperparameters(), hidden_size=hidden, batch_size=size
        )
        config = RunConfig(
            architecture=original.architecture(), hyperparameters=sizes, training=original.training
        )
        config = dataclasses.replace(config, training=config.training.but(backend=Backend.EAGER))
        found["cases"].append(
            case(f"original, {hidden} wide", config, prepared, data, pair, 2 if quick else 20)
        )
        note()
    where = ["--cpu", "--workers", "2"] if quick else ["--gpus", "0,1"]
    found["kills"] = [kills(options.kills, where, options.data_dir, job)]
    note()


if __name__ == "__main__":
    main()
