"""`tuner explain`: what studies teach beside their fronts."""

from __future__ import annotations

from tuner.cli.command import argument, command, option
from tuner.cli.options import Json, Storage, TaskName, print_json, storage_url


@command
def explain(
    studies: list[str] = argument(
        "VARIANT...",
        "Variants; study:NAME for a study, group:NAME for a group; or exported studies "
        "(.json, .json.gz).",
    ),
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

    found = [
        explain_study(each, epochs=epochs)
        for each in read_studies(studies, task=task, storage=storage_url(storage))
    ]
    if json:
        print_json({"studies": [each.as_dict() for each in found]})
    else:
        print_explanations(found)
    return 0
