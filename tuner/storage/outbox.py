"""What was computed and not yet stored waits in local files: a result outlives its worker and a database outage.

A result is put here before it goes to the database and taken away after. Whoever next starts work on this machine
delivers what is left; the claim's token decides whether it still counts. Epochs come here when an outage lasts longer
than memory should hold them.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.storage.durable import read_regular, write_durably
from tuner.storage.epochs import EpochRow, EpochTable
from tuner.storage.ledger import Ledger
from tuner.storage.records import Claim, TrialResult

AT_MOST_BYTES = 64 << 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outbox:
    """The files in `folder` of one study. `study_key` is what no other study has, in this database or another."""

    folder: Path
    study_key: str

    def put_result(self, claim: Claim, result: TrialResult) -> None:
        """Raises OSError when it cannot be written."""
        self._put(self._result_path(claim), claim, {"result": result.to_json()})

    def remove_result(self, claim: Claim) -> None:
        self._result_path(claim).unlink(missing_ok=True)

    def put_epochs(self, claim: Claim, rows: Sequence[EpochRow]) -> None:
        """Raises OSError when they cannot be written."""
        path = self.folder / f"epochs-{claim.token}-{secrets.token_hex(4)}.json"
        self._put(path, claim, {"epochs": [asdict(row) for row in rows]})

    def _result_path(self, claim: Claim) -> Path:
        return self.folder / f"result-{claim.token}.json"

    def _put(self, path: Path, claim: Claim, what: dict[str, Any]) -> None:
        write_durably(path, json.dumps({"study": self.study_key, "claim": asdict(claim)} | what).encode())

    def deliver(self, ledger: Ledger, epochs: EpochTable, *, only: Claim | None = None) -> int:
        """Bring the study's entries (or the epochs of one claim, `only`) to the database; returns how many.

        Safe to run by several at once, and again after a failure: what is written twice counts once. An entry that
        cannot be read stays where it is, with a notice.

        Raises:
            DBAPIError, StorageInternalError: the database did not take one; it and those after it stay.
        """
        delivered = 0
        pattern = "*.json" if only is None else f"epochs-{only.token}-*.json"
        # Epochs first: a trial that is told as finished should have its curve.
        for path in sorted(self.folder.glob(pattern)):
            deliver = self._read(path, ledger, epochs)
            if deliver is not None:
                deliver()
                path.unlink(missing_ok=True)
                delivered += 1
        return delivered

    def _read(self, path: Path, ledger: Ledger, epochs: EpochTable) -> Callable[[], None] | None:
        """What delivers the entry; None when it is another study's, unreadable or just delivered by another."""
        try:
            entry = json.loads(read_regular(path, at_most=AT_MOST_BYTES))
            if entry["study"] != self.study_key:
                return None
            claim = Claim(**entry["claim"])
            if "epochs" in entry:
                rows = [EpochRow(**row) for row in entry["epochs"]]
                return lambda: epochs.write(claim.trial_number, claim.claim_id, rows)
            result = TrialResult.from_json(entry["result"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s holds nothing that could be delivered: %s", path, error)
            return None

        def finish() -> None:
            counted = ledger.finish(claim, result)
            _log.info(
                "trial %d: a result from before was delivered, and %s",
                claim.trial_number,
                "counts" if counted else "came too late to count",
            )

        return finish
