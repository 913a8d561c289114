"""The options of `tuner bench`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import Cpu, DataDir, Json, OneGpu, TaskName
from tuner.cli.replace import Force
from tuner.config import Precision

DEFAULT_OUTPUT = Path("storage/bench")
LADDER_OUTPUT = Path("storage/ladder")
TRAIN_BUDGET_S = 600.0
HIDDEN, BATCH, BACKENDS = "64", "256", "all"
"""Of a bench where nobody says others; a ladder has no use for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """The options of `tuner bench`; the hidden one is for itself in a fresh process."""

    task: TaskName = "etth"
    data_dir: DataDir = None
    variants: Annotated[str, typer.Option(metavar="NAME[,NAME]|all", help="Variants to run.")] = (
        "original"
    )
    backends: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]|all", help=f"Our backends to run [{BACKENDS}]."),
    ] = None
    against: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME]|none", help="darts, neuralforecast (those installed), or none."
        ),
    ] = None
    against_everywhere: Annotated[
        bool,
        typer.Option("--against-everywhere", help="Run these at all sizes, not only at the first."),
    ] = False
    hidden: Annotated[
        str | None, typer.Option(metavar="N[,N]", help=f"Hidden sizes [{HIDDEN}].")
    ] = None
    batch: Annotated[str | None, typer.Option(metavar="N[,N]", help=f"Batch sizes [{BATCH}].")] = (
        None
    )
    precision: Annotated[Precision, typer.Option(help="Arithmetic of all contenders.")] = (
        Precision.FP32
    )
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Counted turns of each contender.")
    ] = 3
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Counted epochs in a turn.")] = 3
    gpu: OneGpu = None
    cpu: Cpu = False
    ladder: Annotated[
        bool,
        typer.Option(
            "--ladder",
            help="One variant in fp32 and plain operations, then one setting after the other.",
        ),
    ] = False
    ladder_batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The ladder's larger batch (default: 4 times the usual).",
        ),
    ] = None
    train: Annotated[
        int,
        typer.Option(
            min=0, metavar="SEEDS", help="Train the ladder's rungs to convergence, so often each."
        ),
    ] = 0
    train_budget: Annotated[
        float, typer.Option(min=0.0, metavar="S", help="Seconds for all these trainings.")
    ] = TRAIN_BUDGET_S
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help=f"Where results.csv and results.md go ({DEFAULT_OUTPUT}, of a ladder "
            f"{LADDER_OUTPUT}).",
        ),
    ] = None
    force: Force = False
    json: Json = False
    carried: Annotated[int | None, typer.Option(hidden=True)] = None

    @property
    def folder(self) -> Path:
        """Where its files go."""
        return self.output or (LADDER_OUTPUT if self.ladder else DEFAULT_OUTPUT)
