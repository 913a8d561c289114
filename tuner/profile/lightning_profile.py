"""A callback for Lightning: the stages of a `Trainer`'s steps, while it trains.

    from tuner.callbacks import LightningProfile

    trainer = Trainer(callbacks=[LightningProfile(steps=200, html="profile.html")])

Lightning is no dependency of its own: neuralforecast brings it.
"""

from __future__ import annotations

import platform
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tuner.callbacks.program_report import library
from tuner.devices.cpu import processor_name
from tuner.display.terminal import make_console
from tuner.files.durable import put
from tuner.profile.profile_page import as_page, print_profile
from tuner.profile.profile_records import Profile, bottleneck
from tuner.profile.script_hooks import Hooks, profile_of

if TYPE_CHECKING:
    _Callback = Any
else:
    _NAMES = ("lightning.pytorch", "pytorch_lightning")
    _Callback = library(*_NAMES, needed_by="LightningProfile", extra="lightning").Callback


class LightningProfile(_Callback):  # type: ignore[misc]
    """Profiles the first steps of a training, says where their time goes, and lets it go on.

    Args:
        steps: to be timed; a third as many are recorded, in turns with these.
        html: where a page with the timeline goes; None for none.
        show: whether the result is printed.

    `profile` has the result once the steps are done. Advice is not tried: that takes trainings of
    its own. `tuner profile --python train.py` tries it.
    """

    profile: Profile | None

    def __init__(
        self, steps: int = 200, *, html: str | Path | None = None, show: bool = True
    ) -> None:
        super().__init__()
        self.profile = None
        self._steps = steps
        self._html = None if html is None else Path(html)
        self._show = show
        self._stack = ExitStack()
        self._hooks: Any = None

    def on_train_start(self, *_: Any) -> None:
        """The hooks are set: Lightning's optimisers and loaders are torch's."""
        self._hooks = Hooks(self._steps, on_network=lambda _network: None, ended=self._ended)
        self._stack.enter_context(self._hooks.installed())

    def on_train_end(self, *_: Any) -> None:
        """A training that was shorter: what there is, is reckoned with."""
        if self.profile is None and self._hooks is not None:
            self._hooks.finish()
            if self._hooks.seen.steps:
                self._ended()
            self._stack.close()

    def _ended(self) -> None:
        self._stack.close()
        seen = profile_of(self._hooks, of_an_epoch=False)
        self.profile = replace(
            seen,
            subject=seen.subject or platform.node(),
            device=torch.cuda.get_device_name() if torch.cuda.is_available() else processor_name(),
            bottleneck=bottleneck(seen.advice, seen.stages, seen.operations, seen.pace),
        )
        self._hooks.seen.inputs = None  # the last batch: nobody else holds it
        if self._show:
            print_profile(self.profile, make_console(stderr=True))
        if self._html is not None:
            put(self._html, as_page(self.profile).encode())
