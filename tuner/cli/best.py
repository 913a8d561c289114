"""`tuner best`: the configuration that a study recommends, in the form that training code takes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from tuner.cli.command import option, takes
from tuner.cli.options import Json, Storage, TaskName, storage_url, studies
from tuner.cli.output import note
from tuner.cli.replace import Force, check_free, check_placeable, is_configuration
from tuner.config import Values
from tuner.display.text import shown_lines, shown_value
from tuner.errors import UsageError
from tuner.spec.margin import margin_of

if TYPE_CHECKING:
    from tuner.export import BestConfig


# What `tuner best` and `tuner train` take alike: which configuration of a study.


PointOfFront = Literal["mql", "time", "knee"]
Pick = Literal["same-quality", PointOfFront]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picking:
    """The options of a command that is about a configuration of a study."""

    variant: str | None = option("NAME", "The variant that is picked from (or --study).")
    pick: Pick = option(
        "NAME",
        "same-quality: the fastest that is as good as the default; or mql, time, knee.",
        default="same-quality",
    )
    margin: str | None = option(
        "1%", "As good is an MQL at most so much above the default's (the study's; 1%)."
    )
    against: str | None = option(
        "NAME", "As good as another's default: a variant, study:NAME, or an exported study."
    )
    values: Values | None = option(
        None,
        "Which front: of single runs, of what all runs expect (this one, where trials are enough), "
        "of medians over fresh seeds.",
    )
    max_time: float | None = option("S", "At most this many seconds.")
    max_mql: float | None = option("Q", "At most this MQL.")
    trial: int | None = option("N", "This trial, on the front or not.", min=0)
    study: str | None = studies("default: <task>-<variant>")
    storage: Storage = None
    force: Force = False
    json: Json = False


def picked(options: Picking, *, task: str, trust: bool = False) -> BestConfig:
    """The configuration that the options name."""
    from tuner.export.load import best_of, is_archive
    from tuner.export.pick import Asked

    wanted = Asked(
        pick=options.pick,
        values=options.values,
        margin=margin_of(options.margin, "--margin"),
        against=options.against,
        bounds=(options.max_time, options.max_mql),
        trial=options.trial,
    )
    storage = options.storage
    storage = storage if storage and is_archive(storage) else storage_url(storage)
    return best_of(
        wanted, options.variant, task=task, study=options.study, storage=storage, trust=trust
    )


Format = Literal["json", "toml", "python", "neuralforecast", "darts"]
"""How the configuration is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOptions(Picking):
    """The options of `tuner best`."""

    output_format: Format | None = option(
        None,
        "toml (unless on a terminal), json; scripts: python, neuralforecast, darts.",
        named="--format",
    )
    output: Path | None = option(
        "FILE", "Write it here; python: FILE.py trains, FILE_network.py is the network alone."
    )
    task: TaskName = "etth"


@takes(BestOptions)
def best(options: BestOptions) -> int:
    """Print the configuration that a study recommends, with where it comes from.

    Where nothing faster is surely enough as good as the default, that is the default, and a line on
    stderr says so.
    """
    form = options.output_format
    if options.json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form} exclude each other; choose one")
    if options.json and options.output is not None:
        raise UsageError("--json prints and --output writes; say --format json --output FILE")
    chosen = form or ("json" if options.json else "toml")
    if options.output is not None:
        _check_output(options.output, chosen, force=options.force)
    found = picked(options, task=options.task)
    if found.worth:
        note(found.worth)
    if chosen is not form and options.output is None and sys.stdout.isatty() and not options.json:
        typer.echo(shown_lines("\n".join(in_short(found))))
    else:
        _give(found, chosen, options.output)
    for line in found.notes:
        note(line)
    return 0


MOST_PARAMS = 7
"""Of which a line each is told on a terminal."""


def in_short(found: BestConfig) -> list[str]:
    """What is recommended, what it gains, and what changes: a dozen lines at most."""
    told = found.confirmed or {}
    seeds = f"confirmed on {told['ran']} fresh seeds" if "gain" in told else "not confirmed"
    lines = [f"{found.variant} on {found.task}: trial {found.trial} of {found.study}, {seeds}"]
    if "gain" in told:
        lines.append(f"{told['gain']}.")
    else:
        figures = ", ".join(f"{name} {value:.4g}" for name, value in found.values.items())
        lines.append(f"In the search: {figures}; tuner verify --confirm tells what it is worth.")
    usual = found.definition.defaults.as_dict()
    for name, value in list(found.params.items())[:MOST_PARAMS]:
        was = "" if usual.get(name, value) == value else f" (was {shown_value(usual[name], 4)})"
        lines.append(f"  {name} = {shown_value(value, 4)}{was}")
    return [*lines, "All of it, and scripts that train it: --format toml, json, python, darts"]


def _check_output(output: Path, form: Format, *, force: bool) -> None:
    from tuner.export.forms import network_path

    for path in (output, *([network_path(output)] if form == "python" else [])):
        check_placeable(path)
        check_free(path, is_configuration, force=force)


def _give(found: BestConfig, form: Format, output: Path | None) -> None:
    """Print the configuration, or write its files."""
    from tuner.export.forms import render, render_files
    from tuner.report.comparison_files import put_text

    if output is None:
        typer.echo(shown_lines(render(found, form).rstrip("\n")))
        if form == "python":
            note("this trains it; --output best.py writes best_network.py too, the network alone")
        return
    for path, text in render_files(found, form, output).items():
        put_text(path, text.rstrip("\n") + "\n")
        typer.echo(shown_lines(f"wrote {path}"))
