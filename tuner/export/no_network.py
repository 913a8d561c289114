"""What cannot leave a study whose trials are a program: tuner has no network of it."""

from __future__ import annotations

from tuner.errors import UsageError
from tuner.spec.definition import StudyDefinition


def refuse_program(definition: StudyDefinition, study: str, what: str) -> None:
    """Raises UsageError where the study trains a program; `what` was asked for."""
    program = definition.program
    if program is not None:
        raise UsageError(
            f"{what}: study {study!r} trains a program of yours ({program.in_words()}), and its "
            "network is there alone; take the hyperparameters with --format toml or json, and give "
            "them to it"
        )
