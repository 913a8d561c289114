"""`tuner compare`: variants held against each other, by what fresh seeds say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.best import Pick
from tuner.cli.options import Json, Storage, TaskName, note, storage_url
from tuner.cli.output import print_json


def compare(
    studies: Annotated[
        list[str],
        typer.Argument(
            metavar="VARIANT...",
            help="Variants, the reference first; study:NAME for a study; or exported studies (.json, .json.gz).",
            show_default=False,
        ),
    ],
    task: TaskName = "etth",
    pick: Annotated[Pick, typer.Option(help="Which point of each front stands for the retuned variant.")] = Pick.KNEE,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table as CSV.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with table, fronts, answers.")] = None,
    storage: Storage = None,
    json: Json = False,
) -> int:
    """Compare variants, default and retuned: a table with intervals, and what can be claimed after verification."""
    from tuner.compare import compare as make_report
    from tuner.compare import read_subjects
    from tuner.compare.files import write_csv, write_html
    from tuner.compare.terminal import print_report

    subjects = read_subjects(studies, task=task, storage=storage_url(storage))
    report = make_report(subjects, pick=pick.value)
    for path, write in ((csv, write_csv), (html, write_html)):
        if path is not None:
            write(report, path)
            note(f"wrote {path}")
    if json:
        print_json(report.as_dict())
    else:
        print_report(report)
    return 0
