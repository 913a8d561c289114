"""`tuner train`: a picked configuration, trained and kept as a file that forecasts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.best import Pick, Picking, picked
from tuner.cli.command import option, takes
from tuner.cli.device import alone_on, chosen_device
from tuner.cli.options import Cpu, DataDir, OneGpu, Trust, data_folder
from tuner.cli.output import note, print_json, printed_to_stderr, say
from tuner.cli.replace import check_model_free
from tuner.config import Backend
from tuner.errors import TunerError, UsageError
from tuner.files.plain import excerpt

if TYPE_CHECKING:
    from tuner.data.task import Task
    from tuner.devices import CpuCores, Gpu
    from tuner.export.train import Failed, Recipe, Trained
    from tuner.training import EpochRecord, Evaluation


# What `tuner train` tells: how far it is, and what its seeds came to.


SAY_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of the seeds."""

    trained: tuple[Trained, ...]
    failed: tuple[Failed, ...]
    baselines: Mapping[str, Evaluation]
    """What needs no network."""
    loses: str
    """That one of them does as well, in a sentence; empty where none does."""


def tell(ended: Ended, output: Path, *, as_json: bool) -> None:
    """What the seeds came to, and which files hold the best of them."""
    from tuner.export.train import best_of, files_of
    from tuner.study.results import in_words

    kept, files = best_of(ended.trained), files_of(output)
    if as_json:
        print_json(
            {
                "files": files,
                "metrics": kept.as_dict(),
                "seeds": [each.as_dict() for each in ended.trained],
                "failed_seeds": [each.as_dict() for each in ended.failed],
            }
        )
    else:
        if ended.loses:
            say(f"{ended.loses}.")
        _print(ended.trained, kept)
        for series in kept.scores.test_mql:
            mql = [
                f"{in_words(name)} {each.test_mql[series]:.4f}"
                for name, each in ended.baselines.items()
            ]
            say(f"without a network, {series}: test MQL of {', '.join(mql)}")
    note(f"wrote {' and '.join(files)}")


def announcer() -> Callable[[int, EpochRecord], None]:
    """Says from time to time how far a training is."""
    said = time.monotonic()

    def announce(seed: int, record: EpochRecord) -> None:
        nonlocal said
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            loss = f"training loss {record.train_loss:.6f}"
            if record.val_loss is not None:
                loss = f"validation loss {record.val_loss:.6f}"
            note(f"seed {seed}, epoch {record.epoch}: {loss}")

    return announce


def _print(trained: tuple[Trained, ...], kept: Trained) -> None:
    from tuner.report.terminal.explanations import print_forecast_quality

    for each in trained:
        r, mark = each.result, " (kept)" if each is kept else ""
        say(
            f"seed {each.seed}: {r.stopped_by} after {r.epochs} epochs, {r.wall_clock_s:.2f} s, "
            f"validation loss {r.best_val_loss:.6f}{mark}"
        )
        for series, mql in each.scores.test_mql.items():
            say(
                f"  {series}: test MQL {mql:.4f}, of sorted quantiles "
                f"{each.quality.sorted_mql[series]:.4f}"
            )
    if kept.scores.test_columns:
        columns = [f"{name} {mql:.4f}" for name, mql in kept.scores.test_columns.items()]
        say(f"test MQL by target column, in its units: {', '.join(columns)}")
    print_forecast_quality(kept.quality)


SEEDS_AT_MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions(Picking):
    """The options of `tuner train`."""

    output: Path = option("FILE.safetensors", "The model; its card goes beside it.", default=...)
    config: Path | None = option(
        "FILE.toml", "A configuration that 'tuner best --format toml' wrote."
    )
    seed: int | None = option("S", "Seed (0).", min=0, max=2**63 - 1)
    seeds: int | None = option(
        "K", "Train seeds 0 to K-1; keep the lowest loss.", min=1, max=SEEDS_AT_MOST
    )
    task: str | None = option(
        "NAME|FILE", "etth, demo, or a task file (the configuration's; etth)."
    )
    data_dir: DataDir = None
    gpu: OneGpu = None
    cpu: Cpu = False
    backend: Backend = option(None, "How the mathematics is executed.", default=Backend.AUTO)
    trust: Trust = False


@takes(TrainOptions)
def train(options: TrainOptions) -> int:
    """Train a configuration from a study, or from a file, and save the model with a card that says
    all about it.
    """
    _check(options)
    device = chosen_device(gpu=options.gpu, cpu=options.cpu)
    from tuner.export.saved_model import check_output

    check_output(options.output)
    check_model_free(options.output, force=options.force)
    with printed_to_stderr(wanted=options.json):
        recipe = _recipe(options)
        recipe = replace(recipe, training=recipe.training.but(backend=options.backend))
        for named in recipe.own_code:
            note(f"this runs the code of {excerpt(named, at_most=500)}")
        ended = _trained(options, recipe, device)
    tell(ended, options.output, as_json=options.json)
    return 0


def _check_beside_config(options: TrainOptions) -> None:
    """Refuse what chooses a configuration, where a file holds the one."""
    said = {
        "--pick": None if options.pick is Pick.SAME_QUALITY else options.pick,
        "--margin": options.margin,
        "--against": options.against,
        "--values": options.values,
        "--storage": options.storage,
    }
    for name, value in said.items():
        if value is not None:
            raise UsageError(
                f"{name} chooses among a study's configurations, and --config names one; leave one "
                "of the two out"
            )


def _check(options: TrainOptions) -> None:
    from tuner.export import is_archive

    if options.seed is not None and options.seeds is not None:
        raise UsageError(
            "--seed and --seeds exclude each other; --seeds K trains the seeds 0 to K-1"
        )
    if options.config is not None:
        _check_beside_config(options)
    limits = (options.max_time, options.max_mql)
    archive = options.storage if options.storage and is_archive(options.storage) else None
    named = (options.variant, options.study, options.trial, archive, *limits)
    if (options.config is None) == all(each is None for each in named):
        raise UsageError(
            "say what to train: either --config FILE.toml, or --variant NAME with --pick or --trial"
        )


def _recipe(options: TrainOptions) -> Recipe:
    from tuner.export.train import Recipe, read_recipe

    if options.config is not None:
        return read_recipe(options.config)
    best = picked(options, task=options.task or "etth", trust=options.trust)
    for line in best.notes:
        note(line)
    return Recipe.of(best)


def _trained(options: TrainOptions, recipe: Recipe, device: Gpu | CpuCores) -> Ended:
    """One training a seed, alone on the device; the best of them is saved.

    Raises:
        TunerError: no seed left a model.
    """
    from tuner.data.prepare import prepare
    from tuner.data.windows import to_device
    from tuner.devices import Gpu
    from tuner.export.train import Failed, best_of, loses_to, save_trained, train_seeds
    from tuner.training.evaluate import score_baselines

    task = _task(options.task, recipe)
    prepared = prepare(task, data_dir=data_folder(options.data_dir))
    if recipe.data_hash not in (None, prepared.data_hash):
        note("this is other data than the configuration was found on; the card says so")
    data = to_device(prepared, "cuda:0" if isinstance(device, Gpu) else "cpu")
    wanted = range(options.seeds) if options.seeds is not None else [options.seed or 0]
    trained: list[Trained] = []
    failed: list[Failed] = []
    with alone_on(device):
        baselines = score_baselines(data)
        for each in train_seeds(recipe, data, wanted, on_epoch=announcer()):
            if not isinstance(each, Failed):
                trained.append(each)
            else:
                failed.append(each)
                if len(wanted) > 1:
                    note(each.in_words())
            if trained:  # after each seed: whatever ends the others takes no model with it
                save_trained(
                    options.output, recipe, prepared, trained, device.model, baselines, failed
                )
    if not trained:
        raise TunerError(
            f"{failed[0].in_words()}; try another seed, or another configuration of the front"
        )
    return Ended(
        trained=tuple(trained),
        failed=tuple(failed),
        baselines=baselines,
        loses=loses_to(best_of(trained), baselines, prepared.task.objective_series),
    )


def _task(named: str | None, recipe: Recipe) -> Task:
    from tuner.data.task import load_task, task_file

    try:
        return load_task(named or recipe.task)
    except UsageError:
        if named is not None or task_file(recipe.task) is not None:
            raise
    raise UsageError(
        f"the configuration is of task {excerpt(recipe.task)}, which is none of the built-in ones; "
        "give its task file with --task FILE"
    )
