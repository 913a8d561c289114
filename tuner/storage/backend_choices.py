"""What `auto` came to in a study: measured once for each size of network, device and torch, and
the same for all its workers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import IntegrityError

from tuner.config import Backend, Hyperparameters
from tuner.devices.backend_rules import BackendChoice
from tuner.files.plain import harmless
from tuner.storage.database_clock import database_now
from tuner.storage.schema import backend_choices

MEASURED = (Backend.EAGER, Backend.GRAPH, Backend.COMPILE)
"""The backends that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFor:
    """What a measurement holds for."""

    sizes: Mapping[str, int | str | bool]
    """Of the network and its batches, by hyperparameter."""
    device_model: str
    torch_version: str

    @staticmethod
    def of(hyperparameters: Hyperparameters, device_model: str, torch_version: str) -> MeasuredFor:
        """Rates and decays, numbers that are no whole ones, change no step's time."""
        sizes = {
            name: value
            for name, value in hyperparameters.as_dict().items()
            if not isinstance(value, float)
        }
        return MeasuredFor(sizes=sizes, device_model=device_model, torch_version=torch_version)

    def as_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def key(self) -> str:
        return hashlib.sha256(self.as_json().encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class BackendChoices:
    """Those of one study."""

    engine: Engine
    study_id: int

    def of(self, measured_for: MeasuredFor) -> BackendChoice | None:
        """The one that counts; None where nothing is stored, or nothing that can be one.

        Raises:
            DBAPIError: the database is away.
        """
        mine = backend_choices.c.study_id == self.study_id
        query = select(backend_choices.c.choice).where(
            mine, backend_choices.c.key == measured_for.key
        )
        with self.engine.connect() as connection:
            return _choice(connection.execute(query).scalar_one_or_none())

    def settle(self, measured_for: MeasuredFor, choice: BackendChoice) -> BackendChoice:
        """Store what was measured, unless somebody was faster; the one that counts.

        Raises:
            DBAPIError: the database is away.
        """
        row = {
            "study_id": self.study_id,
            "key": measured_for.key,
            "measured_for": measured_for.as_json(),
            "choice": json.dumps(asdict(choice)),
        }
        try:
            with self.engine.begin() as connection:
                connection.execute(insert(backend_choices).values(**row, chosen_at=database_now()))
        except IntegrityError:
            return self.of(measured_for) or choice
        return choice


def _choice(text: object) -> BackendChoice | None:
    """What is stored may be a stranger's."""
    try:
        stored: Any = json.loads(str(text))
        backend = Backend(stored["backend"])
        seconds = {harmless(str(name)): float(s) for name, s in stored["epoch_s"].items()}
        reason = harmless(str(stored["reason"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if backend not in MEASURED or not all(map(math.isfinite, seconds.values())):
        return None
    return BackendChoice(backend=backend, reason=reason, epoch_s=seconds)
