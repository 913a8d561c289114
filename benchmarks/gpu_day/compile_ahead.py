"""Compile what a search will need, all sizes side by side: a machine with many cores then starts warm in a minute.

    python benchmarks/gpu_day/compile_ahead.py --data-dir DIR --variants original,rmsnorm --backend triton

A worker compiles a size when it first meets it, on one core: 30 to 50 s a hidden size and variant with the fused kernels.
This sets up one engine for each size of the reference job, a process for each variant and hidden size, and throws them
away; what was compiled stays on disk where Triton and torch look for it (TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR).
Nothing is timed. `--quick` is a dry run on the CPU, where nothing is compiled.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import QUICK
from benchmarks.shared.data_folder import add_data_dir
from tuner.config import Backend, RunConfig
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.spec.study_file import load_study_file
from tuner.training.clock import arithmetic, seeded
from tuner.training.engines.choose import make_engine

HIDDEN = (256, 128, 64, 32)
"""The longest to compile first."""
BATCH = (64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one process compiles: all batch sizes of a variant's network of this width."""

    variant: str
    hidden: int

    @property
    def label(self) -> str:
        return f"{Path(self.variant).stem}, hidden {self.hidden}"


def compile_all(sizes: Sizes, options: argparse.Namespace) -> None:
    """In a process of its own: set up an engine for each batch size, and close it."""
    file = load_study_file(sizes.variant)
    data = to_device(prepare(load_task(options.task), data_dir=options.data_dir), options.device)
    for batch in options.batch:
        hyperparameters = replace(
            file.default_hyperparameters(), hidden_size=sizes.hidden, batch_size=batch
        )
        training = file.training.but(backend=options.backend)
        config = RunConfig(
            architecture=file.architecture(),
            hyperparameters=hyperparameters,
            training=training,
            seed=0,
        )
        with arithmetic(training.precision), seeded(0, data.minimum.device):
            model = build_model(config.architecture, data.shapes, hyperparameters).to(
                options.device
            )
            engine = make_engine(config, data, model)
            if engine.fallback:
                print(
                    f"{sizes.label}: nothing to compile, it runs as {engine.backend.value}: {engine.fallback}"
                )
                return
            engine.warm_up()
            engine.close()


def in_a_process(sizes: Sizes, arguments: Sequence[str]) -> int:
    """Its exit code; one core each, for they run side by side."""
    began = time.monotonic()
    command = [sys.executable, __file__, *arguments, "--child", sizes.variant, str(sizes.hidden)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    code = subprocess.run(command, env=environment, check=False).returncode
    print(
        f"{sizes.label}: {'done' if code == 0 else f'exit code {code}'} after {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return code


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split(","))

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    parser.add_argument("--variants", default="all")
    parser.add_argument("--backend", type=Backend, default=Backend.TRITON)
    parser.add_argument("--hidden", type=numbers, default=HIDDEN)
    parser.add_argument("--batch", type=numbers, default=BATCH)
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at the same time")
    parser.add_argument("--quick", action="store_true", help="a dry run on the CPU")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.task, options.device = "etth", "cuda"
    if options.variants == "all":
        options.variants = ",".join(builtin_names())
    if options.quick:
        options.task, options.device, options.backend = (
            str(QUICK / "quick.toml"),
            "cpu",
            Backend.EAGER,
        )
        options.variants, options.hidden, options.batch = (
            str(QUICK / "small-original.toml"),
            (8,),
            (32,),
        )
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(given)
    if options.child:
        variant, hidden = options.child
        compile_all(Sizes(variant, int(hidden)), options)
        return
    jobs = [
        Sizes(variant, hidden)
        for hidden in options.hidden
        for variant in options.variants.split(",")
    ]
    with ThreadPoolExecutor(options.processes) as pool:
        codes = list(pool.map(lambda sizes: in_a_process(sizes, given), jobs))
    if failed := sum(code != 0 for code in codes):
        raise SystemExit(f"{failed} of {len(jobs)} failed; their messages are above")


if __name__ == "__main__":
    main()
