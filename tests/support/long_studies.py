"""A recorded study with as many trials as a search needs to stop by itself: its configurations run
again and again."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from tests.support.recorded_studies import record_study
from tuner.spec.seeds import seed_of_trial
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import Archive, archive_of
from tuner.study.open import open_study
from tuner.verdict.until import LEAST_TRIALS

_CONFIGURATIONS = 24
SEED_NOISE = 0.03
"""Of an MQL, relative: what makes more runs worth something."""


def long_archive(
    folder: Path,
    *,
    variant: str = "rmsnorm",
    task: str = "demo",
    name: str = "demo-rmsnorm",
    device: str = "A",
    max_epochs: int = 200,
) -> Archive:
    """The study as it would be exported, with `LEAST_TRIALS` finished trials."""
    url = f"sqlite:///{folder}/short.db"
    record_study(
        url,
        variant=variant,
        task=task,
        name=name,
        trials=_CONFIGURATIONS,
        device=device,
        max_epochs=max_epochs,
    )
    database = open_database(parse_url(url), create=False)
    try:
        short = archive_of(open_study(database, name))
    finally:
        database.close()
    converged = [each for each in short.records if each.converged]
    records, random = list(short.records), np.random.default_rng(1)
    while len(records) < LEAST_TRIALS:
        number = len(records)
        first = converged[number % len(converged)]
        seed = seed_of_trial(number, root=short.membership.seed_root)
        recorded = dataclasses.replace(first.recorded, seed=seed, default=None)
        assert first.values is not None
        noisy = first.values[0], first.values[1] * (1 + SEED_NOISE * random.standard_normal())
        records.append(dataclasses.replace(first, number=number, values=noisy, recorded=recorded))
    return dataclasses.replace(short, records=tuple(records), budget=len(records))
