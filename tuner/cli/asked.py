"""What commands ask a launch for, made of their options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.settings import above_zero

if TYPE_CHECKING:
    from tuner.cli.launch_options import LaunchOptions
    from tuner.cli.retune_options import RetuneOptions
    from tuner.cli.verify_options import VerifyOptions
    from tuner.launch import DeviceChoice, StudySettings


def devices_of(options: LaunchOptions | RetuneOptions | VerifyOptions) -> DeviceChoice:
    """Where its workers run."""
    from tuner.launch import DeviceChoice

    return DeviceChoice(
        gpus=options.gpus,
        cpu=options.cpu,
        workers=options.workers,
        on=options.on,
        placement=options.placement,
        print_only=getattr(options, "print_only", False),  # a retune has stages, and prints none
    )


def settings_of(
    options: LaunchOptions | RetuneOptions, *, seeds: int | None = None
) -> StudySettings:
    """What its studies are, beside variant and task.

    Raises:
        UsageError: a value that its flag does not take.
    """
    from tuner.launch import StudySettings

    return StudySettings(
        max_epochs=options.max_epochs,
        seeds=seeds,
        backend=options.backend,
        precision=options.precision,
        accumulate=options.accumulate,
        checkpoint_activations=options.checkpoint_activations,
        compile_mode=options.compile_mode,
        validate_every=options.validate_every,
        time_objective=options.time_objective,
        target_val_loss=above_zero(options.target_val_loss, "--target-val-loss"),
        mql_split=options.mql_split,
    )
