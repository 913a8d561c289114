"""What `auto` is measured to mean for variants on a GPU, and what measuring it takes.

    PYTHONPATH=. python benchmarks/neuralforecast_classes/auto_choices.py --data-dir DIR --output OUT/auto

Each variant at its own defaults and at other batch sizes; each choice is made anew, in one process.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.shared.circumstances import circumstances, heading, write
from benchmarks.shared.data_folder import add_data_dir
from tuner.config import RunConfig
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.spec.study_file import load_study_file
from tuner.training.engines.measure import what_auto_means

VARIANTS = "nf-tcn,nf-tsmixerx,nf-patchtst,nf-itransformer,nf-nhits"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", default=VARIANTS)
    parser.add_argument("--batch", default="256", help="batch sizes beside a variant's own")
    parser.add_argument("--task", default="etth")
    add_data_dir(parser)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    data = to_device(prepare(load_task(given.task), data_dir=given.data_dir), "cuda:0")
    found = []
    for name in given.variants.split(","):
        found += measured(name, [int(size) for size in given.batch.split(",")], data)
    where = circumstances(torch.cuda.get_device_name())
    write(given.output, {"circumstances": where, "choices": found}, table(found, where))


def measured(name: str, batches: list[int], data: DeviceData) -> list[dict[str, Any]]:
    file = load_study_file(name)
    defaults = file.default_hyperparameters()
    found = []
    for batch in sorted({defaults.batch_size, *batches}):
        config = RunConfig(
            architecture=file.architecture(),
            hyperparameters=replace(defaults, batch_size=batch),
            training=file.training_settings(),
            seed=0,
        )
        began = time.perf_counter()
        choice = what_auto_means(config, data)
        took_s = time.perf_counter() - began
        assert choice is not None, "a GPU, auto, and a network that is not built in"
        found.append({"variant": name, "batch": batch, "took_s": took_s, **asdict(choice)})
        print(found[-1], flush=True)
    return found


def table(found: list[dict[str, Any]], where: dict[str, Any]) -> list[str]:
    lines = [
        "# What `auto` means, measured",
        "",
        *heading(where),
        "| variant | batch | `auto` | an epoch, graph | eager | compile | measured in |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    for each in found:
        seconds = [each["epoch_s"].get(name) for name in ("graph", "eager", "compile")]
        cells = ["" if s is None else f"{s:.3f} s" for s in seconds]
        lines.append(
            f"| {each['variant']} | {each['batch']} | {each['backend']} | {' | '.join(cells)} | {each['took_s']:.1f} s |"
        )
    return lines


if __name__ == "__main__":
    main()
