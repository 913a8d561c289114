"""A program tried before its study: does it speak as it should, and do its seed and its
hyperparameters change anything?

A program that ignores its seed would be found sure of itself: fresh seeds would say the same as the
first one, bit for bit, and every interval would be a point.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.config import Hyperparameters, StopReason
from tuner.spec.definition import StudyDefinition
from tuner.trial.program.kept_folder import Earlier
from tuner.trial.program.program_process import ProgramError, ProgramProcess
from tuner.trial.program.program_training import ProgramTraining
from tuner.trial.program.run_program import missing_extra, told

EPOCHS = 2
"""Of each run."""
SEEDS = (0, 1)
ELSEWHERE = 0.25
"""Of each range: where the third run is, or else at three quarters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedProgram:
    """What three short runs of it showed."""

    epochs: int
    setup_s: float
    s_per_epoch: float
    ignores_seed: bool
    ignores_hyperparameters: bool

    @property
    def notices(self) -> tuple[str, ...]:
        found = []
        if self.ignores_seed:
            found.append(
                f"the program ignores its seed: seeds {SEEDS[0]} and {SEEDS[1]} gave the same "
                "values bit for bit, so no verdict on fresh seeds would mean anything; have it use "
                "the seed that it is told"
            )
        if self.ignores_hyperparameters:
            found.append(
                "the program ignores its hyperparameters: other values of all of them gave the same"
                " result bit for bit; have it use those that it is told"
            )
        return tuple(found)


def check_program(definition: StudyDefinition) -> CheckedProgram:
    """Run the program of a study three times for a few epochs: its default configuration on two
    seeds, and another configuration on the first of them.

    Raises:
        ProgramError: it did not what it should.
    """
    training = definition.training.but(max_epochs=min(EPOCHS, definition.training.max_epochs))
    short = dataclasses.replace(definition, training=training)
    first, second = (_run(short, definition.defaults, seed) for seed in SEEDS)
    other = _elsewhere(definition)
    third = None if other is None else _run(short, other, SEEDS[0])
    return CheckedProgram(
        epochs=len(first.history),
        setup_s=first.setup_s,
        s_per_epoch=first.history[-1].elapsed_s / len(first.history),
        ignores_seed=_values(first) == _values(second),
        ignores_hyperparameters=third is not None and _values(first) == _values(third),
    )


def _run(
    definition: StudyDefinition, hyperparameters: Hyperparameters, seed: int
) -> ProgramTraining:
    program = definition.program
    assert program is not None, "it has one"
    training = ProgramTraining(
        program=program,
        max_epochs=definition.training.max_epochs,
        earlier=Earlier(),
        rate=0.0,
        on_begun=lambda _earlier: None,
        on_epoch=lambda _record: None,
        should_stop=lambda: None,
        on_wait=lambda: None,
    )
    trial = told(definition, hyperparameters, study="check", number=0, seed=seed, earlier=Earlier())
    running = ProgramProcess(program.command, Path(program.folder), trial, None)
    try:
        with running:
            training.follow(running)
    except ProgramError as error:
        lines = running.last_printed
        printed = f"; it printed: {' | '.join(lines)}" if lines else ""
        raise ProgramError(f"the program failed: {error}{printed}{missing_extra(lines)}") from None
    error_name = definition.objectives[1]
    if training.stopped_by is StopReason.DIVERGED or training.final is None:
        raise ProgramError(f"the program failed: {training.diverged_in_words()}")
    if getattr(training.final, error_name) is None:
        raise ProgramError(
            f"the program failed: its final values lack {error_name}, which its study minimises"
        )
    return training


def _elsewhere(definition: StudyDefinition) -> Hyperparameters | None:
    """Another configuration: none of what can change is as in the default one, where that is
    possible.
    """
    space, default = definition.space, definition.defaults.as_dict()
    cubes = [space.at([share] * space.dimensions) for share in (ELSEWHERE, 1 - ELSEWHERE)]
    best = max(cubes, key=lambda each: sum(each[name] != default.get(name) for name in each))
    return None if best == default else definition.hyperparameters(best)


def _values(training: ProgramTraining) -> list[Any]:
    """All that it told but its clock."""
    losses = [(epoch.train_loss, epoch.val_loss) for epoch in training.history]
    final = training.final
    assert final is not None, "else it failed"
    return [losses, final.test_mql, final.val_mql]
