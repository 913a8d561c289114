"""What commands ask a launch for, made of their options."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.cli.launch import LaunchOptions
    from tuner.cli.retune import RetuneOptions
    from tuner.cli.verify import VerifyOptions
    from tuner.launch import DeviceChoice


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
