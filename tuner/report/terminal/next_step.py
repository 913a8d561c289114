"""What to run after a launch: only what will work now, quoted as a shell needs it."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.trial import TrialState

from tuner.display.text import command_line, option
from tuner.spec.study_file import builtin_variants
from tuner.storage.url import DEFAULT_URL, absolute, parse_url
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults, read_results
from tuner.study.snapshot import snapshot
from tuner.verdict.no_answer import why_none


def next_steps(opened: Sequence[OpenStudy], launch: Sequence[str], *, ended: str) -> list[str]:
    """Commands, the most useful one first.
    `launch` are the words of the one that has just ended.
    """
    results = [read_results(each) for each in opened]
    if ended != "filled" and not any(each.front for each in results):
        first = list(launch)
    else:
        first = _on_results(opened, results)
    return [command_line(first), command_line(["tuner", "dashboard", *_storage(opened[0])])]


def _on_results(opened: Sequence[OpenStudy], results: Sequence[StudyResults]) -> list[str]:
    """A configuration of the first study that has one to recommend; else a trial that says why
    there is none.
    """
    for study, found in zip(opened, results, strict=True):
        if found.front and not found.infeasible:
            # What is recommended takes some trials; a point of the front is there at once.
            pick = [] if why_none(snapshot(study)) is None else ["--pick", "knee"]
            return ["tuner", "best", *_study(study), *pick, *_storage(study)]
    for study, found in zip(opened, results, strict=True):
        failed = [record.number for record in found.records if record.state == TrialState.FAIL]
        if failed:
            return [
                "tuner",
                "trial",
                str(failed[0]),
                *option("--study", study.name),
                *_storage(study),
            ]
    return ["tuner", "status", *_storage(opened[0])]


def _storage(opened: OpenStudy) -> list[str]:
    """The flag that leads back to this database;
    what is secret has to come from the environment again.
    """
    address = opened.database.address
    usual = (
        address.is_sqlite and address.sqlite_path == absolute(parse_url(DEFAULT_URL)).sqlite_path
    )
    return [] if usual or address.holds_secrets else ["--storage", str(address)]


def _study(opened: OpenStudy) -> list[str]:
    """The flags by which `tuner best` finds the study:
    files of the user's own are not known by their names.
    """
    variant, task = opened.definition.variant, opened.definition.task_name
    built_in = (
        opened.definition.task["source"]["kind"] == task
    )  # no task file may have the name of such a task
    usual = (
        built_in
        and variant in builtin_variants()
        and opened.membership.group == f"{task}-{variant}"
    )
    return ["--variant", variant, "--task", task] if usual else option("--study", opened.name)
