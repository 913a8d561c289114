"""Time-LLM at GPT-2's real width: what a batch takes, what each change to it brings, and a small search.

    python benchmarks/time_llm/run.py --data-dir DIR --output OUT/h200

A GPT-2 of random weights (768 wide, 6 layers, 12 heads, 50,257 words) and a tokenizer trained on the repository's own pages are
written to a folder beside the result: the arithmetic is that of the real ones, what it forecasts is not. Of ETTh1 the rows are
taken that make 2,000 training windows, 96 -> 96, all seven columns.

First the ladder, cumulated: seconds a batch, seconds an epoch, most memory, validation loss after one epoch. Then a search of
`--trials` (20), three epochs each. Writes OUTPUT.md and OUTPUT.json after each part. It needs `tuner[llm]`. `--quick`: a dry run on
the CPU, with a model of two narrow layers on 300 rows; `--no-search`: the ladder alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import QUICK, circumstances, heading, tuner, write
from benchmarks.shared.data_folder import add_data_dir
from tuner.config import Backend, Precision, RunConfig, StopReason
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.models.registry import build_model
from tuner.spec.study_file import load_study_file, studies_folder
from tuner.training.clock import arithmetic, seeded, synchronizer
from tuner.training.engines.choose import make_engine
from tuner.training.fit import fit

REPOSITORY = Path(__file__).parents[2]
ROWS = 3652
"""Of ETTh1: 60 % of them, 2,191 rows, are 2,000 windows of 96 + 96."""
REPORTED_S = 0.2744
"""The guide's seconds a batch of 32, in full precision."""
STEPS = 20
TASK = """name = "etth1-96"
target_columns = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
frequency = "h"
input_size = 96
horizon = 96

[source]
kind = "csv"
path = "ETTh1.csv"
time_column = "date"
"""

Change = Callable[[RunConfig], RunConfig]


def write_gpt2(folder: Path, *, quick: bool) -> None:
    """Random weights, from a fixed seed, and a byte-level tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = (
        {"n_embd": 32, "n_layer": 2, "n_head": 2}
        if quick
        else {"n_embd": 768, "n_layer": 6, "n_head": 12}
    )
    words = 512 if quick else 50257
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=words, initial_alphabet=letters, show_progress=False)
    tokenizer.train([str(each) for each in sorted(REPOSITORY.glob("docs/*.md"))], trainer)
    torch.manual_seed(0)
    GPT2LMHeadModel(
        GPT2Config(vocab_size=words, bos_token_id=0, eos_token_id=0, **sizes)
    ).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))


def write_study(folder: Path, *, quick: bool) -> Path:
    """A copy of the built-in study file that names the model beside it."""
    text = (studies_folder() / "time-llm.toml").read_text(encoding="utf-8")
    text = text.replace("[model_settings]", '[model_settings]\nfolder = "gpt2"', 1)
    if quick:
        text = text.replace("llm_layers = 6", "llm_layers = 2").replace(
            "low = 3\nhigh = 6", "low = 1\nhigh = 2"
        )
        text = text.replace('high = 128\nreason = "the width', 'high = 32\nreason = "the width')
        text = text.replace("n_prototypes = 1000", "n_prototypes = 20")
    path = folder / "time-llm.toml"
    path.write_text(text, encoding="utf-8")
    return path


def write_task(folder: Path, data_dir: Path) -> Path:
    """The task, and as many rows as it takes."""
    lines = (data_dir / "ETTh1.csv").read_text(encoding="utf-8").splitlines()[: ROWS + 1]
    (folder / "ETTh1.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = folder / "etth1-96.toml"
    path.write_text(TASK, encoding="utf-8")
    return path


def _training(**settings: Any) -> Change:
    return lambda c: dataclasses.replace(c, training=c.training.but(**settings))


def _batch(size: int) -> Change:
    return lambda c: dataclasses.replace(
        c, hyperparameters=dataclasses.replace(c.hyperparameters, batch_size=size)
    )


def _layers(count: int) -> Change:
    def changed(c: RunConfig) -> RunConfig:
        own = {**c.hyperparameters.own, "llm_layers": count}
        return dataclasses.replace(
            c, hyperparameters=dataclasses.replace(c.hyperparameters, own=own)
        )

    return changed


def rungs(*, quick: bool) -> Iterator[tuple[str, bool, Change]]:
    """Of each change: its name, whether the later ones are on top of it, and what it changes. What makes a training slower or
    cannot be (recomputing, compiling) stands for itself.
    """
    yield "as it was: fp32 around bf16, batch 32, 6 layers", True, lambda c: c
    yield "TF32", True, _training(precision=Precision.TF32 if not quick else Precision.FP32)
    yield "bf16", True, _training(precision=Precision.BF16)
    yield "batch 64", True, _batch(64)
    yield "batch 128", True, _batch(128)
    yield "accumulate 4", False, _training(accumulate=4)
    yield "activations computed again", False, _training(checkpoint_activations=True)
    yield "compiled", False, _training(backend=Backend.COMPILE if not quick else Backend.EAGER)
    yield "validation every 2nd epoch", False, _training(validate_every=2)
    for count in (1,) if quick else (4, 3):
        yield f"{count} layers", True, _layers(count)


def batch_s(config: RunConfig, data: DeviceData) -> float:
    """Seconds of a training step, after warm-up."""
    device = data.minimum.device
    synchronize = synchronizer(device)
    with arithmetic(config.training.precision), seeded(0, device):
        model = build_model(config.architecture, data.shapes, config.hyperparameters).to(device)
        engine = make_engine(config, data, model)
        engine.warm_up()
        order = torch.arange(len(data.train), device=device)
        size = config.hyperparameters.batch_size * config.accumulate
        steps = max(1, min(STEPS if device.type == "cuda" else 2, len(order) // size))
        left = [0]

        def poll() -> StopReason | None:
            left[0] -= 1
            return StopReason.INTERRUPTED if left[0] <= 0 else None

        took = []
        for _ in range(3):  # the first one also makes the prompts
            left[0] = steps
            synchronize()
            began = time.perf_counter()
            engine.train_epoch(order, config.hyperparameters.learning_rate, poll)
            synchronize()
            took.append((time.perf_counter() - began) / steps)
        engine.close()
    return min(took)


def ladder(base: RunConfig, data: DeviceData, *, quick: bool) -> Iterator[dict[str, Any]]:
    """A row for each rung; what cannot be says why."""
    so_far = base
    for name, stays, change in rungs(quick=quick):
        config = change(so_far)
        row: dict[str, Any] = {
            "rung": name,
            "batch": config.hyperparameters.batch_size,
            "windows_a_step": config.hyperparameters.batch_size * config.accumulate,
        }
        try:
            row["batch_s"] = batch_s(config, data)
            result = fit(config, data)
            for field in (
                "s_per_epoch",
                "setup_s",
                "peak_memory_bytes",
                "best_val_loss",
                "n_parameters",
                "n_frozen",
            ):
                row[field] = getattr(result, field)
            row["ended"] = result.message
            row["backend"] = f"{result.backend.value} {result.backend_fallback}".strip()
            so_far = config if stays else so_far
        except Exception as error:  # noqa: BLE001 - it is reported
            row["failure"] = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"{time.strftime('%H:%M:%S')} {row}", file=sys.stderr, flush=True)
        yield row


def table(found: dict[str, Any]) -> list[str]:
    """The result in Markdown."""
    lines = [
        f"Reported elsewhere: {REPORTED_S} s a batch of 32, fp32.",
        "",
        "| rung | s/step | windows/s | s/epoch | peak MiB | validation loss | backend |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["ladder"]:
        if "failure" in row:
            lines.append(f"| {row['rung']} | {row['failure']} | | | | | |")
            continue
        lines.append(
            f"| {row['rung']} | {row['batch_s']:.4f} | {row['windows_a_step'] / row['batch_s']:,.0f} | {row['s_per_epoch']:.2f} | "
            f"{row['peak_memory_bytes'] / 2**20:,.0f} | {row['best_val_loss']:.4f} | {row['backend']} |"
        )
    if "search" in found:
        lines += ["", "The search:", "", "```", found["search"].strip(), "```"]
    return lines


def search(study: Path, task: str, trials: int, *, quick: bool) -> str:
    """What the launch prints at its end."""
    place = ["--cpu", "--workers=1"] if quick else ["--gpus=0"]
    place += [
        f"--variant={study}",
        f"--task={task}",
        f"--storage=sqlite:///{study.parent}/search.db",
    ]
    limits = [
        f"--trials={trials}",
        f"--max-epochs={1 if quick else 3}",
        "--mql-split=val",
        "--reruns=0",
    ]
    return tuner("launch", *place, *limits, "--no-estimate", output=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="without a suffix")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--no-search", action="store_true")
    parser.add_argument("--quick", action="store_true")
    add_data_dir(parser)
    options = parser.parse_args()
    if options.quick:  # beside other work more of them wait for each other
        torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_gpt2(folder / "gpt2", quick=options.quick)
        study = write_study(folder, quick=options.quick)
        task = (
            str(QUICK / "quick.toml")
            if options.quick
            else str(write_task(folder, options.data_dir))
        )
        device = "cpu" if options.quick else "cuda"
        data = to_device(prepare(load_task(task)), device)
        file = load_study_file(str(study))
        base = RunConfig(
            architecture=file.architecture(),
            hyperparameters=file.default_hyperparameters(),
            training=file.training.but(max_epochs=1),
        )
        name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
        found: dict[str, Any] = {"windows": len(data.train), "ladder": []}
        for row in ladder(base, data, quick=options.quick):
            found["ladder"].append(row)
        found |= circumstances(name)
        write(options.output, found, [*heading(found), *table(found)])
        if not options.no_search:
            found["search"] = search(
                study, task, 1 if options.quick else options.trials, quick=options.quick
            )
            found |= circumstances(name)
            write(options.output, found, [*heading(found), *table(found)])


if __name__ == "__main__":
    main()
