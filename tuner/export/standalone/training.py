"""The protocol's training in one function, number for number what the tuner's own does: same seed,
same network.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tuner.data.series import Series
from tuner.export.standalone.forecast_file import check_new, write_forecasts
from tuner.export.standalone.script_step import Job, ScriptStep, batches
from tuner.export.standalone.windows_of_series import (
    Data,
    Split,
    data_hash,
    gather,
    prepare,
    read_or_leave,
)
from tuner.training.quantile_loss import mean_quantile_loss_per_window
from tuner.training.rearrangement import rearranged

SCORED_AT_ONCE = 512


class Trained(NamedTuple):
    """How a training went; the model has the weights of its best epoch."""

    model: nn.Module
    stopped_by: str
    epochs: int
    best_epoch: int
    val_loss: float
    wall_clock_s: float


class Scores(NamedTuple):
    """Mean quantile loss in original units, by series and over all forecasts."""

    by_series: dict[str, float]
    mean: float


Build = Callable[..., nn.Module]
"""(job, shapes) -> an untrained network."""


def run(
    job: Job,
    read_series: Callable[[str | None], list[Series]],
    build: Build,
    *,
    scale_of: Callable[[torch.device], Any] | None = None,
    checkpointed: Callable[[nn.Module], Any] | None = None,
    term_of: Callable[[Mapping[str, Any], Data], Any] | None = None,
) -> None:
    """Train with every seed of the job and print how it went.

    `scale_of`, `checkpointed` and `term_of` are what fp16, activation checkpointing and a term of
    the training loss take.
    """
    parser = argparse.ArgumentParser(description="Train one configuration and print its test MQL.")
    parser.add_argument(
        "data", nargs="?", help="the task's CSV, or the folder with ETTh1.csv and ETTh2.csv"
    )
    parser.add_argument("--device", default="cpu", help="cpu (default), or cuda")
    parser.add_argument(
        "--forecasts", type=Path, metavar="FILE.csv", help="write the test split's forecasts here"
    )
    arguments = parser.parse_args()
    check_new(arguments.forecasts)
    device = device_or_leave(parser, arguments.device)
    if job.threads and arguments.device == "cpu":
        torch.set_num_threads(job.threads)  # as the trial had: sums in another order are other sums
    series = read_or_leave(job.task, read_series, arguments.data)
    if data_hash(job.task, series) != job.data_hash:
        print("WARNING: this is not the data that the configuration was found on")  # noqa: T201
    data = prepare(job.task, series, device, job.input_size)
    found: list[Scores] = []
    forecasts: dict[int, Tensor] = {}
    term = None if term_of is None else term_of(job.task, data)
    for seed in job.seeds:
        trained = train(job, data, build, seed, scale_of, checkpointed, term)
        val, test = (score(job, data, split, trained.model) for split in (data.val, data.test))
        print(f"seed {seed}: {trained.stopped_by} after {trained.epochs} epochs", end=", ")  # noqa: T201
        print(f"{trained.wall_clock_s:.2f} s, validation loss {trained.val_loss:.6f}")  # noqa: T201
        for name, mql in test.by_series.items():
            print(f"  {name}: test MQL {mql:.6f}, validation MQL {val.by_series[name]:.6f}")  # noqa: T201
        print(f"  all forecasts: test MQL {test.mean:.6f}, validation MQL {val.mean:.6f}")  # noqa: T201
        found.append(test)
        if arguments.forecasts is not None:
            forecasts[seed] = forecast(data, data.test, trained.model)
    if forecasts:
        write_forecasts(arguments.forecasts, job.task, data, forecasts)
    if len(found) > 1:  # a trial of several seeds has their medians
        for name in data.names:
            median = statistics.median(scores.by_series[name] for scores in found)
            print(f"median of {len(found)} seeds, {name}: test MQL {median:.6f}")  # noqa: T201


def device_or_leave(parser: argparse.ArgumentParser, name: str) -> torch.device:
    """The device of this name; one that torch cannot use ends the script with a line."""
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        why = str(error).partition("\n")[0].rstrip(".")
        parser.error(f"--device {name!r}: {why}; say cuda where torch sees a GPU, or leave it out")


def train(
    job: Job,
    data: Data,
    build: Build,
    seed: int,
    scale_of: Callable[[torch.device], Any] | None = None,
    checkpointed: Callable[[nn.Module], Any] | None = None,
    term: Callable[..., Tensor] | None = None,
) -> Trained:
    """AdamW on the quantile loss, and the term where there is one, until the validation loss stops
    falling; the best epoch's weights are kept.
    """
    device = data.minimum.device
    set_arithmetic("tf32" if job.precision == "tf32" else "ieee")
    torch.manual_seed(seed)
    shuffles = torch.Generator(device).manual_seed(int(torch.randint(2**62, (), dtype=torch.int64)))
    model = build(job, data.shapes).to(device)
    step = ScriptStep(job, data, model, scale_of, checkpointed, term)
    rate, lowest, best_epoch, best = job.learning_rate, math.inf, 0, copy_of(model)
    reference, waited, stopped_by = math.inf, 0, "epoch_limit"
    validated = 0
    began = time.perf_counter()
    for epoch in range(1, job.max_epochs + 1):
        model.train()
        order = torch.randperm(len(data.train.starts), generator=shuffles, device=device)
        step.train_on(order, rate)
        rate *= job.learning_rate_decay
        if epoch % job.validate_every and epoch < job.max_epochs:
            continue
        model.eval()
        val_loss = step.validation_loss()
        if not math.isfinite(val_loss):
            stopped_by = "diverged"
            break
        if val_loss < lowest:
            lowest, best_epoch, best = val_loss, epoch, copy_of(model)
        # Stopping counts from the last improvement by more than min_delta; the weights kept are the
        # lowest loss's.
        improved = val_loss < reference - job.min_delta
        reference, waited = (val_loss, 0) if improved else (reference, waited + epoch - validated)
        validated = epoch
        if waited >= job.patience:
            stopped_by = "converged"
            break
    if device.type == "cuda":
        torch.cuda.synchronize()
    wall_clock_s = time.perf_counter() - began
    model.load_state_dict(best)
    return Trained(model.eval(), stopped_by, epoch, best_epoch, lowest, wall_clock_s)


@torch.no_grad()
def score(job: Job, data: Data, split: Split, model: nn.Module) -> Scores:
    """The mean quantile loss of a split's windows at the evaluated levels, in original units; with
    the objective `scaled`, each column's in units of its mean change from row to row.
    """
    task, device = job.task, data.minimum.device
    picked = [task["quantiles"].index(level) for level in task["eval_quantiles"]]
    levels = torch.tensor(task["eval_quantiles"], dtype=torch.float64, device=device)
    units = data.change[split.series] if task.get("objective") == "scaled" else None
    losses: list[Tensor] = []
    for values, target in in_original_units(data, split, model):
        first = sum(map(len, losses))
        unit = None if units is None else units[first : first + len(values)]
        losses.append(mean_quantile_loss_per_window(values[..., picked], target, levels, unit))
    together = torch.cat(losses)
    by_series = {
        name: float(together[split.series == i].mean()) for i, name in enumerate(data.names)
    }
    return Scores(by_series, float(together.mean()))


@torch.no_grad()
def forecast(data: Data, split: Split, model: nn.Module) -> Tensor:
    """A split's forecasts in original units, (N, T, C, Q): sorted along the levels, so that
    quantiles never cross.
    """
    return torch.cat([rearranged(values) for values, _ in in_original_units(data, split, model)])


def in_original_units(
    data: Data, split: Split, model: nn.Module
) -> Iterator[tuple[Tensor, Tensor]]:
    """What the network forecasts for a split's windows, (B, T, C, Q), and what came, (B, T, C)."""
    set_arithmetic("ieee")
    device = data.minimum.device
    for index in batches(torch.arange(len(split.starts), device=device), SCORED_AT_ONCE):
        past, future, static, target = gather(data, split, index)
        minimum, scale = (
            values[split.series[index]].unsqueeze(1) for values in (data.minimum, data.scale)
        )
        values = model(past, future, static).double()
        yield (
            values * scale.unsqueeze(-1) + minimum.unsqueeze(-1),
            target.double() * scale + minimum,
        )


def set_arithmetic(precision: str) -> None:
    """How products of 32-bit numbers are computed: exactly (ieee), or in TF32."""
    torch.backends.cuda.matmul.fp32_precision = precision
    torch.backends.cudnn.conv.fp32_precision = precision  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = True


def copy_of(model: nn.Module) -> dict[str, Tensor]:
    """The weights and buffers as they are now."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
