"""`tuner train`: a picked configuration, trained and kept as a file that forecasts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.best import Pick
from tuner.cli.device import chosen_device, waiting_for
from tuner.cli.options import DataDir, Json, Storage, Study, data_folder, note, storage_url
from tuner.cli.output import print_json
from tuner.config import Backend
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.export.recipe import Recipe
    from tuner.retrain import Trained
    from tuner.training import EpochRecord

SAY_EVERY_S = 10.0
SEEDS_AT_MOST = 100


def train(
    output: Annotated[Path, typer.Option(metavar="FILE.safetensors", help="The model; its card goes beside it.")],
    variant: Annotated[str | None, typer.Option(metavar="NAME", help="Variant whose study is picked from.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="A configuration that 'tuner best --format toml' wrote.")
    ] = None,
    pick: Annotated[Pick, typer.Option(help="Lowest MQL, lowest time, or the knee of the front.")] = Pick.KNEE,
    max_time: Annotated[float | None, typer.Option(metavar="S", help="At most this many seconds.")] = None,
    max_mql: Annotated[float | None, typer.Option(metavar="Q", help="At most this test MQL.")] = None,
    trial: Annotated[int | None, typer.Option(min=0, metavar="N", help="This trial, on the front or not.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, metavar="S", help="Seed (0).")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=SEEDS_AT_MOST, metavar="K", help="Train seeds 0 to K-1; keep the lowest loss."),
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="etth, demo, or a task file (the configuration's; etth).")
    ] = None,
    data_dir: DataDir = None,
    study: Study = None,
    storage: Storage = None,
    gpu: Annotated[
        int | None, typer.Option(min=0, metavar="INDEX", help="The GPU to run on (0 if there is one).")
    ] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Run on the CPU.")] = False,
    backend: Annotated[Backend, typer.Option(help="How the mathematics is executed.")] = Backend.AUTO,
    json: Json = False,
) -> int:
    """Train a configuration from a study, or from a file, and save the model with a card that says all about it."""
    if seed is not None and seeds is not None:
        raise UsageError("--seed and --seeds exclude each other; --seeds K trains the seeds 0 to K-1")
    picked = (variant, study, trial, max_time, max_mql)
    if (config is None) == all(each is None for each in picked):
        raise UsageError("say what to train: either --config FILE.toml, or --variant NAME with --pick or --trial")
    device = chosen_device(gpu=gpu, cpu=cpu)
    from tuner.saved_model import check_output

    check_output(output)
    recipe = (
        _from_study(variant, pick, max_time, max_mql, trial, task, study, storage)
        if config is None
        else _from_file(config)
    )
    recipe = replace(recipe, training=replace(recipe.training, backend=backend))
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.data.windows import to_device
    from tuner.devices import Gpu, exclusive
    from tuner.retrain import best_of, files_of, save_trained, train_seeds

    prepared = prepare(load_task(task or recipe.task), data_dir=data_folder(data_dir))
    if recipe.data_hash not in (None, prepared.data_hash):
        note("this is other data than the configuration was found on; the card says so")
    data = to_device(prepared, "cuda:0" if isinstance(device, Gpu) else "cpu")
    wanted = range(seeds) if seeds is not None else [seed or 0]
    with exclusive(device.lock_names, waiting=waiting_for(device.label)):
        trained = train_seeds(recipe, data, wanted, on_epoch=_announcer())
    save_trained(output, recipe, prepared, trained, device.model)
    kept = best_of(trained)
    if json:
        print_json({"files": files_of(output), "metrics": kept.as_dict(), "seeds": [t.as_dict() for t in trained]})
    else:
        _print(trained, kept)
    note(f"wrote {' and '.join(files_of(output))}")
    return 0


def _from_study(
    variant: str | None,
    pick: Pick,
    max_time: float | None,
    max_mql: float | None,
    trial: int | None,
    task: str | None,
    study: str | None,
    storage: str | None,
) -> Recipe:
    from tuner.export import is_archive, load_best
    from tuner.export.recipe import Recipe

    best = load_best(
        variant,
        pick=pick.value,
        task=task or "etth",
        study=study,
        storage=storage if storage and is_archive(storage) else storage_url(storage),
        max_time=max_time,
        max_mql=max_mql,
        trial=trial,
    )
    return Recipe.of(best)


def _from_file(path: Path) -> Recipe:
    from tuner.export.recipe import read_recipe

    return read_recipe(path)


def _announcer() -> Callable[[int, EpochRecord], None]:
    """Says from time to time how far a training is."""
    said = time.monotonic()

    def announce(seed: int, record: EpochRecord) -> None:
        nonlocal said
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            note(f"seed {seed}, epoch {record.epoch}: validation loss {record.val_loss:.6f}")

    return announce


def _print(trained: tuple[Trained, ...], kept: Trained) -> None:
    for each in trained:
        r, mark = each.result, " (kept)" if each is kept else ""
        typer.echo(
            f"seed {each.seed}: {r.stopped_by} after {r.epochs} epochs, {r.wall_clock_s:.2f} s, "
            f"validation loss {r.best_val_loss:.6f}{mark}"
        )
        for series, mql in each.scores.test_mql.items():
            typer.echo(f"  {series}: test MQL {mql:.4f}")
