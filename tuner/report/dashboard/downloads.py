"""Files that the dashboard offers with a study
and with the trials on its front, made when they are opened.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tuner.display.text import csv_text
from tuner.files.plain import in_json
from tuner.report.study_status import ROW, read_trial
from tuner.storage.optuna.private import trial_id_of
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults, TrialRecord

_NAMESPACE = uuid.UUID("7475-6e65-7220-6461-7368-626f-6172-6400".replace("-", ""))


@dataclass(frozen=True, slots=True)
class StudyFile:
    """A file to take away: its name, its kind, and what makes its text."""

    name: str
    kind: str
    content: Callable[[], str]


@dataclass(slots=True)
class StudyFiles:
    """What stands for an artifact store, and holds nothing: each file is written when the guard is
    asked for it. No request gets as far as the store itself.

    A study has `trials.csv` of all trials and `definition.json`; the default trial and those on the
    front, the first of each configuration, have `curve.csv` and `trial.json`, the card that says
    what the model was trained with and what came of it.
    """

    _files: dict[str, StudyFile] = field(default_factory=dict)

    def attributes(self, opened: OpenStudy, results: StudyResults) -> dict[str, str]:
        """System attributes that announce the files of a study and of its trials."""
        of_study = (
            StudyFile("trials.csv", "text/csv", lambda: _trials_csv(results)),
            StudyFile(
                "definition.json", "application/json", lambda: _json(opened.definition.as_dict())
            ),
        )
        found = {f"artifacts:{self._announce(opened, each)}": each for each in of_study}
        trial_ids = {
            trial.number: trial_id_of(trial) for trial in opened.optuna.get_trials(deepcopy=False)
        }
        configurations = results.configurations
        default = {each.number for each in configurations if each.is_default}
        for number in sorted({each.number for each in results.front} | default):
            for each in _files_of_trial(opened, number):
                artifact_id = self._announce(opened, each, f"/{number}")
                found[f"dashboard:artifacts:{trial_ids[number]}:{artifact_id}"] = each
        return {
            key: json.dumps(
                {
                    "artifact_id": key.rpartition(":")[2],
                    "filename": file.name,
                    "mimetype": file.kind,
                    "encoding": None,
                }
            )
            for key, file in found.items()
        }

    def _announce(self, opened: OpenStudy, file: StudyFile, where: str = "") -> str:
        artifact_id = str(uuid.uuid5(_NAMESPACE, f"{opened.key()}{where}/{file.name}"))
        self._files[artifact_id] = file
        return artifact_id

    def find(self, artifact_id: str) -> StudyFile | None:
        """The file that was announced with that number, if one was."""
        return self._files.get(artifact_id)


def _files_of_trial(opened: OpenStudy, number: int) -> tuple[StudyFile, StudyFile]:
    return (
        StudyFile("curve.csv", "text/csv", lambda: _curve_csv(opened, number)),
        StudyFile(
            "trial.json", "application/json", lambda: _json(read_trial(opened, number).as_dict())
        ),
    )


def _trials_csv(results: StudyResults) -> str:
    return csv_text([_flat(record) for record in results.records])


def _flat(record: TrialRecord) -> dict[str, Any]:
    values = dict(zip(record.objectives, record.values or ("", ""), strict=True))
    return {
        "trial": record.number,
        "state": record.state.name.lower(),
        **record.params,
        **values,
        **record.plain,
    }


def _curve_csv(opened: OpenStudy, number: int) -> str:
    rows = [{"trial": number} | in_json(row, *ROW) for row in opened.epochs.of_trial(number)]
    return csv_text(rows, first=("trial", *ROW))


def _json(document: Any) -> str:
    return json.dumps(document, indent=2)
