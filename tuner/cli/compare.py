"""`tuner compare`, `tuner explain`: what studies say beside each other, and beside their fronts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tuner.cli.best import PointOfFront
from tuner.cli.command import argument, command, option, switch
from tuner.cli.options import Json, Storage, TaskName, storage_url, studies
from tuner.cli.output import note, print_json
from tuner.cli.replace import Force, check_files, is_page, is_table
from tuner.errors import UsageError


@command
def compare(
    variants: list[str] | None = argument(
        "VARIANT...",
        "Variants, the reference first; study:NAME, group:NAME, or exported studies (.json, "
        ".json.gz).",
        default=None,
    ),
    study: str | None = studies("after the variants"),
    task: TaskName = "etth",
    pick: PointOfFront | None = option(
        None,
        "Which point of each front stands for the retuned variant (what is confirmed; "
        "the knee where nothing is).",
    ),
    csv: Path | None = option("FILE", "Write the table as CSV."),
    html: Path | None = option("FILE", "Write a page with table, fronts, answers."),
    steps: bool = switch(
        "By which factors the steps of a rewrite changed time and epochs: of defaults, "
        "of what was confirmed (NAME@best), in the other order (a fourth NAME@swap)."
    ),
    details: bool = switch("The statistics behind the answer: a table, and what each test says."),
    storage: Storage = None,
    force: Force = False,
    json: Json = False,
) -> int:
    """Compare variants, default and retuned: what to do, how much faster, at what price, and how
    sure that is.
    """
    named = _named(variants, study)
    check_files({"--csv": (csv, is_table), "--html": (html, is_page)}, force=force)
    url = storage_url(storage)
    if steps:
        if pick is not None:
            raise UsageError(
                "--pick goes without --steps; name what a confirmation tested NAME@best"
            )
        if details:
            raise UsageError("--details goes without --steps, which tells all it knows")
        from tuner.report import comparison_steps
        from tuner.verdict.compare.steps import steps_report

        told = steps_report(named, task=task, storage=url)
        files = ((csv, comparison_steps.write_csv), (html, comparison_steps.write_html))
        return _tell(told, comparison_steps.print_steps, files, json=json)
    from tuner.report.comparison_files import write_csv, write_html
    from tuner.report.terminal.comparison import print_answer, print_report
    from tuner.verdict.compare.findings import compare as make_report
    from tuner.verdict.compare.studies import read_studies

    found = read_studies(named, task=task, storage=url)
    report = make_report(found, pick=pick)
    show = print_report if details else print_answer
    return _tell(report, show, ((csv, write_csv), (html, write_html)), json=json)


def _named(variants: list[str] | None, study: str | None) -> list[str]:
    """All that was named, each as `read_studies` takes it. Raises UsageError where nothing was."""
    from tuner.study.snapshot import PREFIX, STUDY

    found = [each.strip() for each in (study or "").split(",") if each.strip()]
    found = [each if each.startswith((STUDY, PREFIX)) else STUDY + each for each in found]
    if not variants and not found:
        raise UsageError("name variants, or studies with --study")
    return [*(variants or ()), *found]


def _tell(report: Any, show: Callable[[Any], None], files: Iterable[Any], *, json: bool) -> int:
    if not json:  # first what cannot fail: it may have taken long
        show(report)
    for path, write in files:
        if path is not None:
            write(report, path)
            note(f"wrote {path}")
    if json:  # last: an error is a document, too, and there is one
        print_json(report.as_dict())
    return 0


# `tuner explain`: what studies teach beside their fronts.


@command
def explain(
    variants: list[str] | None = argument(
        "VARIANT...",
        "Variants; study:NAME, group:NAME, or exported studies (.json, .json.gz).",
        default=None,
    ),
    study: str | None = studies("after the variants"),
    task: TaskName = "etth",
    epochs: int = option(
        "N", "Which learning rates converge under so many epochs?", default=50, min=1
    ),
    storage: Storage = None,
    json: Json = False,
) -> int:
    """Say which hyperparameters matter, how validation ranks against test,
    and which learning rates converge.
    """
    from tuner.report.terminal.explanations import print_explanations
    from tuner.verdict.compare.studies import read_studies
    from tuner.verdict.explain import explain_study

    named = _named(variants, study)
    found = [
        explain_study(each, epochs=epochs)
        for each in read_studies(named, task=task, storage=storage_url(storage))
    ]
    if json:
        print_json({"studies": [each.as_dict() for each in found]})
    else:
        print_explanations(found)
    return 0
