"""A network a detector, one for all, or one with a head each: what a step takes, how busy the GPU is, and what each forecasts.

    python benchmarks/social_xlstm/run.py --output OUT/h200

64 generated detectors (generate.py), one GPU, some seven minutes. For each variant, at its defaults: milliseconds a training step,
captured and eager; then one trial of each, as `tuner launch` runs it, but for as many seconds as there are: its `gpu_busy`, memory,
and the MQL of its best epoch. Last, a small retune of the shared network against the loop on three of the days, with copies of both
study files that stop after four epochs without gain; its report is OUTPUT.html.

Writes OUTPUT.md and OUTPUT.json as soon as the trials are done, and again after the retune. `--quick`: a dry run on the CPU, where
nothing is captured; `--no-retune`: without the last part; `--only-retune`: that part alone, beside the figures of OUTPUT.json.
`--groups`: only what a step takes of the loop, of groups of 1, 4, 8 and 16 detectors, and of one shared encoder, in three rounds; on
one thread of the CPU where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import circumstances, heading, tuner, write
from benchmarks.social_xlstm import generate
from tuner.config import Backend, RunConfig, StopReason, TrainingSettings
from tuner.data.prepare import PreparedData, prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.devices import CpuCores, Gpu, list_gpus
from tuner.devices.cpu import available_cores, processor_name
from tuner.models.names import LOOP, SHARED, social_names
from tuner.models.registry import build_model
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file, studies_folder
from tuner.training.baselines.plain import score_baselines
from tuner.training.clock import arithmetic, seeded, synchronizer
from tuner.training.engines.choose import make_engine
from tuner.trial.job import TimeLeft
from tuner.trial.run import run_trial

STEPS, LEAST, MOST_S = 100, 3, 2.0
"""Timed of each; fewer where they take longer than that together."""
ENDLESS = 1_000_000
GROUPS, GROUP_SIZES, ROUNDS = "social-xlstm-groups", (1, 4, 8, 16), 3
RETUNED_PATIENCE, RETUNED_DAYS = 4, 3


def step_ms(variant: str, backend: Backend, data: DeviceData, **own: Any) -> dict[str, Any]:
    """Milliseconds of a training step at the variant's defaults but for `own`, and the seconds before the first one."""
    file, device = load_study_file(variant), data.minimum.device
    training, defaults = TrainingSettings(backend=backend), file.default_hyperparameters()
    config = RunConfig(
        architecture=file.architecture(),
        hyperparameters=replace(defaults, own={**defaults.own, **own}),
        training=training,
    )
    synchronize = synchronizer(device)
    with arithmetic(training.precision), seeded(0, device) as shuffles:
        model = build_model(config.architecture, data.shapes, config.hyperparameters).to(device)
        engine = make_engine(config, data, model)
        began = time.perf_counter()
        engine.warm_up()
        synchronize()
        setup_s = time.perf_counter() - began
        order = torch.randperm(len(data.train), generator=shuffles, device=device)
        in_epoch = math.ceil(len(order) / config.hyperparameters.batch_size)

        def steps(wanted: int) -> float:
            """Seconds of so many, at most an epoch."""
            left = [wanted]

            def poll() -> StopReason | None:
                left[0] -= 1
                return StopReason.INTERRUPTED if left[0] <= 0 else None

            synchronize()
            first = time.perf_counter()
            engine.train_epoch(order, config.hyperparameters.learning_rate, poll)
            synchronize()
            return time.perf_counter() - first

        few = min(LEAST, in_epoch)
        each = steps(few) / few
        wanted = max(few, min(STEPS, in_epoch, int(MOST_S / each)))
        each = min(steps(wanted), steps(wanted)) / wanted
        engine.close()
    return {"ms": 1e3 * each, "setup_s": setup_s, "steps_in_epoch": in_epoch}


def trial(
    variant: str,
    backend: Backend,
    prepared: PreparedData,
    data: DeviceData,
    device: Gpu | CpuCores,
    seconds: float,
) -> dict[str, Any]:
    """What is recorded of a trial at the variant's defaults."""
    file = load_study_file(variant)
    # Whatever it converges to, it goes on: NVML's figure takes seconds.
    training = file.training.but(backend=backend, max_epochs=ENDLESS, patience=ENDLESS)
    definition = StudyDefinition.of(
        file,
        task=prepared.task.definition(),
        data_hash=prepared.data_hash,
        training=training,
        mql_split="val",
    )
    result = run_trial(
        definition,
        definition.defaults,
        0,
        data,
        device,
        on_epoch=lambda _epoch: None,
        should_stop=lambda: None,
        left=TimeLeft(seconds),
    )
    assert result is not None, "nobody interrupts it"
    recorded = result.recorded
    names = (
        "gpu_busy", "cpu_busy", "test_mql_mean", "val_mql", "epochs", "best_epoch", "converged", "stopped_by", "s_per_epoch",
        "setup_s", "samples_per_s", "peak_memory_bytes", "n_parameters", "backend", "cell", "failure",
    )  # fmt: skip
    found = {name: getattr(recorded, name) for name in names}
    plain = score_baselines(data)
    found["baseline_test_mql"] = {name: each.scores.test_mql_mean for name, each in plain.items()}
    return found


def measured(
    prepared: PreparedData, data: DeviceData, device: Gpu | CpuCores, seconds: dict[Backend, float]
) -> list[dict[str, Any]]:
    """Each variant under each backend; what fails says why, and the others go on."""
    found = []
    for variant in social_names():
        for backend, limit in seconds.items():
            row: dict[str, Any] = {"variant": variant, "backend": backend.value}
            try:
                row |= {"step": step_ms(variant, backend, data)}
                row |= {"trial": trial(variant, backend, prepared, data, device, limit)}
            except Exception as error:  # noqa: BLE001 - it is reported
                row["failure"] = f"{type(error).__name__}: {error}".splitlines()[0]
            print(f"{time.strftime('%H:%M:%S')} {row}", file=sys.stderr, flush=True)
            found.append(row)
    return found


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The result in Markdown."""
    baselines = next((row["trial"]["baseline_test_mql"] for row in rows if "trial" in row), {})
    told = ", ".join(f"{name} {mql:.3f}" for name, mql in baselines.items())
    lines = [
        f"Without a network, test MQL: {told}.",
        "",
        "| variant | backend | ms/step | steps/epoch | set-up s | GPU busy | test MQL | epochs | ended | parameters | peak MiB | cell |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        name = f"| {row['variant']} | {row['backend']} |"
        if "failure" in row:
            lines.append(f"{name} {row['failure']} " + "| " * 10 + "|")
            continue
        step, its = row["step"], row["trial"]
        busy = "-" if its["gpu_busy"] is None else f"{100 * its['gpu_busy']:.0f} %"
        mql = "-" if its["test_mql_mean"] is None else f"{its['test_mql_mean']:.3f}"
        memory = (
            "-" if its["peak_memory_bytes"] is None else f"{its['peak_memory_bytes'] / 2**20:,.0f}"
        )
        lines.append(
            f"{name} {step['ms']:.2f} | {step['steps_in_epoch']} | {step['setup_s']:.1f} | {busy} | {mql} | {its['epochs']} | "
            f"{its['stopped_by']} | {its['n_parameters']:,} | {memory} | {its['cell']} |"
        )
    return lines


def retune(output: Path, task: Path, *, quick: bool, seconds: float) -> str:
    """The verdict of a small retune of the shared network against the loop, as it is printed."""
    studies = {}
    for variant in (SHARED, LOOP):
        text = (studies_folder() / f"{variant}.toml").read_text()
        copy = task.parent / f"{variant}.toml"
        copy.write_text(text.replace("patience = 10", f"patience = {RETUNED_PATIENCE}"))
        studies[variant] = copy
    size = ["--searches=1", "--top=1", "--reruns=0", "--no-estimate", "--force"]
    if quick:
        size += ["--cpu", "--workers=1", "--trials=1", "--max-epochs=1", "--confirm-seeds=1"]
    else:
        size += ["--gpus=0", "--trials=13", "--confirm-seeds=3", "--backend=graph", "--no-prune"]
        size += [f"--timeout={seconds:.0f}s"]
    try:
        return tuner(
            "retune",
            f"--variant={studies[SHARED]}",
            f"--against={studies[LOOP]}",
            f"--task={task}",
            f"--storage=sqlite:///{task.parent}/retune.db",
            f"--html={output}.html",
            *size,
            output=True,
        )
    except SystemExit as ended:  # by its time limit, as a rule: what was measured before stays
        return f"The retune ended before its verdict, with code {ended.code}."


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--detectors", type=int, default=64)
    parser.add_argument("--days", type=int, default=28)
    parser.add_argument("--retune-seconds", type=float, default=300.0)
    parser.add_argument("--no-retune", action="store_true", help="only what comes before it")
    parser.add_argument("--only-retune", action="store_true", help="what comes before it is done")
    parser.add_argument("--groups", action="store_true", help="only steps, from loop to shared")
    parser.add_argument("--quick", action="store_true", help="a dry run on the CPU")
    options = parser.parse_args(arguments)
    if options.groups:
        measure_groups(options)
    elif options.no_retune:
        measure(options)
    elif options.only_retune:
        add_retune(options)
    else:
        # In a process of its own: one that still held the GPU would disturb the retune's clock.
        given = list(sys.argv[1:] if arguments is None else arguments)
        subprocess.run([sys.executable, __file__, *given, "--no-retune"], check=True)
        add_retune(options)
    print(Path(f"{options.output}.md").read_text())


def measure_groups(options: argparse.Namespace) -> None:
    """What a step takes from the loop to the shared network, the fastest of some rounds in turns."""
    gpu = torch.cuda.is_available() and not options.quick
    if not gpu:
        torch.set_num_threads(1)
    forms: list[tuple[str, dict[str, Any]]] = [(LOOP, {})]
    forms += [(GROUPS, {"group_size": size}) for size in GROUP_SIZES] + [(SHARED, {})]
    with tempfile.TemporaryDirectory() as folder:
        task = road(options, Path(folder), RETUNED_DAYS)
        prepared = prepare(load_task(str(task)), cache_dir=Path(folder) / "prepared")
    data = to_device(prepared, "cuda" if gpu else "cpu")
    backends = [Backend.EAGER, Backend.GRAPH] if gpu else [Backend.EAGER]
    found: dict[str, dict[str, list[float]]] = {}
    load = os.getloadavg()[0]
    for _ in range(1 if options.quick else ROUNDS):
        for variant, own in forms:
            named = f"{variant} {own['group_size']}" if own else variant
            for backend in backends:
                took = step_ms(variant, backend, data, **own)["ms"]
                found.setdefault(named, {}).setdefault(backend.value, []).append(took)
    where = circumstances(
        torch.cuda.get_device_name() if gpu else f"{processor_name()}, one thread"
    )
    lines = [*heading(where), f"{prepared.shapes.n_targets} detectors, load before {load:.2f}.", ""]
    columns = " | ".join(f"ms/step, {backend.value}" for backend in backends)
    lines += [f"| variant | {columns} |", "|---|" + "---|" * len(backends)]
    for named, rounds in found.items():
        lines.append(f"| {named} | {' | '.join(f'{min(took):.2f}' for took in rounds.values())} |")
    write(options.output, where | {"load": load, "steps": found}, lines)


def measure(options: argparse.Namespace) -> None:
    """All but the retune."""
    device: Gpu | CpuCores = CpuCores(available_cores())
    seconds = {Backend.EAGER: 0.5}
    if not options.quick:
        device, seconds = list_gpus(os.environ)[0], {Backend.GRAPH: 12.0, Backend.EAGER: 6.0}
    with tempfile.TemporaryDirectory() as folder:
        task = road(options, Path(folder), options.days)
        prepared = prepare(load_task(str(task)), cache_dir=Path(folder) / "prepared")
        data = to_device(prepared, "cpu" if options.quick else "cuda")
        found = measured(prepared, data, device, seconds)
    where = circumstances("CPU" if options.quick else torch.cuda.get_device_name())
    write(options.output, where | {"variants": found}, [*heading(where), *table(found)])


def add_retune(options: argparse.Namespace) -> None:
    """The retune's verdict, below what was measured."""
    document = json.loads(Path(f"{options.output}.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        task = road(options, Path(folder), RETUNED_DAYS)
        verdict = retune(options.output, task, quick=options.quick, seconds=options.retune_seconds)
    where = circumstances(document["device"])
    lines = [*heading(document), *table(document["variants"]), "", "The retune:", ""]
    lines += [*heading(where), "```", verdict.rstrip(), "```"]
    write(options.output, document | {"verdict": verdict, "retune": where}, lines)


def road(options: argparse.Namespace, folder: Path, days: int) -> Path:
    """The task file of so many days; a few hours of four detectors in a dry run."""
    if options.quick:
        return generate.write(folder, detectors=4, rows=300, input_size=8, horizon=3)
    return generate.write(folder, detectors=options.detectors, rows=days * generate.A_DAY)


if __name__ == "__main__":
    main()
