"""`tuner confirm`: what a finished study of anybody's recommends, on fresh seeds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tuner.cli.command import argument, option, switch, takes
from tuner.cli.options import Json, Storage, opened_database, storage_url
from tuner.cli.output import note, print_json, say
from tuner.config import MANY
from tuner.display.text import shown
from tuner.errors import UsageError
from tuner.files.plain import UNREADABLE, read_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmOptions:
    """The options of `tuner confirm`."""

    source: str = argument(
        "SOURCE", "Where the study is: a database URL, an SQLite file, a journal file, or a .csv."
    )
    study: str | None = option("NAME", "The study (default: the only one).")
    objective: str | None = option(
        "FILE.py:NAME", "The function that was searched; of a study of tuner's, none."
    )
    against: int | None = option("N", "Hold everything against this trial.", min=0)
    default: str | None = option("JSON", "Hold everything against this configuration.")
    margin: str | None = option(
        "1%|NUMBER", "How much worse is still as good: a share, or in the value's own units."
    )
    seeds: int | None = option("N", "Fresh seeds for each configuration (30).", min=5, max=MANY)
    workers: int | None = option("N", "Processes at a time (1: times stay honest).", min=1)
    gpus: str | None = option("0,1", "GPUs, dealt out to the processes.")
    maximise: bool = switch("The values of a .csv are to be high.")
    storage: Storage = None
    json: Json = False


@takes(ConfirmOptions)
def confirm(options: ConfirmOptions) -> int:
    """Confirm a finished study of Optuna, or a CSV: its best and what is as good and faster run
    again on fresh seeds beside a reference.

    The reference is --against, else --default, else the first trial that was enqueued, else the
    reported best. Nothing is written to SOURCE: runs go to the database of --storage, and the same
    command goes on where it was killed.
    """
    if options.objective is None:
        return _own(options)
    from tuner.worker.functions.calls import source_of
    from tuner.worker.functions.confirm import SEEDS, confirmed
    from tuner.worker.functions.foreign import read_foreign

    if options.against is not None and options.default is not None:
        raise UsageError("--against and --default exclude each other; choose one")
    study = read_foreign(options.source, options.study, maximise=options.maximise)
    with opened_database(storage_url(options.storage), create=True) as database:
        verdict = confirmed(
            database,
            study,
            source_of(options.objective),
            against=options.against,
            default=_default(options.default),
            margin=options.margin,
            seeds=options.seeds or SEEDS,
            workers=options.workers or 1,
            gpus=options.gpus.split(",") if options.gpus else (),
            note=note,
        )
    if options.json:
        print_json(verdict.as_dict())
        return 0
    for line in verdict.answer:
        say(line)
    if verdict.confirmed is not None:
        say(f"Parameters: {json.dumps(dict(verdict.best.params), default=str)}")
    return 0


def _default(text: str | None) -> dict[str, Any] | None:
    """Raises UsageError where it is no table."""
    try:
        return None if text is None else dict(read_json(text))
    except UNREADABLE:
        told = f"--default {shown(text or '')!r}: expected JSON such as '{{\"rate\": 0.1}}'"
        raise UsageError(told) from None


def _own(options: ConfirmOptions) -> int:
    """Of a study of tuner's, which says itself what is trained: `tuner verify --confirm`.

    Raises:
        UsageError: it is none of these.
    """
    from tuner.cli.verify import verify
    from tuner.study.open import list_studies, open_study

    missing = UsageError("--objective FILE.py:NAME is missing: the function that was searched")
    if "://" not in options.source or options.study is None:
        raise missing
    with opened_database(options.source) as database:
        if options.study not in list_studies(database):
            raise missing
        own = open_study(database, options.study).definition
    same = ("study", "margin", "seeds", "gpus", "workers", "json")
    said = {each: getattr(options, each) for each in same} | {"storage": options.source}
    return verify(variant=own.variant, task=own.task_name, confirm=True, **said)
