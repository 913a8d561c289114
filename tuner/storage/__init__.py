"""The shared SQL database: Optuna's tables and our own beside them."""

from tuner.storage.engine import Database, initialisation_lock, open_database
from tuner.storage.epochs import EpochRow, EpochTable
from tuner.storage.history import Stint, stints
from tuner.storage.ledger import Ledger
from tuner.storage.records import Attempt, Claim, Counts, RunTicket, TrialResult
from tuner.storage.roster import Roster, WorkerRow
from tuner.storage.url import DatabaseUrl, absolute, parse_url
from tuner.storage.verifications import PlannedRun, VerificationRun, Verifications

__all__ = [
    "Attempt",
    "Claim",
    "Counts",
    "Database",
    "DatabaseUrl",
    "EpochRow",
    "EpochTable",
    "Ledger",
    "PlannedRun",
    "Roster",
    "RunTicket",
    "Stint",
    "TrialResult",
    "VerificationRun",
    "Verifications",
    "WorkerRow",
    "absolute",
    "initialisation_lock",
    "open_database",
    "parse_url",
    "stints",
]
