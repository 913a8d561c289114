"""What `auto` means for a piece of work: asked of the study before it, told to the study after it
was measured.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tuner.config import Backend, Hyperparameters
from tuner.devices import CpuCores, Gpu
from tuner.devices.backend_choice import BackendChoice
from tuner.models.names import builtin_names
from tuner.storage.backend_choices import BackendChoices, MeasuredFor
from tuner.storage.retry import DATABASE_FAILURES, cause_of
from tuner.study.open import OpenStudy
from tuner.worker.host_facts import torch_version

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MeasuredBackend:
    """What it means for networks of certain sizes on this worker's device."""

    choices: BackendChoices | None
    """None where nothing is measured: the backend was named, or follows from sizes alone."""
    measured_for: MeasuredFor

    @staticmethod
    def of(
        opened: OpenStudy, device: Gpu | CpuCores, hyperparameters: Hyperparameters
    ) -> MeasuredBackend:
        """Asks the database for nothing yet."""
        definition = opened.definition
        measured = (
            isinstance(device, Gpu)
            and definition.training.backend is Backend.AUTO
            and definition.architecture.model not in builtin_names()
            and definition.program is None
        )
        return MeasuredBackend(
            BackendChoices(opened.database.engine, opened.study_id) if measured else None,
            MeasuredFor.of(hyperparameters, device.model, torch_version() or ""),
        )

    def known(self) -> BackendChoice | None:
        """What the study's workers agreed on; None where they have not yet, or need not.

        Raises:
            DBAPIError: the database is away.
        """
        return None if self.choices is None else self.choices.of(self.measured_for)

    def settle(self, choice: BackendChoice) -> BackendChoice:
        """The first one measured counts. While the database is away, it is this one."""
        if self.choices is None:
            return choice
        try:
            counts = self.choices.settle(self.measured_for, choice)
        except DATABASE_FAILURES as error:
            _log.warning(
                "the database is away (%s); the backend is measured again", cause_of(error)
            )
            return choice
        _log.info("backend %s: %s", counts.backend.value, counts.measured)
        return counts
