"""`tuner train`: a picked configuration, trained and kept as a file that forecasts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli.best import Picking, picked
from tuner.cli.command import option, switch, takes
from tuner.cli.device import alone_on, chosen_device
from tuner.cli.options import Cpu, DataDir, OneGpu, Trust, data_folder
from tuner.cli.output import note, print_json, printed_to_stderr, say
from tuner.cli.replace import check_model_free
from tuner.config import Backend
from tuner.errors import TunerError, UsageError
from tuner.files.plain import excerpt

if TYPE_CHECKING:
    from tuner.data.prepare import PreparedData
    from tuner.data.task import Task
    from tuner.devices import CpuCores, Gpu
    from tuner.export.train import Averaged, Failed, Kept, Recipe, Refitted, Trained
    from tuner.training import EpochRecord
    from tuner.training.baselines.plain import Timed


# What `tuner train` tells: how far it is, and what its seeds came to.


SAY_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of the seeds."""

    trained: tuple[Trained, ...]
    failed: tuple[Failed, ...]
    baselines: Mapping[str, Timed]
    """What needs no network."""
    worth: str
    """Whether the model that is kept beats them, in a sentence."""
    averaged: Averaged | None = None
    refitted: Refitted | None = None


def tell(ended: Ended, output: Path, *, as_json: bool) -> None:
    """What the seeds came to, and which files hold the best of them."""
    from tuner.export.train import files_of, kept_of
    from tuner.study.baselines import in_words

    kept, files = kept_of(ended.trained, ended.averaged), files_of(output)
    refitted = None if ended.refitted is None else ended.refitted.in_words()
    if as_json:
        print_json(
            {
                "files": files,
                "metrics": kept.as_dict(),
                "seeds": [each.as_dict() for each in ended.trained],
                "failed_seeds": [each.as_dict() for each in ended.failed],
                "ensemble": None if ended.averaged is None else ended.averaged.sentence,
                "refit": refitted,
            }
        )
    else:
        if ended.worth:
            say(f"{ended.worth}.")
        _print(ended, kept)
        for series in kept.scores.test_mql:
            mql = [
                f"{in_words(name)} {each.scores.test_mql[series]:.4f}"
                for name, each in ended.baselines.items()
            ]
            say(f"without a network, {series}: test MQL of {', '.join(mql)}")
        if refitted:
            say(f"{refitted}.")
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


def _print(ended: Ended, kept: Kept) -> None:
    from tuner.report.terminal.explanations import print_forecast_quality

    for each in ended.trained:
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
    if ended.averaged is not None:
        say(f"{ended.averaged.sentence}.")
        say(f"test MQL of that mean: {ended.averaged.quality.sorted_mql_mean:.4f}")
    if kept.scores.test_columns:
        columns = [f"{name} {mql:.4f}" for name, mql in kept.scores.test_columns.items()]
        say(f"test MQL by target column, in its units: {', '.join(columns)}")
    print_forecast_quality(kept.quality)
    if (found := kept.calibration) is not None:
        from tuner.training.calibration import ABOUT

        say(f"calibrated on {found.windows:,} validation windows; {ABOUT}:")
        print_forecast_quality(found.after)
        if found.failed:
            say(f"{found.failed}.")


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
    calibrate: bool = switch("Shift intervals, so that they hold what they promise.")
    ensemble: bool = switch("Keep a mean of seeds and plain baselines, where it is better.")
    refit: bool = switch("Then train what is kept once more, on all rows.")
    backend: Backend = option(
        "NAME", "auto, eager, graph, compile or triton.", default=Backend.AUTO
    )
    trust: Trust = False


@takes(TrainOptions)
def train(options: TrainOptions) -> int:
    """Train a configuration of a study, or of a file; save the model and its card."""
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
        "--pick": None if options.pick == "same-quality" else options.pick,
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
    from tuner.data.windows import to_device
    from tuner.devices import Gpu
    from tuner.export.train import Failed, average, kept_of, refit, save_trained, train_seeds
    from tuner.training.baselines.plain import score_baselines

    prepared, whole = _prepared(options, recipe)
    place = "cuda:0" if isinstance(device, Gpu) else "cpu"
    data = to_device(prepared, place)
    wanted = range(options.seeds) if options.seeds is not None else [options.seed or 0]
    trained: list[Trained] = []
    failed: list[Failed] = []
    card: dict[str, Any] = {}
    with alone_on(device):
        baselines = score_baselines(data)
        told = recipe, prepared, trained, device.model, baselines, failed
        for each in train_seeds(
            recipe, data, wanted, calibrated=options.calibrate, on_epoch=announcer()
        ):
            if not isinstance(each, Failed):
                trained.append(each)
            else:
                failed.append(each)
                if len(wanted) > 1:
                    note(each.in_words())
            if trained:  # after each seed: whatever ends the others takes no model with it
                card = save_trained(options.output, *told)
        if not trained:
            raise TunerError(
                f"{failed[0].in_words()}; try another seed, or another configuration of the front"
            )
        ended = Ended(trained=tuple(trained), failed=tuple(failed), baselines=baselines, worth="")
        if options.ensemble:
            mean = average(recipe, data, trained, calibrated=options.calibrate)
            ended = replace(ended, averaged=mean)
            card = save_trained(options.output, *told, mean)
        if options.refit:
            note(f"{options.output} holds the model so far; now it is trained on all rows")
            all_data, kept = to_device(whole, place), kept_of(trained, ended.averaged)
            refitted = refit(recipe, whole, all_data, trained, kept, announcer())
            ended = replace(ended, refitted=refitted)
            card = save_trained(options.output, *told, ended.averaged, refitted)
    return replace(ended, worth=str(card["worth"] or ""))


def _prepared(options: TrainOptions, recipe: Recipe) -> tuple[PreparedData, PreparedData]:
    """The data with its splits; and, for a training on all rows, as such."""
    from tuner.data.prepare import prepare

    task, folder = _task(options.task, recipe), data_folder(options.data_dir)
    prepared = prepare(task, data_dir=folder)
    whole = prepare(task, data_dir=folder, whole=True) if options.refit else prepared
    if whole.data_hash != prepared.data_hash:
        raise TunerError(f"the data of task {task.name!r} changed while it was read; try again")
    if recipe.data_hash not in (None, prepared.data_hash):
        note("this is other data than the configuration was found on; the card says so")
    allowed = recipe.training.data_memory
    return prepared.within(allowed), whole.within(allowed)


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
